"""The projector of Gemma 3n: MobileNet V5 and a conformer."""

from __future__ import annotations

from typing import Any

from projectors.shapes import TEXT, NamedShapes, under, weights

KINDS = {
    "conv_exp": (48, 32, 3, 3), "bn1": (48,), "conv_pwl": (32, 48, 1, 1), "bn2": (32,),
    "dw_start.conv": (32, 1, 5, 5), "dw_start.bn": (32,), "dw_mid.conv": (64, 1, 5, 5),
    "dw_mid.bn": (64,), "pw_exp.conv": (64, 32, 1, 1), "pw_exp.bn": (64,),
    "pw_proj.conv": (32, 64, 1, 1), "pw_proj.bn": (32,), "attn.query.proj": (64, 32, 1, 1),
    "attn.key.proj": (16, 32, 1, 1), "attn.value.proj": (16, 32, 1, 1),
    "attn.output.proj": (32, 64, 1, 1), "attn.key.down_conv": (32, 1, 3, 3),
    "attn.key.norm": (32,), "attn.value.down_conv": (32, 1, 3, 3), "attn.value.norm": (32,),
    "norm": (32,),
}  # fmt: skip
EYES: NamedShapes = {
    **under("blocks.{i}.0.", {**weights(KINDS), "layer_scale.gamma": (32,)}),
    **under("blocks.{i}.1.", {**weights(KINDS), "layer_scale.gamma": (32,)}),
    **weights({
        "conv_stem.conv": (32, 3, 3, 3), "conv_stem.bn": (32,), "msfa.ffn.pw_exp.conv":
        (64, 32, 1, 1), "msfa.ffn.pw_exp.bn": (64,), "msfa.ffn.pw_proj.conv": (32, 64, 1, 1),
        "msfa.ffn.pw_proj.bn": (32,), "msfa.norm": (32,),
    }),
    "conv_stem.conv.bias": (32,),
}  # fmt: skip
# Published checkpoints also have norms after the convolutions, for which llama.cpp's converter has
# no names: see test_projector.py.
EARS: NamedShapes = {
    **under("conformer.{i}.", {
        **weights({
            **{f"ffw_layer_{side}.{name}_layer_norm": (32,)
               for side in ("start", "end") for name in ("pre", "post")},
            **{f"ffw_layer_{side}.ffw_layer_1": (128, 32) for side in ("start", "end")},
            **{f"ffw_layer_{side}.ffw_layer_2": (32, 128) for side in ("start", "end")},
            **{f"attention.attn.{name}_proj": (32, 32) for name in "qkv"},
            "attention.attn.relative_position_embedding.pos_proj": (32, 32),
            "attention.pre_attn_norm": (32,), "attention.post": (32, 32),
            "attention.post_norm": (32,), "lconv1d.pre_layer_norm": (32,),
            "lconv1d.linear_start": (64, 32), "lconv1d.depthwise_conv1d": (32, 1, 5),
            "lconv1d.conv_norm": (32,), "lconv1d.linear_end": (32, 32), "norm": (32,),
        }),
        "attention.attn.per_dim_scale": (16,),
    }),
    **weights({
        "subsample_conv_projection.conv_0.conv": (16, 1, 3, 3),
        "subsample_conv_projection.conv_1.conv": (8, 16, 3, 3),
        "subsample_conv_projection.input_proj_linear": (32, 64),
    }),
}  # fmt: skip
EMBEDDER: NamedShapes = weights({
    "embedding": (8, 32), "hard_embedding_norm": (32,), "soft_embedding_norm": (32,),
    "embedding_projection": (64, 32),
})  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "gemma3n": {
        "config": {
            "architectures": ["Gemma3nForConditionalGeneration"], "model_type": "gemma3n",
            "text_config": {**TEXT, "model_type": "gemma3n_text"},
            "vision_config": {"hidden_size": 32, "architecture": "mobilenetv5_300m_enc",
                              "model_type": "gemma3n_vision"},
            "audio_config": {"hidden_size": 32, "conf_num_attention_heads": 2,
                             "conf_num_hidden_layers": 4, "input_feat_size": 32,
                             "model_type": "gemma3n_audio"},
        },
        "preprocessor": {"size": {"height": 512, "width": 512}, "image_seq_length": 256},
        "tensors": {
            **under("model.vision_tower.timm_model.", EYES), **under("model.audio_tower.", EARS),
            **under("model.embed_vision.", EMBEDDER), **under("model.embed_audio.", EMBEDDER),
            "model.language_model.embed_tokens.weight": (64, 64),
        },
    },
}  # fmt: skip
