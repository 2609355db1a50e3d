"""Files that are unusual but valid, or that only llama.cpp refuses."""

from __future__ import annotations

from collections.abc import Iterator

from forging.builder import (
    ARCHITECTURE,
    ARRAY,
    BOOL,
    F32,
    F64,
    I8_TENSOR,
    I64,
    Q8_0,
    STRING,
    U8,
    U32,
    U64,
    Array,
    Forge,
    Number,
    Pair,
    array,
    number,
    string,
    tensor,
    text,
)
from forging.case import Case, accept, warn
from forging.metadata import BAD_UTF8, nested, with_pair
from forging.tensors import with_info

VERSION_2 = number("general.quantization_version", U32, 2)


def every_type() -> tuple[Pair, ...]:
    """Return a pair of each value type, and an array of each."""
    extremes = {0: 255, 1: -128, 2: 65535, 3: -32768, 4: 2**32 - 1, 5: -(2**31), 6: 1.5, 7: 1}
    extremes |= {10: 2**64 - 1, 11: -(2**63), 12: 1e300}
    numbers = [number(f"one.type_{kind}", kind, value) for kind, value in extremes.items()]
    arrays = [array(f"many.type_{kind}", kind, [value, 0]) for kind, value in extremes.items()]
    texts = [string("one.text", "héllo"), array("many.text", STRING, ["a", "", "日本"])]
    return (ARCHITECTURE, *numbers, *arrays, *texts)


def nested_text() -> Pair:
    """Return an array of arrays of strings, of bytes, and of nothing."""
    inner = [Array(STRING, [text("a"), text("é")]), Array(U8, [Number(U8, 1)]), Array(F32)]
    return Pair(text("many.arrays"), ARRAY, Array(ARRAY, inner))


def cases() -> Iterator[Case]:
    yield from _forms()
    yield from _values()
    yield from _keys()
    yield from _shapes()
    yield from _places()
    yield from _alignments()


def _forms() -> Iterator[Case]:
    infos = (tensor("a", 8, 2), tensor("b", 32, type=Q8_0), tensor("c", 5, type=I8_TENSOR))
    fields = {"pairs": (*every_type(), VERSION_2), "infos": infos}
    for version in (2, 3):
        yield accept(f"v{version}", "every value type", Forge(version=version, **fields))
    why = "llama.cpp dropped version 1"
    yield warn("v1", "version-1", why, Forge(version=1, **fields))
    yield warn("v1-big-endian", "version-1", why, Forge(version=1, mark=">", **fields))
    why = "llama.cpp reads its own byte order only"
    for version in (2, 3):
        big = Forge(version=version, mark=">", **fields)
        yield warn(f"v{version}-big-endian", "big-endian", why, big)
    yield accept("nothing", "no pairs and no tensors: 24 bytes and no more", Forge((), ()))
    padded = Forge((), (), tail=bytes(8))
    yield accept("nothing-padded", "as ggml writes it", padded)
    yield accept("only-pairs", "a vocabulary", Forge(infos=()))
    why = "llama.cpp loads no tensors without an architecture"
    yield warn("only-tensors", "architecture-missing", why, Forge(pairs=()))


def _values() -> Iterator[Case]:
    for kind in (U8, BOOL, F64, STRING):
        empty = with_pair(array("a.b", kind, []))
        yield accept(f"empty-array-of-type-{kind}", "an array may be empty", empty)
    empty = with_pair(array("a.b", ARRAY, []))
    why = "llama.cpp refuses arrays of arrays, also if there are none"
    yield warn("empty-array-of-arrays", "array-nested", why, empty)
    yield accept("empty-string", "a string may be empty", with_pair(string("a.b", "")))
    yield accept("empty-strings", "and many", with_pair(array("a.b", STRING, [""] * 100)))
    yield accept("string-nul", "a value may hold NUL", with_pair(string("a.b", "a\0b")))
    why = "floats may be anything"
    floats = array("a.b", F32, [float("nan"), float("inf"), -float("inf"), -0.0, 1e-45])
    yield accept("odd-floats", why, with_pair(floats))
    extremes = (number("a.b", I64, -(2**63)), number("a.c", U64, 2**64 - 1))
    wide = Forge(pairs=(ARCHITECTURE, *extremes))
    yield accept("widest-integers", "64-bit extremes", wide)
    yield accept("long-string", "a template of 1 MiB", with_pair(string("a.b", "x" * 2**20)))
    many = with_pair(array("a.b", STRING, [f"token{i}" for i in range(10_000)]))
    yield accept("many-strings", "a vocabulary", many)
    for name, raw in BAD_UTF8.items():
        why = "tokens of real models are not always text; nothing is lost"
        yield warn(f"string-utf8-{name}", "string-utf8", why, with_pair(string("a.b", raw)))
    item = with_pair(array("a.b", STRING, ["fine", b"\xff", "fine"]))
    yield warn("item-utf8", "string-utf8", why, item)
    inner = Pair(text("a.b"), ARRAY, Array(ARRAY, [Array(STRING, [text(b"\xff")])]))
    yield warn("inner-item-utf8", "string-utf8", why, with_pair(inner))
    for depth in (2, 10, 32):
        why = "llama.cpp refuses arrays of arrays"
        yield warn(f"nested-{depth}", "array-nested", why, with_pair(nested(depth)))
    yield warn("nested-of-many-types", "array-nested", why, with_pair(nested_text()))


def _keys() -> Iterator[Case]:
    odd = {"upper": "General.Name", "space": "a b", "dot": "a..b", "unicode": "schlüssel.größe"}
    odd |= {"escape": "\x1b[31mred", "emoji": "a.🙂", "long": "k." + "k" * 65533}
    for name, key in odd.items():
        note = "" if name == "long" else "key-form"
        yield accept(
            f"key-{name}", "readable, if unusual", with_pair(number(key, U8, 1)), note=note
        )
    quantized = with_info(tensor("a", 32, type=Q8_0))
    why = "the specification asks for the key"
    yield warn("no-quantization-version", "quantization-version", why, quantized)
    shard_number = with_pair(number("split.no", 2, 7))
    yield accept("split-number-alone", "without a count it is no shard", shard_number)


def _shapes() -> Iterator[Case]:
    yield accept("scalar", "no dimensions are one element", with_info(tensor("a")))
    for name, dims in {"first": (0, 4), "last": (4, 0), "only": (0,)}.items():
        file = with_info(tensor("a", *dims), tensor("b", 4))
        yield accept(f"zero-dim-{name}", "a tensor of nothing", file, note="tensor-empty")
    zero = with_info(tensor("a", 0, 2**59, type=Q8_0), pairs=(ARCHITECTURE, VERSION_2))
    note = "tensor-empty"
    yield accept("zero-dim-of-q8_0", "0 is a multiple of 32", zero, note=note)
    ones = with_info(tensor("a", 1, 1, 1, 4))
    yield accept("trailing-ones", "four dimensions are the most that ggml has", ones)
    for count in (5, 8, 32):
        why = "ggml has four dimensions"
        yield warn(f"dims-{count}", "dims-ggml", why, with_info(tensor("a", *[1] * count)))
    for size in (64, 65, 127):
        why = "ggml has 63, ComfyUI's 127"
        yield warn(f"name-{size}-bytes", "name-size-ggml", why, with_info(tensor("n" * size, 4)))
    yield accept("name-63-bytes", "the longest for ggml", with_info(tensor("n" * 63, 4)))
    yield accept("name-unicode", "names are UTF-8", with_info(tensor("größe.重み", 4)))
    escape = with_info(tensor("\x1b[2J", 4))
    yield accept("name-with-escape", "valid, and shown escaped", escape)
    mixed = (tensor(f"t{i}", i, type=I8_TENSOR) for i in range(1, 70))
    yield accept("every-remainder", "padding of every length", with_info(*mixed))
    opaque = with_info(tensor("a", 10, type=77, size=50))
    yield warn("type-unknown-last", "type-unknown", "it reaches to the end of the file", opaque)


def _places() -> Iterator[Case]:
    why = "llama.cpp wants tensors in order and without gaps"
    swapped = with_info(tensor("a", 8, offset=32), tensor("b", 8, offset=0))
    yield warn("tensors-out-of-order", "tensor-order", why, swapped)
    gap = with_info(tensor("a", 8), tensor("b", 8, offset=64), data=bytes(range(96)))
    yield warn("tensors-with-a-gap", "tensor-order", why, gap)
    late = with_info(tensor("a", 8, offset=32), data=bytes(64))
    yield warn("first-tensor-late", "tensor-order", why, late)
    unpadded = with_info(tensor("a", 3), pad_end=False)
    note = "end-padding"
    yield accept("end-unpadded", "some writers leave it out", unpadded, note=note)
    why = "a signature, or what a resumed download left"
    for name, tail in {"tail": b"signature", "long-tail": bytes(5000)}.items():
        yield accept(name, why, Forge(tail=tail), note="trailing-bytes")
    dirty = with_info(tensor("a", 3), tensor("b", 3), padding=b"\xaa")
    yield accept("padding-not-zero", "readers never look at it", dirty, note="padding")
    empty = with_info(tensor("a", 8), tensor("b", 0, offset=32, size=0), tensor("c", 8))
    note = "tensor-empty"
    yield accept("empty-tensor-between", "it shares its place with the next", empty, note=note)


def _alignments() -> Iterator[Case]:
    for value in (8, 16, 64, 128, 4096, 2**20):
        pair = number("general.alignment", U32, value)
        file = with_pair(pair, alignment=value, infos=(tensor("a", 3), tensor("b", 5)))
        yield accept(f"alignment-{value}", "any power of two from 8 on", file)
    pair = number("general.alignment", U32, 2**31)
    file = with_pair(pair, infos=())
    yield accept("alignment-2147483648", "the largest, and no tensor to align", file)
