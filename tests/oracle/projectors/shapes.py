"""Shapes that cases of several families share."""

from __future__ import annotations

NamedShapes = dict[str, tuple[int, ...]]
HALVES = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
VISION = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4,
          "num_attention_heads": 2, "image_size": 56, "patch_size": 14}  # fmt: skip
TEXT = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 64}  # fmt: skip
CASES: dict[str, dict[str, object]] = {}


def under(prefix: str, names: NamedShapes) -> NamedShapes:
    """Return names with a prefix."""
    return {prefix + name: shape for name, shape in names.items()}


def both(names: NamedShapes) -> NamedShapes:
    """Return weight and bias of each name; a bias has the first axis only."""
    weights = {f"{name}.weight": shape for name, shape in names.items()}
    return weights | {f"{name}.bias": shape[:1] for name, shape in names.items()}


def weights(names: NamedShapes) -> NamedShapes:
    """Return the weight of each name."""
    return {f"{name}.weight": shape for name, shape in names.items()}


def whisper(prefix: str, layer: str = "layers.{i}.") -> NamedShapes:
    """Return the tensors of an encoder like Whisper."""
    plain = {
        f"{layer}self_attn_layer_norm": (32,), f"{layer}self_attn.q_proj": (32, 32),
        f"{layer}self_attn.v_proj": (32, 32), f"{layer}self_attn.out_proj": (32, 32),
        f"{layer}final_layer_norm": (32,), f"{layer}fc1": (64, 32), f"{layer}fc2": (32, 64),
        "conv1": (32, 16, 3), "conv2": (32, 32, 3), "layer_norm": (32,),
    }  # fmt: skip
    without = {f"{layer}self_attn.k_proj": (32, 32), "embed_positions": (24, 32)}
    return under(prefix, {**both(plain), **weights(without)})
