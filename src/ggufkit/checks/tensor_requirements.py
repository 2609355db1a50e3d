"""Compare the tensors with what llama.cpp loads, and their shapes with what the keys imply.

llama.cpp computes each shape from the keys. It refuses a file if a tensor is missing, has another
shape, or is not in its list.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Final

from ggufkit.checks.model_view import ARCHITECTURE, EMBEDDING, ModelView, Violation, at_tensor
from ggufkit.checks.requirements import (
    KnownTensor,
    Requirements,
    TensorRequirement,
    any_block,
    known_tensors,
)
from ggufkit.models.model import Tensor

MAX_BLOCKS: Final = 512  # llama.cpp's LLAMA_MAX_LAYERS
KeySizes = Mapping[str, int | None]


def about_tensors(view: ModelView, requirements: Requirements) -> Iterator[Violation]:
    """Compare the tensors with those that llama.cpp loads for the architecture."""
    variants = sizes(view)
    experts = variants[0]["experts"]
    for name in _missing(view, requirements, experts):
        details = {"name": name, "architecture": view.architecture}
        yield Violation("tensor-required", details, key=ARCHITECTURE)
    fused = {row.name: row.unless for row in requirements.tensors if row.unless}
    loaded = known_tensors(view.architecture)
    for tensor in view.model.tensors.values():
        row = any_block(tensor.name)
        facts = loaded.get(row)
        # Some tensors belong only to models with experts, and some only to others.
        kinds = (None, bool(experts)) if experts is not None else (None, False, True)
        is_known = facts is not None and facts.has_experts in kinds
        if facts is None or not is_known or _is_fused(view, tensor.name, fused):
            yield at_tensor("tensor-unknown", tensor, architecture=view.architecture)
        else:
            yield from _about_shape(tensor, facts, variants)


def _missing(view: ModelView, requirements: Requirements, experts: int | None) -> Iterator[str]:
    blocks = max((view.number(view.own("block_count")) or 0) - view.ahead, 0)
    count = min(blocks, view.layers, MAX_BLOCKS)
    for demand in requirements.tensors:
        if not (demand.is_dense and experts != 0):
            yield from _absent(view, demand, count)
    for name, tensor in known_tensors(view.architecture).items() if experts else ():
        if tensor.is_required:
            yield from (full for full in _in_blocks(name, count) if full not in view.model.tensors)


def _absent(view: ModelView, demand: TensorRequirement, blocks: int) -> Iterator[str]:
    others = _in_blocks(demand.unless, blocks) if demand.unless else itertools.repeat("")
    for name, other in zip(_in_blocks(demand.name, blocks), others, strict=False):
        if name not in view.model.tensors and other not in view.model.tensors:
            yield name


def _in_blocks(name: str, blocks: int) -> Iterator[str]:
    if "{i}" not in name:
        yield name
        return
    for block in range(blocks):
        yield name.replace("{i}", str(block))


def _is_fused(view: ModelView, name: str, fused: Mapping[str, str]) -> bool:
    """Whether another tensor has the same data, so that llama.cpp does not need this one."""
    row = any_block(name)
    if row not in fused:
        return False
    number = name[len(row.partition("{i}")[0]) :].partition(".")[0]
    return fused[row].replace("{i}", number) in view.model.tensors


def _about_shape(
    tensor: Tensor, expected: KnownTensor, variants: list[KeySizes]
) -> Iterator[Violation]:
    if tensor.name == EMBEDDING or not expected.shape:  # the embedding has separate rules
        return
    implied = [_implied(expected.shape, sizes) for sizes in variants]
    shape = _without_ones(tensor.shape)
    if any(dims is None or _without_ones(dims) == shape for dims in implied):
        return
    yield at_tensor("tensor-shape", tensor, shape=list(tensor.shape), wanted=list(implied[0] or ()))


def _implied(words: tuple[str, ...], sizes: KeySizes) -> tuple[int, ...] | None:
    lengths = [sizes[word] for word in words]
    shape = tuple(length for length in lengths if length is not None)
    return shape if len(shape) == len(words) else None


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without leading ones: ggml treats these as absent axes."""
    lead = next((i for i, length in enumerate(shape) if length != 1), len(shape))
    return shape[lead:]


def sizes(view: ModelView) -> list[KeySizes]:
    """Return the size for each word of the tables in this model, None if blocks may differ.

    The result has two sets if blocks with a sliding window have heads of another size.
    """
    variants = [_sizes(view, "")]
    if any(view.own(f"attention.{name}_length_swa") in view.metadata for name in ("key", "value")):
        variants.append(_sizes(view, "_swa"))
    return variants


def _sizes(view: ModelView, window: str) -> KeySizes:
    width, heads = view.size("embedding_length"), view.size("attention.head_count")
    groups = view.size("attention.head_count_kv", heads)
    key, value = (_head(view, f"attention.{name}_length", window) for name in ("key", "value"))
    values = _product(groups, value)
    rope = view.size(f"rope.dimension_count{window}", key)
    return {
        "one": 1,
        "embedding": width,
        "tokens": view.tokens,
        "feed_forward": view.size("feed_forward_length"),
        "head": key,
        "value_head": value,
        "heads": _product(heads, key),
        "keys": _product(groups, key),
        "values": values,
        "embedding_values": None if None in (width, values) else (width or 0) + 2 * (values or 0),
        "experts": view.size("expert_count"),
        "context": view.size("context_length"),
        "rope_half": None if rope is None else rope // 2,
        "token_types": view.number("tokenizer.ggml.token_type_count") or 0,
    }


def _head(view: ModelView, name: str, window: str) -> int | None:
    """Return the elements of a head: from its own key, or the width divided by the heads."""
    width, heads = view.size("embedding_length"), view.size("attention.head_count")
    if not heads:
        return heads
    share = None if width is None else width // heads
    whole = view.size(name, share)
    return view.size(f"{name}{window}", whole) if window else whole


def _product(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first * second
