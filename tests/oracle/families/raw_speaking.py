"""The cases of text models that speak: their embeddings hold layers that came after these.

The layers and what they multiply are whole numbers, so that sums are exact in any order; SiLU gets
multiples of 128, which it leaves as they are or makes zero.
"""

from __future__ import annotations

from typing import Any

from raw_shapes import FEED_FORWARD, NORMS, Names, heads, raw

CASES: dict[str, Any] = {}
TALKER: Names = {
    **NORMS, **FEED_FORWARD, **heads(32), "model.norm.weight": (64,),
    "model.layers.{i}.self_attn.q_proj.weight": (128, 64),
    "model.layers.{i}.self_attn.k_proj.weight": (64, 64),
    "model.layers.{i}.self_attn.v_proj.weight": (64, 64),
    "model.layers.{i}.self_attn.o_proj.weight": (64, 128),
    "model.text_embedding.weight": ((416, 48), "whole"),
    "text_projection.linear_fc1.weight": ((80, 48), "steps"),
    "text_projection.linear_fc1.bias": ((80,), "steps"),
    "text_projection.linear_fc2.weight": ((64, 80), "whole"),
    "text_projection.linear_fc2.bias": ((64,), "whole"),
    "model.codec_embedding.weight": (3072, 64), "codec_head.weight": (3072, 64),
    "code_predictor.lm_head.0.weight": (32, 64),
}  # fmt: skip
# In the order of the file; the prefix of each part is that of the published checkpoint.
SPEAKING: Names = {
    **{f"talker.{name}": shape for name, shape in TALKER.items()},
    "speaker_encoder.fc.weight": (64, 8, 1),
}
TEXT = {
    "vocab_size": 3072, "text_vocab_size": 416, "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1000000, "text_hidden_size": 48,
    "max_position_embeddings": 512, "model_type": "qwen3_tts_talker", "codec_bos_id": 1090,
    "codec_eos_token_id": 1091, "codec_pad_id": 1092, "spk_id": {"anna": 1080},
    "codec_language_id": {"english": 1050, "chinese": 1055},
    "rope_scaling": {"rope_type": "default", "mrope_section": [6, 5, 5], "interleaved": True},
}  # fmt: skip
LAYER: Names = {
    "norm1.weight": (128,), "norm1.bias": (128,), "norm2.weight": (128,), "norm2.bias": (128,),
    "self_attn.in_proj.weight": (384, 128), "self_attn.out_proj.weight": (128, 128),
    "linear1.weight": (160, 128), "linear2.weight": (128, 160),
}  # fmt: skip
POCKET: Names = {
    "flow_lm.conditioner.embed.weight": (170, 128),
    "flow_lm.bos_emb": ((32,), "whole"), "flow_lm.input_linear.weight": ((128, 32), "whole"),
    "flow_lm.out_norm.weight": (128,), "flow_lm.out_norm.bias": (128,),
    **{f"flow_lm.transformer.layers.{{i}}.{name}": shape for name, shape in LAYER.items()},
    # Of the projector, which tells how wide its layers are.
    "flow_lm.emb_mean": (32,), "mimi.encoder_transformer.transformer.layers.0.norm1.weight": (64,),
    "mimi.encoder_transformer.transformer.layers.0.linear1.weight": (96, 64),
}  # fmt: skip
RAW = {
    "qwen3-tts": {
        **raw("Qwen3TTSForConditionalGeneration", SPEAKING, vocabulary="talking"),
        "config": {"architectures": ["Qwen3TTSForConditionalGeneration"],
                   "model_type": "qwen3_tts", "talker_config": TEXT},
    },
    "pocket-tts": {"vocabulary": "voice", "tensors": POCKET, "config": None},
    "pocket-tts-voice": {
        "vocabulary": "voice", "config": None,
        "tensors": {**POCKET, "flow_lm.bos_before_voice": (1, 1, 128)},
    },
}  # fmt: skip
