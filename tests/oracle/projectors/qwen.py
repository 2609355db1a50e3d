"""The projectors of Qwen's models that see."""

from __future__ import annotations

from typing import Any

from projectors.shapes import under

PREPARED = {"image_mean": [0.48145466, 0.4578275, 0.40821073],
            "image_std": [0.26862954, 0.26130258, 0.27577711], "patch_size": 14}  # fmt: skip
HALVES = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
BLOCKS = {
    "visual.blocks.{i}.norm1.weight": (32,), "visual.blocks.{i}.norm1.bias": (32,),
    "visual.blocks.{i}.attn.qkv.weight": (96, 32), "visual.blocks.{i}.attn.qkv.bias": (96,),
    "visual.blocks.{i}.attn.proj.weight": (32, 32), "visual.blocks.{i}.attn.proj.bias": (32,),
    "visual.blocks.{i}.norm2.weight": (32,), "visual.blocks.{i}.norm2.bias": (32,),
}  # fmt: skip
PLAIN = {
    "visual.blocks.{i}.mlp.fc1.weight": (64, 32), "visual.blocks.{i}.mlp.fc1.bias": (64,),
    "visual.blocks.{i}.mlp.fc2.weight": (32, 64), "visual.blocks.{i}.mlp.fc2.bias": (32,),
}  # fmt: skip
GATED = {
    "visual.blocks.{i}.mlp.gate_proj.weight": (96, 32),
    "visual.blocks.{i}.mlp.gate_proj.bias": (96,),
    "visual.blocks.{i}.mlp.up_proj.weight": (96, 32), "visual.blocks.{i}.mlp.up_proj.bias": (96,),
    "visual.blocks.{i}.mlp.down_proj.weight": (32, 96),
    "visual.blocks.{i}.mlp.down_proj.bias": (32,),
}  # fmt: skip
MERGER = {
    "visual.merger.ln_q.weight": (32,), "visual.merger.ln_q.bias": (32,),
    "visual.merger.mlp.0.weight": (128, 128), "visual.merger.mlp.0.bias": (128,),
    "visual.merger.mlp.2.weight": (64, 128), "visual.merger.mlp.2.bias": (64,),
}  # fmt: skip
TEXT = {"model.embed_tokens.weight": (64, 64), "model.layers.{i}.self_attn.q_proj.weight": (64, 64),
        "lm_head.weight": (64, 64)}  # fmt: skip
DEEP = {
    "patch_embed.proj.weight": (32, 3, 2, 16, 16), "patch_embed.proj.bias": (32,),
    "pos_embed.weight": (16, 32),
    "blocks.{i}.norm1.weight": (32,), "blocks.{i}.norm1.bias": (32,),
    "blocks.{i}.attn.qkv.weight": (96, 32), "blocks.{i}.attn.qkv.bias": (96,),
    "blocks.{i}.attn.proj.weight": (32, 32), "blocks.{i}.attn.proj.bias": (32,),
    "blocks.{i}.norm2.weight": (32,), "blocks.{i}.norm2.bias": (32,),
    "blocks.{i}.mlp.linear_fc1.weight": (64, 32), "blocks.{i}.mlp.linear_fc1.bias": (64,),
    "blocks.{i}.mlp.linear_fc2.weight": (32, 64), "blocks.{i}.mlp.linear_fc2.bias": (32,),
    "merger.norm.weight": (32,), "merger.norm.bias": (32,),
    "merger.linear_fc1.weight": (128, 128), "merger.linear_fc1.bias": (128,),
    "merger.linear_fc2.weight": (64, 128), "merger.linear_fc2.bias": (64,),
}  # fmt: skip
STACK = {
    "deepstack_merger_list.{i}.norm.weight": (128,), "deepstack_merger_list.{i}.norm.bias": (128,),
    "deepstack_merger_list.{i}.linear_fc1.weight": (128, 128),
    "deepstack_merger_list.{i}.linear_fc1.bias": (128,),
    "deepstack_merger_list.{i}.linear_fc2.weight": (64, 128),
    "deepstack_merger_list.{i}.linear_fc2.bias": (64,),
}  # fmt: skip
QWEN3 = {
    "depth": 5, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "patch_size": 16,
    "num_position_embeddings": 16, "out_hidden_size": 64, "spatial_merge_size": 2,
}  # fmt: skip
FLAT = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 64}  # fmt: skip


CASES: dict[str, dict[str, Any]] = {
    "qwen2vl": {
        "also": ["Qwen2VLModel"],
        "config": {
            **FLAT, "architectures": ["Qwen2VLForConditionalGeneration"],
            "model_type": "qwen2_vl", "rms_norm_eps": 1e-5,
            "vision_config": {"depth": 4, "embed_dim": 32, "hidden_size": 64, "mlp_ratio": 2,
                              "num_heads": 2, "model_type": "qwen2_vl"},
        },
        "layers": 4, "preprocessor": PREPARED,
        "tensors": {**BLOCKS, **PLAIN, **MERGER, **TEXT,
                    "visual.patch_embed.proj.weight": (32, 3, 2, 14, 14)},
    },
    "qwen25vl": {
        "config": {
            "architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl",
            "text_config": {**FLAT, "model_type": "qwen2_5_vl_text", "rms_norm_eps": 1e-5},
            "vision_config": {"depth": 4, "hidden_size": 32, "intermediate_size": 96,
                              "num_heads": 2, "fullatt_block_indexes": [1, 3]},
        },
        "layers": 4, "preprocessor": PREPARED,
        "tensors": {**BLOCKS, **GATED, **MERGER, **TEXT,
                    "visual.patch_embed.proj.weight": (32, 3, 2, 14, 14)},
    },
    "qwen3vl": {
        "also": ["Qwen3VLMoeForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration",
                 "Qwen4ExpForConditionalGeneration"],
        "config": {
            "architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl",
            "text_config": {**FLAT, "model_type": "qwen3_vl_text", "rms_norm_eps": 1e-5},
            "vision_config": {**QWEN3, "deepstack_visual_indexes": [1, 3, 4]},
        },
        "layers": 5, "preprocessor": HALVES,
        "tensors": {
            **under("model.visual.", DEEP),
            **{f"model.visual.{name.replace('{i}', str(n))}": shape
               for name, shape in STACK.items() for n in range(3)},
            **under("model.language_model.", {"embed_tokens.weight": (64, 64)}),
        },
    },
    "qwen35": {
        "config": {
            "architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5",
            "text_config": {**FLAT, "model_type": "qwen3_5_text", "rms_norm_eps": 1e-6},
            "vision_config": {**QWEN3, "deepstack_visual_indexes": []},
        },
        "layers": 5, "preprocessor": HALVES,
        "tensors": {**under("model.visual.", DEEP), "mtp.fc.weight": (64, 128),
                    "lm_head.weight": (64, 64)},
    },
}  # fmt: skip
