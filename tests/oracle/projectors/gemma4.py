"""The projectors of Gemma 4, whose linear layers have limits."""

from __future__ import annotations

from typing import Any

from projectors.shapes import HALVES, TEXT, NamedShapes, both, under, weights

LIMITS = ("input_min", "input_max", "output_min", "output_max")


def clipped(names: NamedShapes) -> NamedShapes:
    """Return linear layers with their limits, which are numbers."""
    shapes: NamedShapes = {}
    for name, shape in names.items():
        shapes[f"{name}.linear.weight"] = shape
        shapes.update({f"{name}.{limit}": () for limit in LIMITS})
    return shapes


EYES: NamedShapes = {
    "patch_embedder.position_embedding_table": (2, 20, 32),
    "patch_embedder.input_proj.weight": (32, 588), "std_bias": (32,), "std_scale": (32,),
    **under("encoder.layers.{i}.", {
        **clipped({
            **{f"self_attn.{name}_proj": (32, 32) for name in "qkvo"},
            "mlp.gate_proj": (64, 32), "mlp.up_proj": (64, 32), "mlp.down_proj": (32, 64),
        }),
        **weights({
            "self_attn.q_norm": (16,), "self_attn.k_norm": (16,), "input_layernorm": (32,),
            "post_attention_layernorm": (32,), "pre_feedforward_layernorm": (32,),
            "post_feedforward_layernorm": (32,),
        }),
    }),
}  # fmt: skip
EARS: NamedShapes = {
    **weights({
        "subsample_conv_projection.layer0.conv": (128, 1, 3, 3),
        "subsample_conv_projection.layer0.norm": (128,),
        "subsample_conv_projection.layer1.conv": (32, 128, 3, 3),
        "subsample_conv_projection.layer1.norm": (32,),
        "subsample_conv_projection.input_proj_linear": (32, 64), "output_proj": (48, 32),
    }),
    "output_proj.bias": (48,),
    **under("layers.{i}.", {
        "self_attn.per_dim_scale": (16,),
        **clipped({
            **{f"feed_forward{n}.ffw_layer_1": (128, 32) for n in (1, 2)},
            **{f"feed_forward{n}.ffw_layer_2": (32, 128) for n in (1, 2)},
            **{f"self_attn.{name}_proj": (32, 32) for name in "qkv"},
            "self_attn.post": (32, 32), "lconv1d.linear_start": (64, 32),
            "lconv1d.linear_end": (32, 32),
        }),
        **weights({
            **{f"feed_forward{n}.{side}_layer_norm": (32,) for n in (1, 2)
               for side in ("pre", "post")},
            "self_attn.relative_k_proj": (32, 32), "lconv1d.depthwise_conv1d": (32, 1, 5),
            "lconv1d.pre_layer_norm": (32,), "lconv1d.conv_norm": (32,), "norm_pre_attn": (32,),
            "norm_post_attn": (32,), "norm_out": (32,),
        }),
    }),
}  # fmt: skip
VISION = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4,
          "num_attention_heads": 2, "patch_size": 14, "model_type": "gemma4_vision"}  # fmt: skip
SEEING = {
    **under("model.vision_tower.", EYES),
    "model.embed_vision.embedding_projection.weight": (64, 32),
    "model.language_model.embed_tokens.weight": (64, 64),
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "gemma4": {
        "config": {
            "architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4",
            "text_config": {**TEXT, "model_type": "gemma4_text"}, "vision_config": VISION,
            "audio_config": {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2,
                             "model_type": "gemma4_audio"},
        },
        "preprocessor": HALVES,
        "tensors": {**SEEING, **under("model.audio_tower.", EARS),
                    "model.embed_audio.embedding_projection.weight": (64, 48)},
    },
    "gemma4-deaf": {
        "config": {
            "architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4",
            "text_config": {**TEXT, "model_type": "gemma4_text"}, "vision_config": VISION,
            "audio_config": None,
        },
        "preprocessor": HALVES, "tensors": SEEING,
    },
    "gemma4-unified": {
        "config": {
            "architectures": ["Gemma4UnifiedForConditionalGeneration"],
            "model_type": "gemma4_unified",
            "text_config": {**TEXT, "model_type": "gemma4_unified_text"},
            "vision_config": {"mm_embed_dim": 32, "mm_posemb_size": 12, "patch_size": 4,
                              "pooling_kernel_size": 2, "model_patch_size": 8,
                              "model_type": "gemma4_unified_vision"},
            "audio_config": {"audio_embed_dim": 40, "model_type": "gemma4_unified_audio"},
        },
        "preprocessor": HALVES,
        "tensors": {
            **under("model.vision_embedder.", {
                **both({"patch_ln1": (192,), "patch_dense": (32, 192), "patch_ln2": (32,),
                        "pos_norm": (32,)}),
                "pos_embedding": (12, 2, 32),
            }),
            **weights({"model.embed_vision.embedding_projection": (64, 32),
                       "model.embed_audio.embedding_projection": (64, 40),
                       "model.language_model.embed_tokens": (64, 64)}),
        },
    },
}  # fmt: skip
