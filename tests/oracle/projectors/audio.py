"""The projectors of models that hear."""

from __future__ import annotations

from typing import Any

from projectors.shapes import TEXT, both, weights, whisper

EARS = {"d_model": 32, "encoder_layers": 4, "encoder_attention_heads": 2, "encoder_ffn_dim": 64,
        "num_mel_bins": 16, "max_source_positions": 24}  # fmt: skip
NEW_EARS = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2,
            "intermediate_size": 64, "num_mel_bins": 16, "max_source_positions": 24}  # fmt: skip
LANGUAGE = {"language_model.model.embed_tokens.weight": (64, 64)}
TWO = {"multi_modal_projector.linear_1": (64, 128), "multi_modal_projector.linear_2": (64, 64)}
CASES: dict[str, dict[str, Any]] = {
    "qwen2audio": {
        "config": {
            "architectures": ["Qwen2AudioForConditionalGeneration"], "model_type": "qwen2_audio",
            "text_config": {**TEXT, "model_type": "qwen2"}, "audio_config": EARS,
        },
        "tensors": {**whisper("audio_tower."), **both({"multi_modal_projector.linear": (64, 32)}),
                    **LANGUAGE},
    },
    "voxtral": {
        "config": {
            "architectures": ["VoxtralForConditionalGeneration"], "model_type": "voxtral",
            "text_config": {**TEXT, "model_type": "llama"}, "audio_config": NEW_EARS,
        },
        "tensors": {**whisper("audio_tower."), **weights(TWO), **LANGUAGE},
    },
    "ultravox": {
        "config": {
            "architectures": ["UltravoxModel"], "model_type": "ultravox", "hidden_size": 64,
            "stack_factor": 8, "text_model_id": "llama",
            "audio_config": {**EARS, "model_type": "whisper", "num_hidden_layers": 4},
        },
        "tensors": {
            **whisper("audio_tower."),
            **weights({**TWO, "multi_modal_projector.ln_pre": (256,),
                       "multi_modal_projector.ln_mid": (64,)}),
        },
    },
    "audioflamingo3": {
        "config": {
            "architectures": ["AudioFlamingo3ForConditionalGeneration"],
            "model_type": "audioflamingo3", "text_config": {**TEXT, "model_type": "qwen2"},
            "audio_config": NEW_EARS,
        },
        "tensors": {**whisper("audio_tower."), **both(TWO), **LANGUAGE},
    },
    "meralion2": {
        "config": {
            "architectures": ["MERaLiON2ForConditionalGeneration"], "model_type": "meralion2",
            "text_config": {**TEXT, "model_type": "gemma2"}, "speech_config": EARS,
            "speech_mlp_scale_factor": 3,
        },
        "tensors": {
            **whisper("speech_encoder."),
            **both({"ln_speech": (32,), "speech_audio_adapter.mlp_adapter.0": (64, 96),
                    "speech_audio_adapter.gate_proj": (64, 64),
                    "speech_audio_adapter.pool_proj": (64, 64),
                    "speech_audio_adapter.out_proj": (64, 64)}),
            "text_decoder.model.embed_tokens.weight": (64, 64),
        },
    },
}  # fmt: skip
