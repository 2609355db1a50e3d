"""The projectors of further models that see."""

from __future__ import annotations

from typing import Any

from projectors.qwen import BLOCKS, DEEP, FLAT, GATED, MERGER, PLAIN, QWEN3
from projectors.shapes import HALVES, TEXT, VISION, NamedShapes, both, under, weights
from projectors.siglip import siglip

PIXELS = {**HALVES, "min_pixels": 3136, "max_pixels": 12544}
PATCH = {"visual.patch_embed.proj.weight": (32, 3, 2, 14, 14)}
COGVLM: NamedShapes = {
    **under("model.vision.transformer.layers.{i}.", both({
        "input_layernorm": (32,), "attention.query_key_value": (96, 32),
        "attention.dense": (32, 32), "post_attention_layernorm": (32,), "mlp.fc1": (64, 32),
        "mlp.fc2": (32, 64),
    })),
    **both({"model.vision.patch_embedding.proj": (32, 3, 14, 14),
            "model.vision.linear_proj.norm1": (64,)}),
    **weights({
        "model.vision.patch_embedding.position_embedding": (17, 32),
        "model.vision.linear_proj.linear_proj": (64, 32),
        "model.vision.linear_proj.gate_proj": (96, 64),
        "model.vision.linear_proj.dense_h_to_4h": (96, 64),
        "model.vision.linear_proj.dense_4h_to_h": (64, 96),
    }),
    "model.vision.patch_embedding.cls_embedding": (1, 32), "model.vision.boi": (1, 1, 64),
    "model.vision.eoi": (1, 1, 64), "model.embed_tokens.weight": (64, 64),
}  # fmt: skip
HUNYUAN: NamedShapes = {
    **under("vit.layers.{i}.", both({
        "input_layernorm": (32,), "post_attention_layernorm": (32,),
        **{f"self_attn.{name}_proj": (32, 32) for name in "qkvo"},
        "mlp.dense_h_to_4h": (64, 32), "mlp.dense_4h_to_h": (32, 64),
    })),
    **both({"vit.embeddings.patch_embedding": (32, 3, 14, 14), "vit.perceive.mlp": (64, 64),
            "vit.perceive.proj.0": (64, 32, 2, 2), "vit.perceive.proj.2": (64, 64, 1, 1)}),
    **weights({"vit.embeddings.position_embedding": (17, 32), "vit.perceive.before_rms": (32,),
               "vit.perceive.after_rms": (64,)}),
    **{f"vit.perceive.image_{name}": (64,) for name in ("begin", "end", "newline", "sep")},
    "model.embed_tokens.weight": (64, 64),
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "sarashina2": {
        "config": {
            "architectures": ["Sarashina2VisionForCausalLM"], "model_type": "sarashina2_vision",
            "text_config": TEXT,
            "vision_config": {"depth": 4, "embed_dim": 32, "hidden_size": 64, "mlp_ratio": 2,
                              "num_heads": 2, "patch_size": 14},
        },
        "preprocessor": HALVES,
        "tensors": {**BLOCKS, **PLAIN, **MERGER, **PATCH, "llm.lm_head.weight": (64, 64)},
    },
    "exaone4_5": {
        "config": {
            "architectures": ["Exaone4_5_ForConditionalGeneration"], "model_type": "exaone4_5",
            "text_config": TEXT,
            "vision_config": {"depth": 4, "hidden_size": 32, "intermediate_size": 96,
                              "num_heads": 2, "num_key_value_heads": 1, "patch_size": 14,
                              "fullatt_block_indexes": [1, 3], "window_size": 112},
        },
        "preprocessor": PIXELS,
        "tensors": under("model.", {**BLOCKS, **GATED, **MERGER, **PATCH}),
    },
    "ling3vl": {
        "config": {
            "architectures": ["BailingMoeV3VLForConditionalGeneration"],
            "model_type": "bailing_moe_v3_vl", "text_config": {**TEXT, "rms_norm_eps": 1e-5},
            "vision_config": {**QWEN3, "disable_merger_proj": True},
        },
        "layers": 5, "preprocessor": HALVES,
        "tensors": {
            **{f"model.visual.{name}": shape for name, shape in DEEP.items()
               if "merger.linear" not in name and name != "patch_embed.proj.bias"},
            **both({"linear_proj.0": (64, 128), "linear_proj.2": (64, 64)}),
        },
    },
    "paddleocr": {
        "config": {
            **FLAT, "architectures": ["PaddleOCRVLForConditionalGeneration"],
            "model_type": "paddleocr_vl",
            "vision_config": {**VISION, "architectures": ["PaddleOCRVisionModel"]},
        },
        "preprocessor": PIXELS,
        "tensors": {
            **siglip("visual.vision_model."),
            "visual.vision_model.embeddings.packing_position_embedding.weight": (9, 32),
            "visual.vision_model.head.probe": (1, 1, 32),
            **both({"mlp_AR.pre_norm": (32,), "mlp_AR.linear_1": (128, 128),
                    "mlp_AR.linear_2": (64, 128)}),
        },
    },
    "cogvlm": {
        "config": {
            **FLAT, "architectures": ["CogVLMForCausalLM"],
            "vision_config": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4,
                              "num_heads": 2, "image_size": 56, "patch_size": 14,
                              "layer_norm_eps": 1e-6, "num_positions": 17},
        },
        "preprocessor": HALVES, "tensors": COGVLM,
    },
    "janus-pro": {
        "config": {
            "architectures": ["JanusForConditionalGeneration"], "model_type": "janus",
            "text_config": {**TEXT, "model_type": "llama"},
            "vision_config": {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2,
                              "image_size": 56, "patch_size": 14, "mlp_ratio": 2.0,
                              "model_type": "janus_vision_model"},
        },
        "preprocessor": HALVES,
        "tensors": {
            **{name.replace("out_proj", "projection_layer"): shape
               for name, shape in siglip("model.vision_model.").items()},
            **both({"model.aligner.fc1": (64, 32), "model.aligner.hidden_layers.0": (64, 64)}),
            "model.vqmodel.quantize.embedding.weight": (9, 8),
        },
    },
    "youtu-vl": {
        "config": {
            **FLAT, "architectures": ["YoutuVLForConditionalGeneration"], "model_type": "youtu_vl",
            "vision_config": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4,
                              "num_attention_heads": 2, "patch_size": 14, "window_size": 112,
                              "fullatt_block_indexes": [1, 3]},
        },
        "preprocessor": HALVES,
        "tensors": {
            **{name: shape for name, shape in siglip("siglip2.vision_model.").items()
               if "position" not in name},
            **both({"merger.ln_q": (32,), "merger.mlp.0": (128, 128), "merger.mlp.2": (64, 128)}),
        },
    },
    "hunyuan-vl": {
        "config": {
            **FLAT, "architectures": ["HunYuanVLForConditionalGeneration"],
            "model_type": "hunyuan_vl",
            "vision_config": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4,
                              "num_attention_heads": 2, "patch_size": 14, "max_image_size": 512,
                              "rms_norm_eps": 1e-5},
        },
        "preprocessor": PIXELS, "tensors": HUNYUAN,
    },
    "minicpmv4_6": {
        "config": {
            "architectures": ["MiniCPMV4_6ForConditionalGeneration"], "model_type": "minicpmv4_6",
            "text_config": TEXT, "vision_config": {**VISION, "image_size": 980},
            "insert_layer_id": 2,
        },
        "preprocessor": {**HALVES, "scale_resolution": 448},
        "tensors": {
            **siglip("model.vision_tower."),
            **under("model.vision_tower.vit_merger.", both({
                "layer_norm1": (32,), **{f"self_attn.{n}_proj": (32, 32) for n in ("q", "k", "v")},
                "self_attn.out_proj": (32, 32), "pre_norm": (128,), "linear_1": (64, 128),
                "linear_2": (32, 64),
            })),
            **both({"model.merger.mlp.0.pre_norm": (128,), "model.merger.mlp.0.linear_1": (64, 128),
                    "model.merger.mlp.0.linear_2": (64, 64)}),
            "model.language_model.embed_tokens.weight": (64, 64),
        },
    },
}  # fmt: skip
