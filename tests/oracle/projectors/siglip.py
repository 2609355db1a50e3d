"""The projectors of models that see with SigLIP."""

from __future__ import annotations

from typing import Any

from projectors.shapes import HALVES, TEXT, VISION, both, weights


def siglip(prefix: str, *, patch: int = 14, positions: int = 16) -> dict[str, tuple[int, ...]]:
    """Return the tensors of the encoder."""
    layer = "encoder.layers.{i}."
    names = {
        f"{layer}layer_norm1": (32,), f"{layer}layer_norm2": (32,),
        **{f"{layer}self_attn.{name}_proj": (32, 32) for name in ("q", "k", "v", "out")},
        f"{layer}mlp.fc1": (64, 32), f"{layer}mlp.fc2": (32, 64), "post_layernorm": (32,),
        "embeddings.patch_embedding": (32, 3, patch, patch),
    }  # fmt: skip
    shapes = {**both(names), **weights({"embeddings.position_embedding": (positions, 32)})}
    return {f"{prefix}{name}": shape for name, shape in shapes.items()}


GEMMA3 = {
    "multi_modal_projector.mm_input_projection_weight": (32, 64),
    "multi_modal_projector.mm_soft_emb_norm.weight": (32,),
    "language_model.model.embed_tokens.weight": (64, 64),
}
CASES: dict[str, dict[str, Any]] = {
    "gemma3": {
        "config": {
            "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
            "text_config": {**TEXT, "model_type": "gemma3_text"},
            "vision_config": {**VISION, "model_type": "siglip_vision_model"},
        },
        "preprocessor": {**HALVES, "image_seq_length": 4},
        "tensors": {**siglip("vision_tower.vision_model."), **GEMMA3},
    },
    "gemma3-f16": {
        "dtype": "float16",
        "config": {
            "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
            "text_config": {**TEXT, "model_type": "gemma3_text"},
            "vision_config": {**VISION, "model_type": "siglip_vision_model", "image_size": 896},
        },
        "preprocessor": HALVES,
        "tensors": {**siglip("vision_tower.vision_model."), **GEMMA3},
    },
    "smolvlm": {
        "config": {
            "architectures": ["SmolVLMForConditionalGeneration"], "model_type": "smolvlm",
            "scale_factor": 4, "text_config": {**TEXT, "model_type": "llama"},
            "vision_config": {**VISION, "model_type": "smolvlm_vision"},
        },
        "preprocessor": {**HALVES, "size": {"longest_edge": 2048}},
        "tensors": {
            **siglip("model.vision_model."),
            "model.connector.modality_projection.proj.weight": (64, 512),
            "model.text_model.embed_tokens.weight": (64, 64), "lm_head.weight": (64, 64),
        },
    },
    "idefics3": {
        "config": {
            "architectures": ["Idefics3ForConditionalGeneration"], "model_type": "idefics3",
            "text_config": {**TEXT, "model_type": "llama"},
            "vision_config": {"hidden_size": 32, "intermediate_size": 64, "image_size": 64,
                              "num_attention_heads": 2, "num_hidden_layers": 4,
                              "model_type": "idefics3_vision"},
        },
        "preprocessor": HALVES, "processor": {"image_seq_len": 169},
        "tensors": {
            **siglip("model.vision_model.", patch=32, positions=4),
            "model.connector.modality_projection.proj.weight": (64, 128),
        },
    },
    "lfm2vl": {
        "config": {
            "architectures": ["Lfm2VlForConditionalGeneration"], "model_type": "lfm2_vl",
            "downsample_factor": 4, "text_config": {**TEXT, "model_type": "lfm2"},
            "vision_config": {**VISION, "model_type": "siglip2_vision_model", "patch_size": 16},
        },
        "preprocessor": HALVES,
        "tensors": {
            **{name: (32, 768) if "patch_embedding.w" in name else shape
               for name, shape in siglip("model.vision_tower.vision_model.").items()},
            **both({"model.multi_modal_projector.layer_norm": (128,),
                    "model.multi_modal_projector.linear_1": (96, 128),
                    "model.multi_modal_projector.linear_2": (64, 96)}),
            "model.language_model.embed_tokens.weight": (64, 64),
        },
    },
}  # fmt: skip
