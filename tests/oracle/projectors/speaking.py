"""The projectors of Pocket TTS, whose checkpoint has no config.json, and of Qwen 3 TTS."""

from __future__ import annotations

from typing import Any

from projectors.shapes import NamedShapes, both, under, weights

STAGES = ((1, 3, "conv", "encoder"), (3, 2, "convtr", "decoder"))
TRANSFORMER: NamedShapes = {
    **both({"norm1": (64,), "norm2": (64,)}),
    **weights({"self_attn.in_proj": (192, 64), "self_attn.out_proj": (64, 64),
               "linear1": (96, 64), "linear2": (64, 96)}),
    "layer_scale_1.scale": (64,), "layer_scale_2.scale": (64,),
}  # fmt: skip
MIMI: NamedShapes = {
    **under("encoder_transformer.transformer.layers.{i}.", TRANSFORMER),
    **under("decoder_transformer.transformer.layers.{i}.", TRANSFORMER),
    **both({
        f"{side}.model.{place}": (16, 16, 3) for first, scale, conv, side in STAGES
        for place in ("0.conv", "11.conv", *(f"{scale + 3 * n}.{conv}" for n in range(3)),
                   *(f"{first + 3 * n}.block.{m}.conv" for n in range(3) for m in (1, 3)))
    }),
    **weights({"downsample.conv.conv": (64, 64, 4), "upsample.convtr.convtr": (64, 1, 4),
               "quantizer.output_proj": (64, 32, 1), "quantizer.input_proj": (32, 64, 1)}),
}  # fmt: skip
FLOW: NamedShapes = {
    **both({"input_proj": (64, 32), "cond_embed": (64, 128), "final_layer.linear": (32, 64),
            "final_layer.adaLN_modulation.1": (128, 64)}),
    **under("time_embed.{i}.", {**both({"mlp.0": (64, 16), "mlp.2": (64, 64)}), "freqs": (8,),
                                "mlp.3.alpha": (64,)}),
    **under("res_blocks.{i}.", both({"in_ln": (64,), "mlp.0": (64, 64), "mlp.2": (64, 64),
                                     "adaLN_modulation.1": (192, 64)})),
}  # fmt: skip
SPEAKING: NamedShapes = {
    **under("flow_lm.", {
        **under("flow_net.", FLOW), **both({"out_norm": (128,), "out_eos": (1, 128)}),
        **weights({"conditioner.embed": (17, 128), "input_linear": (128, 32)}),
        **under("transformer.layers.{i}.", weights({"norm1": (128,), "linear1": (256, 128)})),
        "speaker_proj_weight": (128, 64), "emb_mean": (32,), "emb_std": (32,), "bos_emb": (32,),
    }),
    **under("mimi.", MIMI),
}  # fmt: skip
SNAKE: NamedShapes = {"alpha": (16,), "beta": (16,)}
# The published decoder has F32 only.
DECODER: NamedShapes = {
    **{f"quantizer.rvq_{name}.{side}.weight": (32, 32, 1)
       for name in ("first", "rest") for side in ("input_proj", "output_proj")},
    **{f"quantizer.rvq_{name}.vq.layers.{n}._codebook.{kind}": shape
       for name, count in (("first", 1), ("rest", 15)) for n in range(count)
       for kind, shape in (("embedding_sum", (24, 32)), ("cluster_usage", (24,)),
                           ("initialized", (1,)))},
    **both({"pre_conv.conv": (64, 32, 3), "pre_transformer.input_proj": (32, 64),
            "pre_transformer.output_proj": (64, 32)}),
    **weights({"pre_transformer.norm": (32,)}),
    **under("pre_transformer.layers.{i}.", {
        **weights({"input_layernorm": (32,), "post_attention_layernorm": (32,),
                   "self_attn.q_proj": (64, 32), "self_attn.k_proj": (64, 32),
                   "self_attn.v_proj": (64, 32), "self_attn.o_proj": (32, 64),
                   "mlp.gate_proj": (96, 32), "mlp.up_proj": (96, 32), "mlp.down_proj": (32, 96)}),
        "self_attn_layer_scale.scale": (32,), "mlp_layer_scale.scale": (32,),
    }),
    **{name: shape for n in (0, 1) for name, shape in under(f"upsample.{n}.", {
        **both({"0.conv": (64, 64, 2), "1.dwconv.conv": (64, 1, 7), "1.norm": (64,),
                "1.pwconv1": (128, 64), "1.pwconv2": (64, 128)}), "1.gamma": (64,),
    }).items()},
    **both({"decoder.0.conv": (32, 64, 7), "decoder.6.conv": (1, 16, 7)}),
    **under("decoder.5.", SNAKE),
}  # fmt: skip
for _block in range(1, 5):
    DECODER |= under(f"decoder.{_block}.block.", {
        **under("0.", SNAKE), **both({"1.conv": (16, 32, 4)}),
        **{name: shape for unit in (2, 3, 4) for act in (1, 2)
           for name, shape in {**under(f"{unit}.act{act}.", SNAKE),
                               **both({f"{unit}.conv{act}.conv": (16, 16, 7)})}.items()},
    })  # fmt: skip
HEARD: NamedShapes = under("speaker_encoder.", both({
    "blocks.0.conv": (32, 128, 5), "mfa.conv": (96, 96, 1), "asp.conv": (96, 16, 1),
    "asp.tdnn.conv": (16, 288, 1), "fc": (64, 192, 1),
    **{f"blocks.{n}.{name}": shape for n in (1, 2, 3) for name, shape in {
        "tdnn1.conv": (32, 32, 1), "tdnn2.conv": (32, 32, 1), "se_block.conv1": (8, 32, 1),
        "se_block.conv2": (32, 8, 1),
        **{f"res2net_block.blocks.{m}.conv": (4, 4, 3) for m in range(7)},
    }.items()},
}))  # fmt: skip
PREDICTED: NamedShapes = under("talker.", {
    "model.codec_embedding.weight": (40, 64), "model.norm.weight": (64,),
    **under("code_predictor.", {
        **both({"small_to_mtp_projection": (32, 64)}), **weights({"model.norm": (32,)}),
        **{f"{name}.{n}.weight": (24, width) for n in range(15)
           for name, width in (("model.codec_embedding", 64), ("lm_head", 32))},
        **under("model.layers.{i}.", weights({
            "input_layernorm": (32,), "post_attention_layernorm": (32,),
            "self_attn.q_proj": (64, 32), "self_attn.k_proj": (32, 32),
            "self_attn.v_proj": (32, 32), "self_attn.o_proj": (32, 64),
            "self_attn.q_norm": (16,), "self_attn.k_norm": (16,),
            "mlp.gate_proj": (96, 32), "mlp.up_proj": (96, 32), "mlp.down_proj": (32, 96),
        })),
    }),
})  # fmt: skip
CODE = {"hidden_size": 32, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-6}  # fmt: skip
QWEN: dict[str, Any] = {
    "config": {
        "architectures": ["Qwen3TTSForConditionalGeneration"], "model_type": "qwen3_tts",
        "talker_config": {"hidden_size": 64, "code_predictor_config": CODE},
        "speaker_encoder_config": {"enc_dim": 64, "sample_rate": 24000},
    },
    "layers": 2, "tensors": {**HEARD, **PREDICTED},
    "folders": {"speech_tokenizer": {
        "config": {"decoder_config": {"num_hidden_layers": 8, "upsampling_ratios": [2, 2],
                                      "upsample_rates": [8, 5, 4, 3]}},
        "layers": 8, "dtype": "float32", "tensors": under("decoder.", DECODER),
    }},
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "pocket-tts": {"class": "PocketTTSModel", "layers": 2, "tensors": SPEAKING},
    "qwen3-tts": QWEN,
}
