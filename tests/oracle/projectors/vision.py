"""The projectors of other models that see."""

from __future__ import annotations

from typing import Any

from projectors.shapes import HALVES, TEXT, VISION, NamedShapes, both, under, weights

PIXELS = {**HALVES, "min_pixels": 3136, "max_pixels": 11289600}
PIXTRAL: NamedShapes = {
    **weights({
        "vision_tower.patch_conv": (32, 3, 14, 14), "vision_tower.ln_pre": (32,),
        "multi_modal_projector.norm": (32,),
        "multi_modal_projector.patch_merger.merging_layer": (32, 128),
        "multi_modal_projector.linear_1": (64, 32), "multi_modal_projector.linear_2": (64, 64),
    }),
    **under("vision_tower.transformer.layers.{i}.", weights({
        "attention_norm": (32,), "ffn_norm": (32,),
        **{f"attention.{name}_proj": (32, 32) for name in "qkvo"},
        "feed_forward.gate_proj": (64, 32), "feed_forward.up_proj": (64, 32),
        "feed_forward.down_proj": (32, 64),
    })),
}  # fmt: skip
# The converter finds the embedding of [IMG_BREAK] only under this name.
EMBEDDINGS: NamedShapes = {"model.embed_tokens.weight": (64, 64)}
BREAK = {"tokenizer_config.json": {"added_tokens_decoder": {"12": {"content": "[IMG_BREAK]"}}}}
INTERNVL: NamedShapes = {
    **under("vision_model.encoder.layers.{i}.", both({
        "norm1": (32,), "attn.qkv": (96, 32), "attn.proj": (32, 32), "norm2": (32,),
        "mlp.fc1": (64, 32), "mlp.fc2": (32, 64),
    })),
    "vision_model.encoder.layers.{i}.ls1": (32,), "vision_model.encoder.layers.{i}.ls2": (32,),
    "vision_model.encoder.layers.{i}.attn.q_norm.weight": (32,),
    "vision_model.encoder.layers.{i}.attn.k_norm.weight": (32,),
    "vision_model.embeddings.class_embedding": (1, 1, 32),
    "vision_model.embeddings.position_embedding": (1, 17, 32),
    **both({"vision_model.embeddings.patch_embedding": (32, 3, 14, 14), "mlp1.0": (128,),
            "mlp1.1": (64, 128), "mlp1.3": (64, 64)}),
    "language_model.model.embed_tokens.weight": (64, 64),
}  # fmt: skip
LLAMA4: NamedShapes = {
    **under("vision_model.model.layers.{i}.", both({
        "input_layernorm": (32,), "post_attention_layernorm": (32,),
        **{f"self_attn.{name}_proj": (32, 32) for name in "qkvo"},
        "mlp.fc1": (64, 32), "mlp.fc2": (32, 64),
    })),
    **both({"vision_model.layernorm_pre": (32,), "vision_model.layernorm_post": (32,)}),
    **weights({
        "vision_model.patch_embedding.linear": (32, 588),
        "vision_model.vision_adapter.mlp.fc1": (48, 128),
        "vision_model.vision_adapter.mlp.fc2": (48, 48), "multi_modal_projector.linear_1": (64, 48),
    }),
    "vision_model.class_embedding": (32,), "vision_model.positional_embedding_vlm": (17, 32),
    "language_model.model.embed_tokens.weight": (64, 64),
}  # fmt: skip
KIMI: NamedShapes = {
    **under("vision_tower.encoder.blocks.{i}.", both({
        "norm0": (32,), "wqkv": (96, 32), "wo": (32, 32), "norm1": (32,), "mlp.fc0": (64, 32),
        "mlp.fc1": (32, 64),
    })),
    **both({
        "vision_tower.patch_embed.proj": (32, 3, 14, 14),
        "vision_tower.encoder.final_layernorm": (32,), "multi_modal_projector.pre_norm": (32,),
        "multi_modal_projector.linear_1": (128, 128), "multi_modal_projector.linear_2": (64, 128),
    }),
    "vision_tower.patch_embed.pos_emb.weight": (6, 5, 32),
    "language_model.model.embed_tokens.weight": (64, 64),
}  # fmt: skip
GLM4V: NamedShapes = {
    **under("visual.blocks.{i}.", weights({
        "norm1": (32,), "attn.qkv": (96, 32), "attn.proj": (32, 32), "norm2": (32,),
        "mlp.gate_proj": (48, 32), "mlp.up_proj": (48, 32), "mlp.down_proj": (32, 48),
    })),
    **both({"visual.patch_embed.proj": (32, 3, 2, 14, 14), "visual.downsample": (64, 32, 2, 2),
            "visual.merger.post_projection_norm": (64,)}),
    **weights({
        "visual.embeddings.position_embedding": (16, 32), "visual.post_conv_layernorm": (32,),
        "visual.post_layernorm": (32,), "visual.merger.proj": (64, 64),
        "visual.merger.gate_proj": (96, 64), "visual.merger.up_proj": (96, 64),
        "visual.merger.down_proj": (64, 96),
    }),
}  # fmt: skip
DOTS: NamedShapes = {
    **under("vision_tower.blocks.{i}.", weights({
        "norm1": (32,), "attn.qkv": (96, 32), "attn.proj": (32, 32), "norm2": (32,),
        "mlp.fc1": (48, 32), "mlp.fc2": (32, 48), "mlp.fc3": (48, 32),
    })),
    "vision_tower.patch_embed.patchifier.proj.weight": (32, 3, 14, 14),
    "vision_tower.patch_embed.patchifier.proj.bias": (32,),
    "vision_tower.patch_embed.patchifier.norm.weight": (32,),
    "vision_tower.post_trunk_norm.weight": (32,),
    **both({"vision_tower.merger.ln_q": (32,), "vision_tower.merger.mlp.0": (128, 128),
            "vision_tower.merger.mlp.2": (64, 128)}),
    "model.layers.{i}.mlp.up_proj.weight": (96, 64),
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "pixtral": {
        "config": {
            "architectures": ["LlavaForConditionalGeneration"], "model_type": "llava",
            "text_config": {**TEXT, "model_type": "mistral"},
            "vision_config": {**VISION, "model_type": "pixtral", "head_dim": 16,
                              "hidden_act": "silu"},
        },
        "preprocessor": HALVES, "files": BREAK,
        "tensors": {**PIXTRAL, **EMBEDDINGS},
    },
    "mistral3": {
        "config": {
            "architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3",
            "text_config": {**TEXT, "model_type": "mistral"},
            "vision_config": {**VISION, "model_type": "pixtral", "head_dim": 16},
        },
        "preprocessor": HALVES, "files": BREAK, "tensors": {**PIXTRAL, **EMBEDDINGS},
    },
    "lighton-ocr": {
        "config": {
            "architectures": ["LightOnOCRForConditionalGeneration"], "model_type": "lightonocr",
            "spatial_merge_size": 2, "text_config": {**TEXT, "model_type": "qwen3"},
            "vision_config": {**VISION, "model_type": "pixtral", "hidden_act": "silu"},
        },
        "preprocessor": HALVES,
        "tensors": {
            **{name.replace("vision_tower.", "model.vision_encoder.")
               .replace("multi_modal_projector.", "model.vision_projection."): shape
               for name, shape in PIXTRAL.items()},
            "model.language_model.embed_tokens.weight": (64, 64),
        },
    },
    "internvl": {
        "config": {
            "architectures": ["InternVLChatModel"], "model_type": "internvl_chat",
            "llm_config": {**TEXT, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"},
            "vision_config": {**VISION, "architectures": ["InternVisionModel"],
                              "model_type": "intern_vit_6b", "hidden_act": "gelu",
                              "layer_norm_eps": 1e-6, "qk_normalization": True},
            "downsample_ratio": 0.5, "min_dynamic_patch": 1, "max_dynamic_patch": 12,
        },
        "preprocessor": HALVES, "tensors": INTERNVL,
    },
    "llama4": {
        "config": {
            "architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4",
            "text_config": {**TEXT, "model_type": "llama4_text"},
            "vision_config": {**VISION, "model_type": "llama4_vision_model",
                              "pixel_shuffle_ratio": 0.5},
        },
        "preprocessor": HALVES, "tensors": LLAMA4,
    },
    "kimivl": {
        "config": {
            "architectures": ["KimiVLForConditionalGeneration"], "model_type": "kimi_vl",
            "text_config": {**TEXT, "model_type": "deepseek_v3"},
            "vision_config": {**VISION, "model_type": "moonvit"},
        },
        "preprocessor": HALVES, "tensors": KIMI,
    },
    "glm4v": {
        "also": ["Glm4vMoeForConditionalGeneration", "GlmOcrForConditionalGeneration"],
        "config": {
            "architectures": ["Glm4vForConditionalGeneration"], "model_type": "glm4v",
            "text_config": {**TEXT, "model_type": "glm4v_text"},
            "vision_config": {"hidden_size": 32, "intermediate_size": 48, "depth": 4,
                              "num_heads": 2, "image_size": 56, "model_type": "glm4v"},
        },
        "preprocessor": HALVES, "tensors": GLM4V,
    },
    "dots-ocr": {
        "config": {
            **TEXT, "architectures": ["DotsOCRForCausalLM"], "model_type": "dots_ocr",
            "vision_config": {"hidden_size": 32, "embed_dim": 32, "intermediate_size": 48,
                              "num_hidden_layers": 4, "num_attention_heads": 2, "patch_size": 14,
                              "spatial_merge_size": 2, "rms_norm_eps": 1e-5},
        },
        "preprocessor": PIXELS, "tensors": DOTS,
    },
}  # fmt: skip
