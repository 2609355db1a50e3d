"""The projector of Pocket TTS, which speaks; its checkpoint has no config.json."""

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
        f"{side}.model.{at}": (16, 16, 3) for first, scale, conv, side in STAGES
        for at in ("0.conv", "11.conv", *(f"{scale + 3 * n}.{conv}" for n in range(3)),
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
CASES: dict[str, dict[str, Any]] = {
    "pocket-tts": {"class": "PocketTTSModel", "layers": 2, "tensors": SPEAKING},
}
