"""The projectors of DeepSeek-OCR, of GLM's newer models, and of Qwen 2.5 Omni."""

from __future__ import annotations

from typing import Any

from projectors.qwen import BLOCKS, FLAT, GATED, MERGER
from projectors.shapes import HALVES, TEXT, NamedShapes, both, under, weights, whisper
from projectors.vision import GLM4V

EARS = {"d_model": 32, "encoder_layers": 4, "encoder_attention_heads": 2, "encoder_ffn_dim": 64,
        "num_mel_bins": 16}  # fmt: skip
SAM: NamedShapes = {
    **under("model.sam_model.blocks.{i}.", {
        **both({"norm1": (48,), "norm2": (48,), "attn.qkv": (144, 48), "attn.proj": (48, 48),
                "mlp.lin1": (64, 48), "mlp.lin2": (48, 64)}),
        "attn.rel_pos_h": (7, 12), "attn.rel_pos_w": (7, 12),
    }),
    **both({"model.sam_model.patch_embed.proj": (48, 3, 16, 16), "model.sam_model.neck.1": (32,),
            "model.sam_model.neck.3": (32,)}),
    **weights({
        "model.sam_model.neck.0": (32, 48, 1, 1), "model.sam_model.neck.2": (32, 32, 3, 3),
        "model.sam_model.net_2": (48, 32, 3, 3), "model.sam_model.net_3": (64, 48, 3, 3),
    }),
    "model.sam_model.pos_embed": (1, 4, 4, 48),
}  # fmt: skip
CLIP: NamedShapes = {
    **under("model.vision_model.transformer.layers.{i}.", both({
        "layer_norm1": (32,), "layer_norm2": (32,), "self_attn.qkv_proj": (96, 32),
        "self_attn.out_proj": (32, 32), "mlp.fc1": (64, 32), "mlp.fc2": (32, 64),
    })),
    **both({"model.vision_model.pre_layrnorm": (32,), "model.projector.layers": (64, 64)}),
    **weights({"model.vision_model.embeddings.patch_embedding": (32, 3, 14, 14),
               "model.vision_model.embeddings.position_embedding": (17, 32)}),
    "model.vision_model.embeddings.class_embedding": (32,),
    "model.image_newline": (64,), "model.view_seperator": (64,),
    "model.embed_tokens.weight": (64, 64), "lm_head.weight": (64, 64),
    "model.layers.{i}.self_attn.q_proj.weight": (64, 64),
}  # fmt: skip
WIDTHS = {
    "clip-l-14-224": {"heads": 2, "image_size": 224, "layers": 4, "patch_size": 14, "width": 32},
    "sam_vit_b": {"downsample_channels": [48, 64], "global_attn_indexes": [2], "heads": 4,
                  "layers": 4, "width": 48},
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "deepseek-ocr": {
        "also": ["UnlimitedOCRForCausalLM"],
        "config": {
            **FLAT, "architectures": ["DeepseekOCRForCausalLM"], "model_type": "deepseek_vl_v2",
            "language_config": TEXT,
            "vision_config": {"image_size": 1024, "mlp_ratio": 3.7, "model_type": "vision",
                              "width": WIDTHS},
        },
        "preprocessor": HALVES, "tensors": {**SAM, **CLIP},
    },
    "glm5next": {
        "config": {
            "architectures": ["Glm5NextForConditionalGeneration"], "model_type": "glm5_next",
            "text_config": TEXT,
            "vision_config": {"hidden_size": 32, "intermediate_size": 48, "depth": 4,
                              "num_heads": 2, "image_size": 56, "patch_size": 14,
                              "hidden_act": "silu", "swiglu_limit": 10.0},
        },
        "preprocessor": {**HALVES, "patch_size": 14, "merge_size": 2, "min_image_tokens": 16,
                         "max_image_tokens": 4096},
        "tensors": {
            **{name: shape for name, shape in GLM4V.items()
               if "post_conv" not in name and "position" not in name},
            "visual.blocks.{i}.attn.q_norm.weight": (16,),
            "visual.blocks.{i}.attn.k_norm.weight": (16,),
        },
    },
    "glmasr": {
        "config": {
            "architectures": ["GlmasrModel"], "model_type": "Glmasr", "merge_factor": 4,
            "lm_config": {**TEXT, "model_type": "llama"},
            "whisper_config": {**EARS, "num_hidden_layers": 4},
        },
        "tensors": {
            **{name: shape for name, shape in whisper("audio_encoder.whisper.").items()
               if "layer_norm." not in name or "layers" in name},
            **both({"audio_encoder.layer_norm": (32,), "audio_encoder.adapting.0": (128, 128),
                    "audio_encoder.adapting.2": (64, 128)}),
            "audio_encoder.audio_bos_eos_token.weight": (2, 64),
            "model.embed_tokens.weight": (64, 64),
        },
    },
    "qwen25omni": {
        "config": {
            "architectures": ["Qwen2_5OmniModel"], "model_type": "qwen2_5_omni",
            "thinker_config": {
                "model_type": "qwen2_5_omni_thinker",
                "text_config": {**TEXT, "model_type": "qwen2_5_omni_text"}, "audio_config": EARS,
                "vision_config": {"depth": 4, "hidden_size": 32, "intermediate_size": 96,
                                  "num_heads": 2, "fullatt_block_indexes": [1, 3]},
            },
        },
        "preprocessor": HALVES,
        "tensors": {
            **under("thinker.", {**BLOCKS, **GATED, **MERGER}),
            "thinker.visual.patch_embed.proj.weight": (32, 3, 2, 14, 14),
            **{name.replace("tower.layer_norm", "tower.ln_post"): shape
               for name, shape in whisper("thinker.audio_tower.").items()
               if "embed_positions" not in name},
            **both({"thinker.audio_tower.proj": (64, 32)}),
            "thinker.audio_tower.audio_bos_eos_token.weight": (2, 64),
            "talker.model.embed_tokens.weight": (16, 16),
        },
    },
}  # fmt: skip
