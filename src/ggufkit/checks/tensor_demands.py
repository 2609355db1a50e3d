"""Check that the tensors are those that llama.cpp loads, in the shapes that the keys imply.

llama.cpp computes each shape from the keys. It refuses a file if a tensor is missing, has another
shape, or is not in its list.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Final

from ggufkit.checks.demands import Demands, TensorDemand
from ggufkit.checks.known_tensors import KnownTensor, any_block, known_tensors
from ggufkit.checks.subject import (
    ARCHITECTURE,
    EMBEDDING,
    Broken,
    Subject,
    at_tensor,
)
from ggufkit.models.model import Tensor

MAX_BLOCKS: Final = 512  # llama.cpp's LLAMA_MAX_LAYERS
KeySizes = Mapping[str, int | None]


def about_tensors(seen: Subject, known: Demands) -> Iterator[Broken]:
    """Compare the tensors with those that llama.cpp loads for the architecture."""
    variants = sizes(seen)
    experts = variants[0]["experts"]
    for name in _missing(seen, known, experts):
        details = {"name": name, "architecture": seen.architecture}
        yield Broken("tensor-required", details, key=ARCHITECTURE)
    fused = {row.name: row.unless for row in known.tensors if row.unless}
    loaded = known_tensors(seen.architecture)
    for tensor in seen.model.tensors.values():
        row = any_block(tensor.name)
        found = loaded.get(row)
        if found is None or _is_other(found, experts) or _is_fused(seen, tensor.name, fused):
            architecture = seen.architecture
            yield at_tensor("tensor-unknown", tensor, architecture=architecture)
        else:
            yield from _about_shape(tensor, found, variants)


def _missing(seen: Subject, known: Demands, experts: int | None) -> Iterator[str]:
    """Yield the names of required tensors that are missing."""
    blocks = max((seen.number(seen.own("block_count")) or 0) - seen.ahead, 0)
    count = min(blocks, seen.layers, MAX_BLOCKS)
    for demand in known.tensors:
        if not (demand.is_dense and experts != 0):
            yield from _absent(seen, demand, count)
    for name, tensor in known_tensors(seen.architecture).items() if experts else ():
        if tensor.is_required:
            yield from (each for each in _each(name, count) if each not in seen.model.tensors)


def _absent(seen: Subject, demand: TensorDemand, blocks: int) -> Iterator[str]:
    others = _each(demand.unless, blocks) if demand.unless else itertools.repeat("")
    for name, other in zip(_each(demand.name, blocks), others, strict=False):
        if name not in seen.model.tensors and other not in seen.model.tensors:
            yield name


def _each(name: str, blocks: int) -> Iterator[str]:
    if "{i}" not in name:
        yield name
        return
    for block in range(blocks):
        yield name.replace("{i}", str(block))


def _is_other(known: KnownTensor, experts: int | None) -> bool:
    """Whether the tensor belongs only to models with experts, or without, unlike this one."""
    if known.has_experts is None or experts is None:
        return False
    return known.has_experts != bool(experts)


def _is_fused(seen: Subject, name: str, fused: Mapping[str, str]) -> bool:
    """Whether another tensor has the same data, so that llama.cpp does not need this one."""
    row = any_block(name)
    if row not in fused:
        return False
    number = name[len(row.partition("{i}")[0]) :].partition(".")[0]
    return fused[row].replace("{i}", number) in seen.model.tensors


def _about_shape(tensor: Tensor, known: KnownTensor, variants: list[KeySizes]) -> Iterator[Broken]:
    if tensor.name == EMBEDDING or not known.shape:  # the embedding has separate rules
        return
    implied = [_implied(known.shape, sizes) for sizes in variants]
    shape = _without_ones(tensor.shape)
    if any(each is None or _without_ones(each) == shape for each in implied):
        return
    yield at_tensor("tensor-shape", tensor, shape=list(tensor.shape), wanted=list(implied[0] or ()))


def _implied(words: tuple[str, ...], sizes: KeySizes) -> tuple[int, ...] | None:
    """Return the shape that the keys imply; None if they do not determine it."""
    lengths = [sizes[word] for word in words]
    known = tuple(length for length in lengths if length is not None)
    return known if len(known) == len(words) else None


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without leading ones: ggml treats these as absent axes."""
    lead = next((i for i, length in enumerate(shape) if length != 1), len(shape))
    return shape[lead:]


def sizes(seen: Subject) -> list[KeySizes]:
    """Return the size that each word of the tables means here, None if blocks may differ.

    The result has two sets if blocks with a sliding window have heads of another size.
    """
    variants = [_sizes(seen, "")]
    if any(seen.own(f"attention.{name}_length_swa") in seen.metadata for name in ("key", "value")):
        variants.append(_sizes(seen, "_swa"))
    return variants


def _sizes(seen: Subject, window: str) -> KeySizes:
    width, heads = seen.size("embedding_length"), seen.size("attention.head_count")
    groups = seen.size("attention.head_count_kv", heads)
    key, value = (_head(seen, f"attention.{name}_length", window) for name in ("key", "value"))
    values = _product(groups, value)
    rope = seen.size(f"rope.dimension_count{window}", key)
    return {
        "one": 1,
        "embedding": width,
        "tokens": seen.tokens,
        "feed_forward": seen.size("feed_forward_length"),
        "head": key,
        "value_head": value,
        "heads": _product(heads, key),
        "keys": _product(groups, key),
        "values": values,
        "embedding_values": None if None in (width, values) else (width or 0) + 2 * (values or 0),
        "experts": seen.size("expert_count"),
        "context": seen.size("context_length"),
        "rope_half": None if rope is None else rope // 2,
        "token_types": seen.number("tokenizer.ggml.token_type_count") or 0,
    }


def _head(seen: Subject, name: str, window: str) -> int | None:
    """Return the elements of a head: by its own key, or the width's share."""
    width, heads = seen.size("embedding_length"), seen.size("attention.head_count")
    if not heads:
        return heads
    share = None if width is None else width // heads
    whole = seen.size(name, share)
    return seen.size(f"{name}{window}", whole) if window else whole


def _product(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first * second
