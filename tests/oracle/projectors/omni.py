"""The projectors of Qwen 3 Omni and Qwen 3 ASR."""

from __future__ import annotations

from typing import Any

from projectors.qwen import DEEP, QWEN3, STACK
from projectors.shapes import HALVES, TEXT, NamedShapes, both, under, weights, whisper

EARS = {"d_model": 32, "encoder_layers": 4, "num_hidden_layers": 4, "encoder_attention_heads": 2,
        "encoder_ffn_dim": 64, "num_mel_bins": 16, "downsample_hidden_size": 24}  # fmt: skip
AUDIO: NamedShapes = {
    **{name: shape for name, shape in whisper("thinker.audio_tower.").items() if "layers" in name},
    **{f"thinker.audio_tower.layers.{{i}}.self_attn.k_proj.{kind}": shape
       for kind, shape in (("weight", (32, 32)), ("bias", (32,)))},
    **under("thinker.audio_tower.", {
        **both({"conv2d1": (24, 1, 3, 3), "conv2d2": (24, 24, 3, 3), "conv2d3": (24, 24, 3, 3),
                "ln_post": (32,), "proj1": (32, 32), "proj2": (64, 32)}),
        **weights({"conv_out": (32, 48)}),
    }),
}  # fmt: skip
# llama.cpp's converter does not find the encoder of pictures under its published name, which has
# "thinker." in front: see test_projector.py.
VISION: NamedShapes = {
    f"visual.{name}".replace("norm", "ln_q").replace("linear_fc1", "mlp.0")
    .replace("linear_fc2", "mlp.2").replace("deepstack_", "")
    if "merger" in name else f"visual.{name}": shape
    for name, shape in {
        **DEEP, **{name.replace("{i}", str(n)): shape for name, shape in STACK.items()
                   for n in range(3)},
    }.items()
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "qwen3omni": {
        "config": {
            "architectures": ["Qwen3OmniMoeForConditionalGeneration"],
            "model_type": "qwen3_omni_moe",
            "thinker_config": {
                "model_type": "qwen3_omni_moe_thinker",
                "text_config": {**TEXT, "model_type": "qwen3_omni_moe_text",
                                "rms_norm_eps": 1e-5},
                "audio_config": EARS,
                "vision_config": {**QWEN3, "deepstack_visual_indexes": [1, 3, 4]},
            },
        },
        "layers": 5, "preprocessor": HALVES,
        "tensors": {
            **{name.replace("{i}", str(n)) if "{i}" in name else name: shape
               for name, shape in AUDIO.items() for n in range(4)},
            **VISION,
            "thinker.model.embed_tokens.weight": (64, 64), "thinker.lm_head.weight": (64, 64),
            "talker.model.codec_embedding.weight": (16, 16),
        },
    },
    "qwen3asr": {
        "config": {
            "architectures": ["Qwen3ASRForConditionalGeneration"], "model_type": "qwen3_asr",
            "thinker_config": {"model_type": "qwen3_asr", "text_config": TEXT,
                               "audio_config": EARS},
        },
        "tensors": {**AUDIO, "thinker.model.embed_tokens.weight": (64, 64),
                    "thinker.lm_head.weight": (64, 64)},
    },
}  # fmt: skip
