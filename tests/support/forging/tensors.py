"""Files with false tensor infos."""

from __future__ import annotations

from collections.abc import Iterator

from forging.builder import I8_TENSOR, Q4_K, Q8_0, U32, Forge, Info, Text, number, tensor
from forging.case import Case, refuse, warn
from forging.container import LIES, LIES_32
from forging.metadata import BAD_UTF8

F64_TENSOR = 28


def with_info(*infos: Info, **fields: object) -> Forge:
    return Forge(infos=infos, **fields)


def cases() -> Iterator[Case]:
    yield from _names()
    yield from _dimension_counts()
    yield from _dimensions()
    yield from _widths()
    yield from _types()
    yield from _offsets()
    yield from _overlaps()
    yield from _sizes()


def _names() -> Iterator[Case]:
    yield refuse("name-empty", "name-empty", "no reader can ask for it", with_info(tensor("", 4)))
    why = "which of the two is meant?"
    twice = with_info(tensor("a", 4), tensor("b", 4), tensor("a", 4))
    yield refuse("name-twice", "name-duplicate", why, twice)
    why = "C readers stop at the NUL and see another name"
    yield refuse("name-nul", "name-nul", why, with_info(tensor("a\0b", 4)))
    yield refuse("name-only-nul", "name-nul", why, with_info(tensor("\0", 4)))
    both = with_info(tensor("a\0b", 4), tensor("a\0c", 4))
    yield refuse("names-equal-up-to-nul", "name-nul", "C readers see one name twice", both)
    for name, raw in BAD_UTF8.items():
        bad = with_info(tensor(b"a." + raw, 4))
        yield refuse(f"name-utf8-{name}", "name-utf8", "names are text", bad)
    for size in (128, 1000):
        why = "no program reads more than 127 bytes"
        yield refuse(f"name-{size}-bytes", "name-size", why, with_info(tensor("n" * size, 4)))
    wide = with_info(tensor("é" * 64, 4))
    yield refuse("name-128-bytes-in-64-letters", "name-size", "bytes count, not letters", wide)
    for name, length in {**LIES, "one-too-many": 1000}.items():
        why = "the file has not so many bytes"
        lie = with_info(Info(Text(b"a", length), (4,)))
        yield refuse(f"name-length-{name}", "name-length", why, lie)


def _dimension_counts() -> Iterator[Case]:
    for name, count in {"33": 33, "1000": 1000, "2p30": 2**30, **LIES_32}.items():
        why = "no tensor has so many dimensions, and four bytes each need not fit in 32 bits"
        yield refuse(
            f"dims-count-{name}", "dims-count", why, with_info(tensor("a", 4, n_dims=count))
        )
    why = "the fields that follow are read as dimensions"
    missing = with_info(tensor("a", 4, n_dims=30, size=16))
    yield refuse("dims-count-beyond-the-file", "header-truncated", why, missing)


def _dimensions() -> Iterator[Case]:
    huge = {
        "2p63": (2**63,),
        "2p64-1": (2**64 - 1,),
        "2p63-1": (2**63 - 1,),
        "2p60": (2**60,),
        "product-wraps-to-0": (2**32, 2**32),
        "product-wraps-to-4": (2**62 + 1, 4),
        "product-wraps-to-1": (2**64 - 1, 2**64 - 1),
        "product-of-three-wraps": (2**22, 2**22, 2**22),
        "product-of-four-wraps": (2**16, 2**16, 2**16, 2**16),
        "negative": (2**64 - 4,),
        "negative-twice": (2**64 - 4, 2**64 - 2),
        "zero-first-and-huge": (0, 2**63, 2**63),
        "zero-last-and-huge": (2**63, 2**63, 0),
        "zero-between-huge": (2**40, 0, 2**40),
    }
    for name, dims in huge.items():
        why = "no size in bytes counts so many elements, whatever their product wraps to"
        yield refuse(f"dims-{name}", "shape-overflow", why, with_info(tensor("a", *dims, size=16)))
    why = "count times 8 bytes wraps to 8"
    doubles = with_info(tensor("a", 2**61 + 1, type=F64_TENSOR, size=8))
    yield refuse("dims-bytes-wrap", "shape-overflow", why, doubles)
    v1 = with_info(tensor("a", 2**32 - 1, 2**32 - 1, size=16), version=1)
    yield refuse("dims-v1", "shape-overflow", "32-bit dimensions multiply as well", v1)


def _widths() -> Iterator[Case]:
    for width in (1, 16, 31, 33, 48):
        why = "a row of Q8_0 is made of blocks of 32"
        ragged = with_info(tensor("a", width, 32, type=Q8_0, size=34 * width))
        yield refuse(f"width-{width}-of-q8_0", "row-width", why, ragged)
    for width in (32, 255, 257):
        why = "a row of Q4_K is made of blocks of 256"
        ragged = with_info(tensor("a", width, 256, type=Q4_K, size=144 * width))
        yield refuse(f"width-{width}-of-q4_k", "row-width", why, ragged)
    scalar = with_info(tensor("a", type=Q8_0, size=34))
    yield refuse("no-dims-of-q8_0", "row-width", "one element is no block", scalar)


def _types() -> Iterator[Case]:
    others = {"43": 43, "255": 255, "256": 256, "264": 264, "65536": 65536, **LIES_32}
    for name, kind in others.items():
        why = "a type of the future, whose bytes can still be copied; it narrows to no other type"
        file = with_info(tensor("a", 4), tensor("b", 7, type=kind, size=32), tensor("c", 4))
        yield warn(f"type-{name}", "type-unknown", why, file)
    for kind in (4, 5, 31, 32, 33, 36, 37, 38):
        why = "removed from ggml; a block size of 0 is no divisor"
        file = with_info(tensor("a", 32, type=kind, size=32))
        yield warn(f"type-{kind}-removed", "type-removed", why, file)
    foreign = with_info(tensor("a", 32, type=133, size=26))
    yield warn("type-of-ik-llama.cpp", "type-program", "only ik_llama.cpp has Q6_0", foreign)
    unclear = with_info(tensor("a", 512, type=41, size=400), tensor("b", 4))
    why = "400 bytes are no tensor of Q1_0; forks had other types of this number"
    yield warn("type-41-of-a-fork", "type-dialect", why, unclear)
    cut = with_info(tensor("a", 4), tensor("b", 4, type=77, offset=32, size=0))
    why = "it has elements, so it must have bytes"
    yield refuse("type-unknown-without-data", "data-truncated", why, cut)
    same = with_info(tensor("a", 4, type=77, size=32), tensor("b", 4, type=78, offset=0, size=0))
    yield refuse("types-unknown-at-one-place", "tensor-overlap", "both have elements", same)


def _offsets() -> Iterator[Case]:
    for offset in (1, 8, 31, 33):
        why = "tensors begin at multiples of the alignment"
        file = with_info(tensor("a", 4, offset=offset), data=bytes(96))
        yield refuse(f"offset-{offset}", "offset-alignment", why, file)
    wide = (number("general.alignment", U32, 64),)
    file = with_info(tensor("a", 4, offset=32), pairs=wide, data=bytes(128), alignment=64)
    yield refuse("offset-32-at-alignment-64", "offset-alignment", "64 is the alignment", file)
    for name in LIES:
        why = "it lies far beyond the end of the file"
        file = with_info(tensor("a", 4), tensor("b", 4, offset=LIES[name] & ~31))
        yield refuse(f"offset-{name}", "tensor-beyond-end", why, file)
    wraps = with_info(tensor("a", 4), tensor("b", 64, offset=2**64 - 128))
    why = "offset plus size wraps to a place inside the file"
    yield refuse("offset-wraps-into-the-data", "tensor-beyond-end", why, wraps)
    back = 2**64 - len(Forge().header()) // 32 * 32
    header = with_info(tensor("a", 8), tensor("b", 4, offset=back))
    why = "data offset plus offset wraps back into the header"
    yield refuse("offset-wraps-into-the-header", "tensor-beyond-end", why, header)
    end = with_info(tensor("a", 4), tensor("b", 4, offset=64))
    yield refuse("offset-at-the-end", "data-truncated", "it begins where the file ends", end)


def _overlaps() -> Iterator[Case]:
    same = with_info(tensor("a", 4), tensor("b", 4, offset=0, size=0))
    yield refuse("offset-of-another", "tensor-overlap", "two tensors in one place", same)
    partly = with_info(tensor("a", 16), tensor("b", 16, offset=32))
    yield refuse("offset-inside-another", "tensor-overlap", "b begins inside a", partly)
    around = with_info(tensor("a", 32), tensor("b", 8), tensor("c", 4, offset=96, size=0))
    yield refuse("offset-inside-one-before", "tensor-overlap", "c begins inside a", around)


def _sizes() -> Iterator[Case]:
    why = "the shape needs more bytes than the file has"
    for name, dims in {"2p32": (2**32,), "2p40": (2**20, 2**20), "2p59": (2**59,)}.items():
        yield refuse(f"size-{name}", "data-truncated", why, with_info(tensor("a", *dims, size=64)))
    liar = with_info(tensor("a", 2**40, size=32), tensor("b", 4, offset=32))
    why = "a reaches over b and far beyond the end: no cut file, but a lie"
    yield refuse("size-of-one-in-the-middle", "tensor-beyond-end", why, liar)
    infos = [tensor(f"t{i}", 2**59, offset=i << 59, type=I8_TENSOR, size=8) for i in range(32)]
    why = "the sum of the sizes is 2^64, which wraps to 0"
    yield refuse("size-sum-wraps", "data-truncated", why, with_info(*infos))
