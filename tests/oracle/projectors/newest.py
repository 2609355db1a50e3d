"""The projectors of the newest models that see, and of some that also hear."""

from __future__ import annotations

from typing import Any

from projectors.ocr import SAM
from projectors.shapes import HALVES, TEXT, VISION, NamedShapes, both, under, weights
from projectors.siglip import siglip

# MiniMax M3's heads have 80 channels: 13 pairs for each of three axes, and one that does not turn.
TURNED: NamedShapes = {
    **{name: (160, *shape[1:]) if "q_proj" in name or "k_proj" in name else shape
       for name, shape in siglip("vision_tower.vision_model.").items()
       if "post" not in name and "position" not in name and "patch" not in name},
    **both({"vision_tower.vision_model.pre_layrnorm": (32,),
            "vision_tower.vision_model.post_layernorm": (32,)}),
    **both({f"{name}.linear_{n}": (64, 64) for n in (1, 2)
            for name in ("multi_modal_projector", "patch_merge_mlp")}),
    "vision_tower.vision_model.embeddings.patch_embedding.weight": (32, 3, 2, 14, 14),
    "language_model.model.embed_tokens.weight": (64, 64),
}  # fmt: skip
STEP: NamedShapes = {
    **under("vision_model.transformer.resblocks.{i}.", {
        **both({"ln_1": (32,), "ln_2": (32,), "attn.out_proj": (32, 32), "mlp.c_fc": (64, 32),
                "mlp.c_proj": (32, 64)}),
        "attn.in_proj_weight": (96, 32), "attn.in_proj_bias": (96,), "ls_1.gamma": (32,),
        "ls_2.gamma": (32,),
    }),
    **both({"vision_model.ln_pre": (32,), "vision_model.vit_downsampler1": (48, 32, 3, 3),
            "vision_model.vit_downsampler2": (64, 48, 3, 3)}),
    **weights({"vision_model.conv1": (32, 3, 14, 14), "vit_large_projector": (64, 64),
               "model.embed_tokens": (64, 64), "lm_head": (64, 64)}),
    "vision_model.positional_embedding": (16, 32),
}  # fmt: skip
QWEN2: NamedShapes = {
    **under("model.qwen2_model.model.model.layers.{i}.", {
        **both({"self_attn.q_proj": (32, 32), "self_attn.k_proj": (16, 32),
                "self_attn.v_proj": (16, 32)}),
        **weights({"self_attn.o_proj": (32, 32), "mlp.gate_proj": (64, 32),
                   "mlp.up_proj": (64, 32), "mlp.down_proj": (32, 64), "input_layernorm": (32,),
                   "post_attention_layernorm": (32,)}),
    }),
    **weights({"model.qwen2_model.model.model.norm": (32,), "model.qwen2_model.query_768": (9, 32),
               "model.qwen2_model.query_1024": (16, 32), "model.embed_tokens": (64, 64),
               "lm_head": (64, 64), "model.layers.{i}.self_attn.q_proj": (64, 64)}),
    **both({"model.projector.layers": (64, 32)}), "model.view_seperator": (64,),
}  # fmt: skip
DEEPSEEK4: NamedShapes = {
    **under("vision.blocks.{i}.", weights({
        "norm1": (32,), "norm2": (32,), "attn.wqkv": (96, 32), "attn.wo": (32, 32),
        "mlp.w1": (128, 32), "mlp.w2": (32, 64),
    })),
    **weights({"vision.patch_embed.proj": (32, 588), "vision.norm": (32,), "embed": (64, 64)}),
    **both({"aligner.w1": (64, 288), "aligner.w2": (64, 64)}),
    **{f"image_{name}": (64,) for name in ("newline", "start", "end", "pad")},
}  # fmt: skip
MUSE: NamedShapes = {
    **under("model.vision_tower.layers.{i}.", both({
        "norm1": (32,), "norm2": (32,), **{f"attn.{n}_proj": (32, 32) for n in "qkv"},
        "attn.proj": (32, 32), "mlp.fc1": (64, 32), "mlp.fc2": (32, 64),
    })),
    **both({"model.vision_tower.ln_pre": (32,), "model.vision_tower.ln_post": (32,)}),
    **weights({
        "model.vision_tower.patch_embedder.patch_embedding": (32, 2 * 588),
        "model.vision_adapter.fc1": (64, 128), "model.vision_adapter.fc2": (64, 64),
        "model.vision_projection": (64, 64), "model.language_model.embed_tokens": (64, 64),
    }),
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "phi4v": {
        "config": {
            **TEXT, "architectures": ["Phi4ForCausalLMV"], "model_type": "phi4-siglip",
            "vision_config": {**VISION, "model_type": "siglip2_vision_model"},
            "min_num_patches": 4,
        },
        "preprocessor": {**HALVES, "patch_size": 16, "max_num_patches": 3600},
        "tensors": {
            **{name: (32, 768) if "patch_embedding.weight" in name else shape for name, shape in
               siglip("model.vision_tower.vision_tower.vision_model.").items()},
            **both({"model.vision_tower.vision_tower.vision_model.head.layernorm": (32,),
                    "model.mm_projector.0": (64, 32), "model.mm_projector.2": (64, 64)}),
            "model.embed_tokens.weight": (64, 64),
        },
    },
    "minimax-m3": {
        "config": {
            "architectures": ["MiniMaxM3SparseForConditionalGeneration"],
            "model_type": "minimax_m3_vl", "text_config": TEXT,
            "vision_config": {**VISION, "hidden_size": 160,
                              "img_token_compression_config": {"spatial_merge_size": 2}},
        },
        "preprocessor": HALVES, "tensors": TURNED,
    },
    "step3vl": {
        "also": ["Step3p7ForConditionalGeneration"], "layers": 47,
        "config": {
            "architectures": ["StepVLForConditionalGeneration"], "model_type": "step_robotics",
            "text_config": TEXT, "understand_projector_stride": 2,
            "vision_config": {"width": 1536, "layers": 47, "heads": 16, "image_size": 728,
                              "patch_size": 14, "model_type": "perception_encoder"},
        },
        "tensors": STEP,
    },
    "deepseek-ocr2": {
        "config": {
            **TEXT, "architectures": ["DeepseekOCR2ForCausalLM"], "model_type": "deepseek_vl_v2",
            "language_config": TEXT,
            "vision_config": {"image_size": 1024, "mlp_ratio": 3.7, "model_type": "vision",
                              "layers": 4,
                              "width": {"qwen2-0-5b": {"dim": 32},
                                        "sam_vit_b": {"heads": 4, "layers": 4, "width": 48}}},
        },
        "preprocessor": HALVES, "tensors": {**SAM, **QWEN2},
    },
    "deepseek4v": {
        "config": {
            **TEXT, "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4",
            "vision_n_layers": 4, "vision_dim": 32, "vision_n_heads": 2, "vision_inter_dim": 64,
            "vision_patch_size": 14, "vision_downsample_ratio": 3, "vision_min_pixels": 3136,
            "vision_max_n_token": 384, "vision_max_wh_ratio": 8,
        },
        "tensors": DEEPSEEK4,
    },
    "muse-glimmer": {
        "config": {
            "architectures": ["MuseGlimmerForConditionalGeneration"], "model_type": "muse_glimmer",
            "text_config": TEXT,
            "vision_config": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4,
                              "num_attention_heads": 2, "patch_size": 14, "patch_temporal": 2,
                              "pos_emb_height": 4, "pos_emb_width": 4, "merge_size": 2,
                              "layer_norm_eps": 1e-5},
        },
        "preprocessor": HALVES, "tensors": MUSE,
    },
}  # fmt: skip
