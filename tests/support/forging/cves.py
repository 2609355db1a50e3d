"""Known vulnerabilities of other GGUF readers, each under its number."""

from __future__ import annotations

from collections.abc import Iterator

from forging.builder import (
    ARRAY,
    F32_TENSOR,
    I8_TENSOR,
    STRING,
    U32,
    U64,
    Array,
    Forge,
    Pair,
    Text,
    number,
    tensor,
    text,
)
from forging.case import Case, refuse, warn
from forging.metadata import with_pair
from forging.tensors import with_info


def cases() -> Iterator[Case]:
    yield refuse(
        "cve-2024-23496",
        "string-length",
        "length + 1 wrapped to 0 in gguf_fread_str: nothing allocated, everything written",
        with_pair(Pair(text("a.b"), STRING, Text(b"x" * 64, 2**64 - 1))),
    )
    yield warn(
        "cve-2024-21802",
        "dims-ggml",
        "more than four dimensions were written into an array of four",
        with_info(tensor("a", *[1] * 16)),
    )
    yield refuse(
        "cve-2024-21825",
        "array-count",
        "count times the size of a string wrapped: a small array, filled far beyond",
        with_pair(Pair(text("a.b"), ARRAY, Array(STRING, [text("x")] * 8, 2**60 + 1))),
    )
    yield refuse(
        "cve-2024-21836",
        "count",
        "the number of tensors times the size of an info wrapped",
        Forge(tensor_count=2**58 + 1),
    )
    yield refuse(
        "cve-2024-23605",
        "count",
        "the number of pairs times the size of a pair wrapped",
        Forge(kv_count=2**58 + 1),
    )
    halves = [tensor(f"t{i}", 2**62, offset=i * 2**62, type=I8_TENSOR, size=32) for i in range(4)]
    yield refuse(
        "cve-2025-53630",
        "shape-overflow",
        "the sum of the padded sizes wrapped, and too little memory was allocated",
        with_info(*halves),
    )
    edge = with_info(tensor("a", 2**59, 2**4 - 1, type=I8_TENSOR, size=32), tensor("b", 32))
    yield refuse(
        "cve-2026-27940",
        "shape-overflow",
        "the sum just below 2^64 wrapped when the bookkeeping of the tensors was added",
        edge,
    )
    yield refuse(
        "cve-2026-33298",
        "shape-overflow",
        "the bytes of a tensor wrapped although the product of its dimensions did not",
        with_info(tensor("a", 2**62, type=F32_TENSOR, size=32)),
    )
    one = (tensor("a", 4),)
    large = with_pair(number("general.alignment", U32, 2**31), infos=one)
    yield refuse(
        "alignment-overflow",
        "data-truncated",
        "padding to 2^31 in 32 bits wraps, and the data seems to begin inside the header",
        large,
    )
    yield refuse(
        "alignment-64-bits",
        "alignment-type",
        "an alignment of 2^63 makes every sum wrap",
        with_pair(number("general.alignment", U64, 2**63)),
    )
