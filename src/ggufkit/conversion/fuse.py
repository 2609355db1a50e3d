"""Joins tensors that llama.cpp can also read as one: Q, K and V, and the gates of experts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import ggufkit._toml as _toml
from ggufkit.conversion.tensors.moves import concat, reshape
from ggufkit.errors import CheckpointError
from ggufkit.format.types import tensor_type
from ggufkit.models.model import Tensor
from ggufkit.models.sources import retyped

_TABLES: Final = _toml.read(__file__, "fuse.toml")
UNFUSED_QKV: Final[list[str]] = _TABLES["unfused_qkv"]
SEPARATE_QKV: Final[list[str]] = _TABLES["separate_qkv"]
FUSED_EXPERTS: Final[list[str]] = _TABLES["fused_experts"]
_QKV: Final = ("attn_q", "attn_k", "attn_v")
_EXPERTS: Final = ("ffn_gate_exps", "ffn_up_exps")
_F32: Final = tensor_type("F32")
_LAYERED: Final = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
Join = Callable[[str, Sequence[Tensor]], Tensor]


def fused_qkv(tensors: Sequence[Tensor], architecture: str) -> list[Tensor]:
    """Return the tensors, with Q, K and V of a layer joined if the layer has all three.

    A layer with some biases only, and an architecture without such a tensor, stay as they are.
    """
    if architecture in (*UNFUSED_QKV, *SEPARATE_QKV):
        return list(tensors)
    names = {tensor.name for tensor in tensors}
    groups = {}
    for layer in _layers(names):
        weights, biases = (
            [f"blk.{layer}.{kind}.{suffix}" for kind in _QKV] for suffix in ("weight", "bias")
        )
        count = len(names.intersection(biases))
        if names.issuperset(weights) and count in (0, len(_QKV)):
            groups[f"blk.{layer}.attn_qkv.weight"] = weights
            if count:
                groups[f"blk.{layer}.attn_qkv.bias"] = biases
    return _fused(tensors, groups, concat)


def fused_experts(tensors: Sequence[Tensor], architecture: str) -> list[Tensor]:
    """Return the tensors with the gates of a layer's experts before their other inputs, in one.

    Raises CheckpointError for an architecture with such experts and without such a tensor.
    """
    names = {tensor.name for tensor in tensors}
    pairs = {layer: [f"blk.{layer}.{kind}.weight" for kind in _EXPERTS] for layer in _layers(names)}
    groups = {
        f"blk.{layer}.ffn_gate_up_exps.weight": pair
        for layer, pair in pairs.items()
        if names.issuperset(pair)
    }
    if groups and architecture not in FUSED_EXPERTS:
        raise CheckpointError(
            f"llama.cpp does not fuse the experts of {architecture}",
            remedy="Convert the checkpoint without fusing them",
        )
    return _fused(tensors, groups, _side_by_side)


def _layers(names: Iterable[str]) -> set[str]:
    return {match[1] for name in names if (match := _LAYERED.fullmatch(name))}


def _side_by_side(name: str, tensors: Sequence[Tensor]) -> Tensor:
    count = tensors[0].shape[0]
    parts = [tensor[n : n + 1] for n in range(count) for tensor in tensors]
    joined = concat(name, [reshape(part, part.shape[1:]) for part in parts])
    return reshape(joined, (count, -1, joined.shape[-1]))


def _fused(tensors: Iterable[Tensor], groups: Mapping[str, list[str]], join: Join) -> list[Tensor]:
    """Return the tensors; each group is joined where its last one is, as F32 if types differ."""
    by_name = {tensor.name: tensor for tensor in tensors}
    places = {name: index for index, name in enumerate(by_name)}
    lasts = {max(names, key=places.__getitem__): fused for fused, names in groups.items()}
    parts = {name for names in groups.values() for name in names}
    joined = []
    for name, tensor in by_name.items():
        if name in lasts:
            group = [by_name[part] for part in groups[lasts[name]]]
            if len({part.type for part in group}) > 1:
                group = [retyped(part, _F32) for part in group]
            joined.append(join(lasts[name], group))
        elif name not in parts:
            joined.append(tensor)
    return joined
