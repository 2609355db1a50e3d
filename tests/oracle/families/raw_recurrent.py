"""The cases of RWKV."""

from __future__ import annotations

from typing import Any

from raw_shapes import ENDS, FEED_FORWARD, NORMS, Names, at, raw

CASES: dict[str, Any] = {}
NO_ATTENTION = {
    "rms_norm_eps": None, "rope_theta": None, "hidden_act": None, "num_attention_heads": None,
    "num_key_value_heads": None, "max_position_embeddings": None,
}  # fmt: skip


def both(name: str) -> Names:
    """Return a layer norm."""
    return {f"{name}.weight": (64,), f"{name}.bias": (64,)}


RWKV6: Names = {
    "rwkv.embeddings.weight": (416, 64), "head.weight": (416, 64),
    **both("rwkv.blocks.0.pre_ln"), **both("rwkv.ln_out"),
    **both("rwkv.blocks.{i}.ln1"), **both("rwkv.blocks.{i}.ln2"),
    **{f"rwkv.blocks.{{i}}.attention.time_maa_{n}": (1, 1, 64) for n in "xwkvrg"},
    "rwkv.blocks.{i}.attention.time_maa_w1": (64, 160),
    "rwkv.blocks.{i}.attention.time_maa_w2": (5, 32, 64),
    "rwkv.blocks.{i}.attention.time_decay": (1, 1, 64),
    "rwkv.blocks.{i}.attention.time_decay_w1": (64, 64),
    "rwkv.blocks.{i}.attention.time_decay_w2": (64, 64),
    "rwkv.blocks.{i}.attention.time_faaaa": (4, 16),
    **{
        f"rwkv.blocks.{{i}}.attention.{n}.weight": (64, 64)
        for n in ("receptance", "key", "value", "gate", "output")
    },
    **both("rwkv.blocks.{i}.attention.ln_x"),
    "rwkv.blocks.{i}.feed_forward.time_maa_k": (1, 1, 64),
    "rwkv.blocks.{i}.feed_forward.time_maa_r": (1, 1, 64),
    "rwkv.blocks.{i}.feed_forward.key.weight": (224, 64),
    "rwkv.blocks.{i}.feed_forward.receptance.weight": (64, 64),
    "rwkv.blocks.{i}.feed_forward.value.weight": (64, 224),
}  # fmt: skip
LORA: Names = {"lora.0.weight": (32, 64), "lora.2.weight": (64, 32), "lora.2.bias": (64,)}
MIX = "model.layers.{i}.attn."
RWKV7: Names = {
    "model.embeddings.weight": (416, 64), "lm_head.weight": (416, 64),
    **both("model.layers.0.pre_norm"), **both("model.norm"),
    **both("model.layers.{i}.attn_norm"), **both("model.layers.{i}.ffn_norm"),
    **{f"{MIX}x_{n}": (1, 1, 64) for n in "rwkvag"},
    f"{MIX}k_k": (64,), f"{MIX}k_a": (64,), f"{MIX}r_k": (4, 16),
    **{f"{MIX}{n}_proj.weight": (64, 64) for n in "rkvo"},
    **{f"{MIX}{name}_lora.{part}": LORA[part] for name in "wa" for part in LORA},
    **{f"{MIX}g_lora.{part}": LORA[part] for part in LORA if "bias" not in part},
    **both(f"{MIX}g_norm"),
    "model.layers.{i}.ffn.x_k": (64,), "model.layers.{i}.ffn.key.weight": (256, 64),
    "model.layers.{i}.ffn.value.weight": (64, 256),
    **at([1, 2], {f"{MIX}v_lora.{part}": LORA[part] for part in LORA}),
}  # fmt: skip
OLD = "model.blocks.{i}.attention."
FIRST_RWKV7: Names = {
    "model.embeddings.weight": (416, 64), "head.weight": (416, 64),
    **both("model.pre_ln"), **both("model.ln_out"),
    **both("model.blocks.{i}.ln1"), **both("model.blocks.{i}.ln2"),
    f"{OLD}x_x": (6, 64), f"{OLD}k_k": (1, 1, 64), f"{OLD}k_a": (1, 1, 64), f"{OLD}r_k": (4, 16),
    **{f"{OLD}{n}.weight": (64, 64) for n in ("receptance", "key", "value", "output")},
    **{f"{OLD}{n}0": (1, 1, 64) for n in "wav"}, **{f"{OLD}{n}1": (64, 32) for n in "wavg"},
    **{f"{OLD}{n}2": (32, 64) for n in "wavg"}, **both(f"{OLD}ln_x"),
    "model.blocks.{i}.ffn.x_k": (1, 1, 64), "model.blocks.{i}.ffn.key.weight": (256, 64),
    "model.blocks.{i}.ffn.value.weight": (64, 256),
}  # fmt: skip
PLAIN = {"model_type": "rwkv", **NO_ATTENTION, "rms_norm_eps": 1e-6, "hidden_act": "silu"}
QWEN6 = "model.layers.{i}.self_attn."
RWKV6_QWEN: Names = {
    **ENDS, **NORMS, **FEED_FORWARD,
    **{f"{QWEN6}time_maa_{n}": (1, 1, 64) for n in "xwkvrg"},
    f"{QWEN6}time_maa_w1": (64, 160), f"{QWEN6}time_maa_w2": (5, 32, 64),
    f"{QWEN6}time_decay": (1, 1, 64), f"{QWEN6}time_decay_w1": (64, 48),
    f"{QWEN6}time_decay_w2": (48, 64),
    **{f"{QWEN6}{n}.weight": (64, 64) for n in ("q_proj", "o_proj", "gate")},
    **{f"{QWEN6}{n}.weight": (32, 64) for n in ("k_proj", "v_proj")},
    f"{QWEN6}q_proj.bias": (64,), f"{QWEN6}k_proj.bias": (32,), f"{QWEN6}v_proj.bias": (32,),
}  # fmt: skip
MIXER = "model.layers.{i}.self_attn.time_mixer."


def mixed(letters: str, gates: str) -> Names:
    """Return ARWKV's tensors."""
    ranks = {"w": 64, "a": 64, "v": 32, "g": 128}
    return {
        **ENDS, **NORMS, **FEED_FORWARD,
        **{f"{MIXER}x_{n}": (1, 1, 64) for n in letters},
        **{f"{MIXER}{n}0": (1, 1, 64) for n in "wav"},
        **{f"{MIXER}{n}1": (64, ranks[n]) for n in "wav" + gates},
        **{f"{MIXER}{n}2": (ranks[n], 64) for n in "wav" + gates},
        f"{MIXER}k_k": (1, 1, 64), f"{MIXER}k_a": (1, 1, 64), f"{MIXER}r_k": (4, 16),
        **{f"{MIXER}{n}.weight": (64, 64) for n in ("receptance", "key", "value", "output")},
    }  # fmt: skip


RAW = {
    "rwkv6-qwen2": raw(
        "RWKV6Qwen2ForCausalLM", RWKV6_QWEN, **PLAIN
        | {"num_attention_heads": 4, "num_key_value_heads": 2}, lora_rank_decay=48,
    ),
    "arwkv": raw(
        "RwkvHybridForCausalLM", mixed("rwkvag", "g") | both(f"{MIXER}ln_x"), **PLAIN,
        head_size=16, wkv_version=7, wkv_has_gate=True,
    ),
    "arwkv-ungated": raw(
        "RwkvHybridForCausalLM", mixed("rwkva", ""), **PLAIN,
        head_size=16, wkv_version=7, wkv_has_gate=False,
    ),
    "rwkv6": raw(
        "Rwkv6ForCausalLM", RWKV6, vocabulary="rwkv", model_type="rwkv6", **NO_ATTENTION,
        head_size=16, layer_norm_epsilon=1e-5, rescale_every=2, intermediate_size=224,
    ),
    "rwkv7": raw(
        "RWKV7ForCausalLM", RWKV7, vocabulary="rwkv", model_type="rwkv7",
        **NO_ATTENTION | {"hidden_act": "sqrelu"}, head_dim=16, norm_eps=1e-5,
        intermediate_size=256, decay_low_rank_dim=32, a_low_rank_dim=32, v_low_rank_dim=32,
        gate_low_rank_dim=32,
    ),
    "rwkv7-first": raw(
        "Rwkv7ForCausalLM", FIRST_RWKV7, vocabulary="rwkv", model_type="rwkv7",
        **NO_ATTENTION, head_size=16, layer_norm_epsilon=1e-5, intermediate_size=256,
        lora_rank_decay=None,
    ),
}  # fmt: skip
for _rank in ("decay", "iclr", "value_residual_mix", "gate"):
    RAW["rwkv7-first"]["config"][f"lora_rank_{_rank}"] = None
