"""Files with invalid keys or values."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from forging.builder import (
    ARCHITECTURE,
    ARRAY,
    BOOL,
    F32,
    F64,
    I32,
    STRING,
    U8,
    U16,
    U32,
    U64,
    Array,
    Forge,
    Number,
    Pair,
    Raw,
    Text,
    array,
    number,
    string,
    text,
)
from forging.case import Case, refuse, warn
from forging.container import LIES, LIES_32

BAD_UTF8 = {
    "lone-continuation": b"\x80",
    "cut-sequence": b"\xe2\x82",
    "overlong": b"\xc0\xaf",
    "surrogate": b"\xed\xa0\x80",
    "beyond-unicode": b"\xf4\x90\x80\x80",
    "latin-1": b"caf\xe9",
}


def with_pair(pair: Pair, **fields: object) -> Forge:
    return Forge(pairs=(ARCHITECTURE, pair), **fields)


def cases() -> Iterator[Case]:
    yield from _keys()
    yield from _value_types()
    yield from _lengths()
    yield from _array_counts()
    yield from _depths()
    yield from _bools()
    yield from _alignments()
    yield from _splits()


def _keys() -> Iterator[Case]:
    why = "no reader can ask for it"
    yield refuse("key-empty", "key-empty", why, with_pair(number("", U8, 1)))
    twice = with_pair(string("general.architecture", "bert"))
    yield refuse("key-twice", "key-duplicate", "which of the two is meant?", twice)
    apart = Forge(pairs=(ARCHITECTURE, number("x.y", U8, 1), string("general.architecture", "a")))
    yield refuse("key-twice-apart", "key-duplicate", "another key stands between them", apart)
    why = "C readers stop at the NUL and see another key"
    yield refuse("key-nul", "key-nul", why, with_pair(number("a.b\0c", U8, 1)))
    both = Forge(pairs=(number("a.b\0c", U8, 1), number("a.b\0d", U8, 2)))
    yield refuse("keys-equal-up-to-nul", "key-nul", "C readers see one key twice", both)
    for name, raw in BAD_UTF8.items():
        why = "keys are text"
        yield refuse(f"key-utf8-{name}", "key-utf8", why, with_pair(number(b"a." + raw, U8, 1)))
    long = with_pair(number("k" * 65536, U8, 1))
    yield refuse("key-65536-bytes", "key-size", "the format allows 65535", long)
    for name, length in {**LIES, "one-too-many": 1000}.items():
        lie = with_pair(Pair(Text(b"a.b", length), U8, Number(U8, 1)))
        yield refuse(f"key-length-{name}", "key-length", "the file has not so many bytes", lie)


def _value_types() -> Iterator[Case]:
    types = {"13": 13, "255": 255, "260": 260, "65540": 65540, **LIES_32}
    for name, kind in types.items():
        why = "there are value types 0 to 12, also when a larger number narrows to one"
        pair = Pair(text("a.b"), kind, Number(U32, 1))
        yield refuse(f"value-type-{name}", "value-type", why, with_pair(pair))
        full = Pair(text("a.b"), ARRAY, Array(kind, [Number(U32, 1)]))
        yield refuse(f"element-type-{name}", "element-type", why, with_pair(full))
        why = "an empty array has a type as well"
        empty = Pair(text("a.b"), ARRAY, Array(kind))
        yield refuse(f"element-type-{name}-of-nothing", "element-type", why, with_pair(empty))
    inner = Pair(text("a.b"), ARRAY, Array(ARRAY, [Array(U8, [Number(U8, 1)]), Array(99)]))
    yield refuse("element-type-inside", "element-type", "in an inner array", with_pair(inner))


def _lengths() -> Iterator[Case]:
    why = "the file has not so many bytes"
    for name, length in {**LIES, "one-too-many": 1000}.items():
        lie = Text(b"llama", length)
        yield refuse(f"string-length-{name}", "string-length", why, _value(STRING, lie))
        items = Array(STRING, [text("fine"), lie])
        yield refuse(f"item-length-{name}", "string-length", why, _value(ARRAY, items))
    wraps = Text(b"llama", 2**64 - 9)
    yield refuse(
        "string-length-wraps", "string-length", "length + 8 wraps to 0", _value(STRING, wraps)
    )
    narrow = Forge(version=1, pairs=(Pair(text("a.b"), STRING, Text(b"x", 2**32 - 1)),))
    yield refuse("string-length-v1", "string-length", "version 1 lies in 32 bits", narrow)
    cut = Forge(pairs=(Pair(text("a.b"), U64, Raw(b"\1")),), infos=())
    yield refuse("number-cut", "header-truncated", "7 of 8 bytes are missing", cut)


def _value(type: int, value: Text | Array) -> Forge:
    return with_pair(Pair(text("a.b"), type, value))


def _array_counts() -> Iterator[Case]:
    why = "the elements do not fit into the file, and count times size may not wrap"
    for kind in (U8, BOOL, U16, F32, STRING, ARRAY, U64, F64):
        for name in ("2p32", "2p61", "2p63", "2p64-1"):
            pair = array("a.b", kind, [], LIES[name])
            yield refuse(f"array-count-{name}-of-type-{kind}", "array-count", why, with_pair(pair))
    items = [Number(U8, 1)] * 8
    for kind, count in {U16: 2**63 + 4, F32: 2**62 + 2, U64: 2**61 + 1}.items():
        pair = Pair(text("a.b"), ARRAY, Array(kind, items, count))
        why = "count times size is 8 once wrapped, and 8 bytes are there"
        yield refuse(f"array-size-wraps-of-type-{kind}", "array-count", why, with_pair(pair))
    short = array("a.b", U32, [1, 2, 3], 1000)
    yield refuse(
        "array-count-too-large", "array-count", "1000 elements, 3 are there", with_pair(short)
    )
    inner = Pair(text("a.b"), ARRAY, Array(ARRAY, [Array(U64, [], 2**61)]))
    yield refuse("array-count-inside", "array-count", "in an inner array", with_pair(inner))


def nested(depth: int) -> Pair:
    """Return a pair whose arrays are nested so deep, around one byte."""
    head = struct.pack("<IQ", ARRAY, 1) * (depth - 1) + struct.pack("<IQ", U8, 1)
    return Pair(text("a.b"), ARRAY, Raw(head + b"\7"))


def _depths() -> Iterator[Case]:
    for depth in (33, 34, 100, 100_000):
        why = "32 levels are the limit, and no file may exhaust the stack"
        yield refuse(f"arrays-nested-{depth}", "array-depth", why, with_pair(nested(depth)))


def _bools() -> Iterator[Case]:
    for value in (2, 128, 255):
        why = "a bool is 0 or 1"
        yield refuse(f"bool-{value}", "bool-value", why, with_pair(_bool(BOOL, Number(U8, value))))
    items = Array(BOOL, [Number(U8, value) for value in (0, 1, 2, 255)])
    yield refuse("bool-in-array", "bool-value", "also in an array", with_pair(_bool(ARRAY, items)))
    inner = Array(ARRAY, [items])
    why = "also in an array of arrays"
    yield refuse("bool-in-nested-array", "bool-value", why, with_pair(_bool(ARRAY, inner)))


def _bool(type: int, value: Number | Array) -> Pair:
    return Pair(text("a.b"), type, value)


def _alignments() -> Iterator[Case]:
    for value in (0, 1, 2, 3, 4, 7, 12, 24, 31, 33, 2**31 - 1, 2**31 + 8, 2**32 - 1):
        why = "an alignment is a power of two and a multiple of 8"
        pair = number("general.alignment", U32, value)
        yield refuse(f"alignment-{value}", "alignment-value", why, with_pair(pair))
    others = {
        "uint64": number("general.alignment", U64, 32),
        "int32": number("general.alignment", I32, 32),
        "uint8": number("general.alignment", U8, 32),
        "float32": number("general.alignment", F32, 32),
        "bool": number("general.alignment", BOOL, 1),
        "string": string("general.alignment", "32"),
        "array": array("general.alignment", U32, [32]),
    }
    for name, pair in others.items():
        why = "the alignment is a uint32 by the specification"
        yield refuse(f"alignment-as-{name}", "alignment-type", why, with_pair(pair))


def _splits() -> Iterator[Case]:
    others = {
        "string": string("split.count", "2"),
        "array": array("split.count", U16, [2]),
        "float": number("split.count", F32, 2),
        "nan": number("split.count", F64, float("nan")),
        "bool": number("split.count", BOOL, 1),
        "negative": number("split.count", I32, -1),
    }
    for name, pair in others.items():
        why = "a count of shards is a whole number"
        yield refuse(f"split-count-{name}", "split-value", why, with_pair(pair))
    number_ = with_pair(string("split.no", "first"))
    yield refuse("split-number-string", "split-value", "and so is a shard's number", number_)
    for name, kind in {"uint32": U32, "uint8": U8, "int32": I32}.items():
        why = "llama.cpp reads uint16 only"
        one = with_pair(number("split.count", kind, 1))
        yield warn(f"split-count-{name}", "split-type", why, one)
