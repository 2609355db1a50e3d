"""The first facts about a model for people, and all of it as plain data for programs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ggufkit.diffusion.architecture import is_diffusion
from ggufkit.diffusion.pipeline_facts import PipelineFacts, pipeline_facts
from ggufkit.format import values
from ggufkit.format.dialects import dialect_of
from ggufkit.format.file_types import file_type_name
from ggufkit.format.metadata import Metadata
from ggufkit.models.model import Model, Tensor, bits_per_weight

PerLayer: TypeAlias = "int | list[int] | None"  # one number for all layers, or one per layer


@dataclass(frozen=True)
class TypeShare:
    """The share of one tensor type in a model: tensors, elements and bytes."""

    type: str
    tensors: int
    elements: int
    nbytes: int


@dataclass(frozen=True)
class Summary:
    """Facts about a model; None if its metadata lacks them (or has them in a wrong type).

    `parameters` counts the elements of all tensors, `bits_per_weight` is their average
    size, `types` is sorted by bytes. Lengths and counts are numbers of tokens, layers, heads, ….
    `pipeline` is about image and video models. `program` is the only one that reads all types.
    `dialect` tells what numbers mean that programs use for different types, if one occurs.
    """

    architecture: str | None
    kind: str | None
    name: str | None
    size_label: str | None
    license: str | None
    parameters: int
    recipe: str | None
    bits_per_weight: float | None
    types: list[TypeShare]
    context: int | None
    layers: int | None
    embedding: int | None
    feed_forward: PerLayer
    heads: PerLayer
    kv_heads: PerLayer
    experts: int | None
    experts_used: PerLayer
    vocabulary: int | None
    tokenizer: str | None
    chat_template: str | None
    pipeline: PipelineFacts | None = None
    program: str | None = None
    dialect: str | None = None


def summarize(model: Model) -> Summary:
    """Return the most important facts about `model`; no tensor data is read."""
    metadata = model.metadata
    tensors = list(model.tensors.values())
    architecture = _text(metadata, "general.architecture")
    file_type = _number(metadata, "general.file_type")

    def hyper(name: str) -> PerLayer:
        return None if architecture is None else _numbers(metadata, f"{architecture}.{name}")

    def count(name: str) -> int | None:
        return None if architecture is None else _number(metadata, f"{architecture}.{name}")

    kind = _text(metadata, "tokenizer.ggml.model")
    pre = _text(metadata, "tokenizer.ggml.pre")
    return Summary(
        architecture=architecture,
        kind=_text(metadata, "general.type"),
        name=_text(metadata, "general.name"),
        size_label=_text(metadata, "general.size_label"),
        license=_text(metadata, "general.license"),
        parameters=sum(tensor.elements for tensor in tensors),
        recipe=None if file_type is None else file_type_name(file_type),
        bits_per_weight=bits_per_weight(tensors),
        types=type_shares(tensors),
        context=count("context_length"),
        layers=count("block_count"),
        embedding=count("embedding_length"),
        feed_forward=hyper("feed_forward_length"),
        heads=hyper("attention.head_count"),
        kv_heads=hyper("attention.head_count_kv"),
        experts=count("expert_count"),
        experts_used=hyper("expert_used_count"),
        vocabulary=_tokens(metadata) or count("vocab_size"),
        tokenizer=f"{kind} ({pre})" if kind and pre else kind,
        chat_template=_text(metadata, "tokenizer.chat_template"),
        pipeline=_pipeline(model),
        program=program_of(tensors),
        dialect=dialect_of({tensor.type for tensor in tensors}),
    )


def program_of(tensors: Iterable[Tensor]) -> str | None:
    """Return the program that alone reads the types of these tensors; None for llama.cpp's."""
    return next((tensor.type.program for tensor in tensors if tensor.type.program), None)


def _pipeline(model: Model) -> PipelineFacts | None:
    if not is_diffusion(model.architecture, model.tensors):
        return None
    shapes = {name: tensor.shape for name, tensor in model.tensors.items()}
    types = {tensor.type.name for tensor in model.tensors.values()}
    return pipeline_facts(model.architecture, shapes, types, model.metadata)


def type_shares(tensors: Iterable[Tensor]) -> list[TypeShare]:
    """Return each tensor type that occurs, with its share, the most bytes first."""
    groups: dict[str, list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.type.name, []).append(tensor)
    shares = [
        TypeShare(name, len(group), sum(t.elements for t in group), sum(t.nbytes for t in group))
        for name, group in groups.items()
    ]
    return sorted(shares, key=lambda share: -share.nbytes)


def _text(metadata: Metadata, key: str) -> str | None:
    value = metadata.get(key)
    return value if isinstance(value, str) else None


def _number(metadata: Metadata, key: str) -> int | None:
    return values.whole_number(metadata.get(key))


def _numbers(metadata: Metadata, key: str) -> PerLayer:
    value = metadata.get(key)
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu":
        numbers: list[int] = value.tolist()
        return numbers[0] if len(set(numbers)) == 1 else numbers
    return _number(metadata, key)


def _tokens(metadata: Metadata) -> int | None:
    tokens = metadata.get("tokenizer.ggml.tokens")
    return len(tokens) if isinstance(tokens, values.Strings) else None


def describe(model: Model, *, tensors: bool = True) -> dict[str, Any]:
    """Return everything except tensor data as JSON values; see docs/inspect.md.

    With `tensors=False`, leave out the list of tensors.
    """
    summary = summarize(model)
    pipeline = vars(summary.pipeline) if summary.pipeline else None
    types = [vars(share) for share in summary.types]
    facts: dict[str, Any] = {
        "version": model.version,
        "byte_order": model.byte_order,
        "alignment": model.alignment,
        "files": [
            {
                "path": str(file.path),
                "nbytes": file.nbytes,
                "data_offset": file.data_offset,
                "data_nbytes": file.data_nbytes,
            }
            for file in model.files
        ],
        "missing": [{"rule": flaw.rule, "message": flaw.message} for flaw in model.missing],
        "summary": {**vars(summary), "types": types, "pipeline": pipeline},
        "metadata": {
            key: {"type": model.metadata.type_name(key), "value": plain(model.metadata.typed(key))}
            for key in model.metadata
        },
    }
    if tensors:
        facts["tensors"] = [describe_tensor(tensor) for tensor in model.tensors.values()]
    return facts


def describe_tensor(tensor: Tensor) -> dict[str, Any]:
    """Return what a header says of a tensor as JSON values."""
    return {
        "name": tensor.name,
        "type": tensor.type.name,
        "shape": list(tensor.shape),
        "nbytes": tensor.nbytes,
        "offset": tensor.offset,
        "file": None if tensor.path is None else str(tensor.path),
        "whole": tensor.is_whole,
    }


def plain(value: values.TypedValue | values.Value) -> object:
    """Return a metadata value as an exact JSON value.

    Floats become the shortest decimal of their width, or the strings "NaN", "Infinity" and
    "-Infinity". An array inside an array becomes {"type", "value"}.
    """
    if isinstance(value, np.generic):
        value = values.python_value(value)
    if isinstance(value, str | int | float):
        return plain_float(value) if isinstance(value, float) else value
    if isinstance(value, values.Arrays):
        return [{"type": values.type_name(inner), "value": plain(inner)} for inner in value]
    if isinstance(value, values.Strings):
        return value.tolist()
    if value.dtype.kind != "f":
        return value.tolist()
    return [plain(number) for number in value]


def plain_float(number: float) -> float | str:
    """Return a number, or its name where JSON lacks it: "NaN", "Infinity" or "-Infinity"."""
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
