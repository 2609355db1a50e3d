"""The projectors of models that both see and hear: Nemotron's, dots3-note's and MiMo's."""

from __future__ import annotations

from typing import Any

from projectors.qwen import BLOCKS, GATED, MERGER
from projectors.shapes import HALVES, TEXT, NamedShapes, both, under, weights

# The converter takes RADIO's size for granted: 32 layers of 1280 channels.
RADIO: NamedShapes = {
    **under("vision_model.radio_model.model.", {
        **under("blocks.{i}.", both({
            "norm1": (32,), "norm2": (32,), "attn.qkv": (96, 32), "attn.proj": (32, 32),
            "mlp.fc1": (64, 32), "mlp.fc2": (32, 64),
        })),
        "patch_generator.cls_token.token": (10, 32), "patch_generator.pos_embed": (1, 144, 1280),
        "patch_generator.embedder.weight": (1280, 48),
        "patch_generator.video_embedder.weight": (1280, 96),
    }),
    "vision_model.radio_model.input_conditioner.norm_mean": (3, 1, 1),
    **weights({"mlp1.0": (128,), "mlp1.1": (64, 128), "mlp1.3": (64, 64),
               "language_model.backbone.embeddings": (64, 64)}),
}  # fmt: skip
SEEING = {
    "architectures": ["NemotronH_Nano_VL_V2"], "model_type": "NemotronH_Nano_VL_V2",
    "force_image_size": 32, "downsample_ratio": 0.5, "llm_config": TEXT,
    "vision_config": {"architectures": ["RADIOModel"], "model_type": "", "patch_size": 4},
}  # fmt: skip
PARAKEET: NamedShapes = {
    **under("sound_encoder.encoder.", {
        **under("layers.{i}.", {
            **both({f"norm_{n}": (32,) for n in
                    ("feed_forward1", "feed_forward2", "self_att", "conv", "out")}),
            **weights({f"feed_forward{n}.linear1": (64, 32) for n in (1, 2)}),
            **weights({f"feed_forward{n}.linear2": (32, 64) for n in (1, 2)}),
            **weights({f"self_attn.{n}_proj": (32, 32)
                       for n in ("q", "k", "v", "o", "relative_k")}),
            "self_attn.bias_u": (2, 16), "self_attn.bias_v": (2, 16),
            **both({"conv.pointwise_conv1": (64, 32, 1), "conv.depthwise_conv": (32, 1, 9),
                    "conv.pointwise_conv2": (32, 32, 1), "conv.norm": (32,)}),
            "conv.norm.running_mean": (32,), "conv.norm.running_var": (32,),
            "conv.norm.num_batches_tracked": (),
        }),
        **both({"subsampling.layers.0": (16, 1, 3, 3), "subsampling.layers.2": (16, 1, 3, 3),
                "subsampling.layers.3": (16, 16, 1, 1), "subsampling.linear": (32, 64)}),
        "feature_extractor.featurizer.fb": (1, 16, 9), "feature_extractor.featurizer.window": (16,),
    }),
    **weights({"sound_projection.norm": (32,), "sound_projection.linear1": (64, 32),
               "sound_projection.linear2": (64, 64)}),
}  # fmt: skip
SPEECH: NamedShapes = {
    **under("layers.{i}.", {
        **weights({"self_attn_layer_norm": (32,), "final_layer_norm": (32,),
                   "self_attn.k_proj": (32, 32)}),
        **both({"self_attn.q_proj": (32, 32), "self_attn.v_proj": (32, 32),
                "self_attn.out_proj": (32, 32), "fc1": (128, 32), "fc2": (32, 64)}),
    }),
    **both({"conv2d1": (8, 1, 3, 3), "conv2d2": (8, 8, 3, 3), "conv2d3": (8, 8, 3, 3)}),
    **weights({"conv_out": (32, 16), "layer_norm": (32,)}),
}  # fmt: skip
DENSE = {"mlp.fc1": (64, 32), "mlp.fc2": (32, 64), "mlp.fc3": (64, 32)}
DOTS: NamedShapes = {
    **under("vision_encoder.", {
        **under("blocks.{i}.", weights({
            "norm_1": (32,), "norm_2": (32,), "attn.qkv": (96, 32), "attn.proj": (32, 32),
            "attn.q_norm": (16,), "attn.k_norm": (16,),
        })),
        **weights({f"blocks.{n}.{name}": shape for n in (0, 1) for name, shape in DENSE.items()}),
        **weights({f"blocks.{n}.{name.replace('mlp', f'mlp.experts.{x}')}": shape
                   for n, count in ((2, 3), (3, 12)) for x in range(count)
                   for name, shape in DENSE.items()}),
        "blocks.2.mlp.gate_weight": (3, 32), "blocks.2.mlp.router_bias": (3,),
        "blocks.3.mlp.gate_weight": (12, 32), "blocks.3.mlp.router_bias": (12,),
        **both({"patch_embed.proj": (32, 3, 14, 14), "adapter.ln_q": (32,),
                "adapter.mlp.0": (64, 128), "adapter.mlp.2": (64, 64)}),
        **weights({"patch_embed.norm": (32,), "post_trunk_norm": (32,)}),
    }),
    **under("audio_encoder.dots_encoder.speech_encoder.", SPEECH),
    **both({f"audio_encoder.audio_adapter.proj.{n}": shape for n, shape in
            ((0, (32,)), (1, (64, 32)), (3, (64, 64)))}),
    "model.embed_tokens.weight": (64, 64),
}  # fmt: skip
TOKENIZER: NamedShapes = {
    **under("encoder.", {
        **under("layers.{i}.", {
            **both({"self_attn_layer_norm": (32,), "final_layer_norm": (32,), "fc1": (64, 32),
                    **{f"self_attn.{n}_proj": (32, 32) for n in ("q", "v", "out")},
                    "fc2": (32, 64)}),
            "self_attn.k_proj.weight": (32, 32),
        }),
        **both({"conv1": (32, 16, 3), "conv2": (32, 32, 3), "layer_norm": (32,),
                "down_sample_norm": (32,)}),
        "down_sample_layer.0.weight": (32, 32, 2),
        **under("quantizer.vq.layers.{i}._codebook.", {
            "embed_avg": (8, 32), "cluster_size": (8,), "inited": (1,),
        }),
        **{f"quantizer.vq.layers.{n}._codebook.embed": (size, 32)
           for n, size in enumerate((9, 16, 4))},
    }),
    "decoder.conv1.weight": (32, 32, 3),
}  # fmt: skip
CODES: NamedShapes = {
    **under("audio_encoder.input_local_transformer.", {
        **under("layers.{i}.", {
            **both({f"self_attn.{n}_proj": (32, 32) for n in "qkv"}),
            **weights({"self_attn.o_proj": (32, 32), "mlp.gate_proj": (64, 32),
                       "mlp.up_proj": (64, 32), "mlp.down_proj": (32, 64),
                       "input_layernorm": (32,), "post_attention_layernorm": (32,)}),
        }),
        "norm.weight": (32,),
    }),
    **weights({"audio_encoder.projection.mlp.0": (64, 128),
               "audio_encoder.projection.mlp.2": (64, 64)}),
    **{f"speech_embeddings.{n}.weight": (17, 32) for n in range(12)},
    "model.embed_tokens.weight": (64, 64),
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "nemotron-vl": {"config": SEEING, "preprocessor": HALVES, "layers": 32, "tensors": RADIO},
    "nemotron-omni": {
        "config": {
            **SEEING, "force_image_size": 48, "vision_config": {"patch_size": 4},
            "sound_config": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4,
                             "num_attention_heads": 2, "num_mel_bins": 16, "conv_kernel_size": 9,
                             "subsampling_factor": 8},
        },
        "layers": 32,
        "tensors": {**RADIO, **{name.replace("{i}", str(n)): shape
                                for name, shape in PARAKEET.items() for n in range(4)}},
    },
    "dots3note": {
        "also": ["Dots3NoteForCausalLM"],
        "config": {
            **TEXT, "architectures": ["Dots3NoteForConditionalGeneration"],
            "model_type": "dots3_note",
            "vision_config": {
                "embed_dim": 32, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 4,
                "num_attention_heads": 2, "patch_size": 14, "spatial_merge_size": 2,
                "rms_norm_eps": 1e-5, "pyramid_num_routed": [-1, -1, 3, 12], "capacity_factor": 2.0,
                "adapter_type": "patch_merger", "pre_pixel_shuffle": True, "use_qk_norm": True,
                "use_bias": False,
            },
            "audio_config": {
                "use_conv2d_stem": True, "use_rope": True, "use_rms_norm": True,
                "use_causal": False, "chunk_seconds": 60,
                "rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 10000.0},
                "whisper_config": {"activation_function": "swiglu", "d_model": 32,
                                   "encoder_ffn_dim": 64, "encoder_attention_heads": 2,
                                   "encoder_layers": 4, "num_mel_bins": 16},
            },
        },
        "preprocessor": {"vision_config": {**HALVES, "min_pixels": 3136, "max_pixels": 112896}},
        "tensors": DOTS,
    },
    "mimo-v2": {
        "config": {
            **TEXT, "architectures": ["MiMoV2ForCausalLM"], "model_type": "mimo_v2",
            "vision_config": {
                "depth": 4, "hidden_size": 32, "intermediate_size": 96, "num_heads": 2,
                "num_key_value_heads": 1, "patch_size": 14, "spatial_merge_size": 2,
                "use_sink": True, "visual_token_window_size": 128,
                "vit_window_attn_types": [0, 1, 0, -1],
            },
            "audio_config": {"audio_channels": 12, "group_size": 4, "input_local_layers": 4},
        },
        "preprocessor": {**HALVES, "min_pixels": 3136, "max_pixels": 12845056},
        "tensors": {
            **BLOCKS, **GATED, **MERGER, **CODES, "visual.blocks.{i}.attn.sinks": (2,),
            "visual.patch_embed.proj.weight": (32, 3, 2, 14, 14),
        },
        "folders": {"audio_tokenizer": {
            "dtype": "float32",
            "config": {"d_model": 32, "encoder_ffn_dim": 64, "encoder_attention_heads": 2,
                       "encoder_layers": 4, "n_mels": 16, "hybrid_attention": True,
                       "swa_per_block": 2, "encoder_attn_window_size": [128, 0]},
            "tensors": TOKENIZER,
        }},
    },
}  # fmt: skip
