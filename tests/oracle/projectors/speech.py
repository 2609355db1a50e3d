"""The projectors of Granite Speech and LFM2 Audio, with batch norms."""

from __future__ import annotations

from typing import Any

from projectors.shapes import TEXT, NamedShapes, both, under, weights

NORMS = ("weight", "bias", "running_mean", "running_var")


def batch_norm(width: int) -> NamedShapes:
    """Return the batch norm of a layer."""
    names: NamedShapes = {f"conv.batch_norm.{name}": (width,) for name in NORMS}
    return {**names, "conv.batch_norm.num_batches_tracked": ()}


ENCODER: NamedShapes = {
    **both({"input_linear": (32, 16), "out": (24, 32), "out_mid": (32, 24)}),
    **under("layers.{i}.", {
        **both({
            **{f"ff{n}.pre_norm": (32,) for n in (1, 2)},
            **{f"ff{n}.up_proj": (64, 32) for n in (1, 2)},
            **{f"ff{n}.down_proj": (32, 64) for n in (1, 2)},
            "attn.pre_norm": (32,), "attn.to_out": (32, 32), "conv.norm": (32,),
            "conv.up_conv": (128, 32, 1), "conv.down_conv": (32, 64, 1), "post_norm": (32,),
        }),
        **weights({"attn.to_q": (32, 32), "attn.to_kv": (64, 32), "attn.rel_pos_emb": (17, 16),
                   "conv.depth_conv.conv": (64, 1, 5)}),
        **batch_norm(64),
    }),
}  # fmt: skip


LIQUID: NamedShapes = {
    **under("conformer.layers.{i}.", {
        **both({
            **{f"norm_{name}": (32,)
               for name in ("feed_forward1", "feed_forward2", "self_att", "conv", "out")},
            **{f"feed_forward{n}.linear1": (128, 32) for n in (1, 2)},
            **{f"feed_forward{n}.linear2": (32, 128) for n in (1, 2)},
            **{f"self_attn.linear_{name}": (32, 32) for name in ("q", "k", "v", "out")},
            "conv.pointwise_conv1": (64, 32, 1), "conv.pointwise_conv2": (32, 32, 1),
            "conv.depthwise_conv": (32, 1, 9),
        }),
        "self_attn.linear_pos.weight": (32, 32), "self_attn.pos_bias_u": (2, 16),
        "self_attn.pos_bias_v": (2, 16), **batch_norm(32),
    }),
    **both({
        "conformer.pre_encode.conv.0": (32, 1, 3, 3), "conformer.pre_encode.conv.2": (32, 1, 3, 3),
        "conformer.pre_encode.conv.3": (32, 32, 1, 1), "conformer.pre_encode.conv.5": (32, 1, 3, 3),
        "conformer.pre_encode.conv.6": (32, 32, 1, 1), "conformer.pre_encode.out": (32, 64),
        "audio_adapter.model.0": (32,), "audio_adapter.model.1": (64, 32),
        "audio_adapter.model.3": (64, 64),
    }),
    **weights({"audio_embedding.embedding": (16, 64), "audio_embedding.embedding_norm": (64,),
               "audio_embedding.to_logits": (16, 64), "lfm.embed_tokens": (64, 64),
               "depth_linear": (64, 64), "depth_embeddings.0.embedding": (16, 64)}),
    "audio_loss_weights": (8,), "codebook_offsets": (8,),
}  # fmt: skip


def qformer(prefix: str, width: int, source: int) -> NamedShapes:
    """Return a layer of a Q-Former that reads embeddings of the width `source`."""
    names: NamedShapes = {
        "intermediate_query.dense": (96, width), "output_query.dense": (width, 96),
        "output_query.LayerNorm": (width,),
    }  # fmt: skip
    for part, read in (("attention", width), ("crossattention", source)):
        names[f"{part}.attention.query"] = (width, width)
        names[f"{part}.attention.key"] = (width, read)
        names[f"{part}.attention.value"] = (width, read)
        names[f"{part}.output.dense"] = (width, width)
        names[f"{part}.output.LayerNorm"] = (width,)
    return under(prefix, both(names))


def speech(name: str, width: int, layers: int = 1, **encoder: Any) -> dict[str, Any]:
    """Return a case of a class whose projector reads embeddings of a width.

    With one layer, PyTorch's square roots are the nearest floats, as those of F16 always are: of
    MKL's, which it uses, one in 170 is the next float.
    """
    return {
        "config": {
            "architectures": [name], "model_type": "granite_speech",
            "text_config": {**TEXT, "model_type": "granite"},
            "encoder_config": {
                "hidden_dim": 32, "num_layers": layers, "num_heads": 2, "dim_head": 16,
                "input_dim": 16, "feedforward_mult": 2, "conv_kernel_size": 5,
                "conv_expansion_factor": 2,
                "context_size": 8, "max_pos_emb": 8, "output_dim": 24, **encoder,
            },
            "projector_config": {"hidden_size": 48, "num_hidden_layers": layers,
                                 "num_attention_heads": 4, "intermediate_size": 96,
                                 "encoder_hidden_size": width,
                                 "model_type": "blip_2_qformer"},
            "window_size": 15, "downsample_rate": 5,
        },
        "layers": layers,
        "tensors": {
            **under("encoder.", ENCODER), "projector.query": (1, 3, 48),
            **qformer("projector.qformer.encoder.layer.{i}.", 48, width),
            **both({"projector.qformer.layernorm": (48,), "projector.linear": (64, 48)}),
            "language_model.model.embed_tokens.weight": (64, 64),
        },
    }  # fmt: skip


CASES: dict[str, dict[str, Any]] = {
    "granite-speech": speech("GraniteSpeechForConditionalGeneration", 32),
    "granite-speech-f16": {
        **speech("GraniteSpeechForConditionalGeneration", 32, layers=2),
        "dtype": "float16",
    },
    "granite-speech-plus": speech(
        "GraniteSpeechPlusForConditionalGeneration", 64, cat_hidden_layers=[2]
    ),
    "lfm2-audio": {
        "config": {
            "architectures": ["Lfm2AudioForConditionalGeneration"], "model_type": "lfm2_audio",
            "lfm": {**TEXT, "model_type": "lfm2"},
            "encoder": {"d_model": 32, "n_heads": 2, "n_layers": 7, "feat_in": 64,
                        "ff_expansion_factor": 4, "subsampling_factor": 8, "feat_out": -1},
        },
        "layers": 7, "dtype": "float16", "tensors": LIQUID,
    },
}  # fmt: skip
