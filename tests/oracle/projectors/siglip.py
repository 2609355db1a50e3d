"""The projectors of models that see with SigLIP."""

from __future__ import annotations

from typing import Any

HALVES = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
VISION = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
          "num_attention_heads": 2, "image_size": 56, "patch_size": 14}  # fmt: skip
TEXT = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 64}  # fmt: skip


def siglip(prefix: str, *, patch: int = 14, positions: int = 16) -> dict[str, tuple[int, ...]]:
    """Return the tensors of the encoder."""
    layer = "encoder.layers.{i}."
    both = {
        f"{layer}layer_norm1": (32,), f"{layer}layer_norm2": (32,),
        **{f"{layer}self_attn.{name}_proj": (32, 32) for name in ("q", "k", "v", "out")},
        f"{layer}mlp.fc1": (64, 32), f"{layer}mlp.fc2": (32, 64), "post_layernorm": (32,),
    }  # fmt: skip
    return {
        f"{prefix}embeddings.patch_embedding.weight": (32, 3, patch, patch),
        f"{prefix}embeddings.patch_embedding.bias": (32,),
        f"{prefix}embeddings.position_embedding.weight": (positions, 32),
        **{f"{prefix}{name}.weight": shape for name, shape in both.items()},
        **{f"{prefix}{name}.bias": shape[:1] for name, shape in both.items()},
    }


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
                              "num_attention_heads": 2, "num_hidden_layers": 2,
                              "model_type": "idefics3_vision"},
        },
        "preprocessor": HALVES, "processor": {"image_seq_len": 169},
        "tensors": {
            **siglip("model.vision_model.", patch=32, positions=4),
            "model.connector.modality_projection.proj.weight": (64, 128),
        },
    },
}  # fmt: skip
