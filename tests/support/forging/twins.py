"""False values of every field in the other forms: big endian, and version 1 with 32 bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from forging.builder import ARRAY, STRING, U8, Array, Forge, Info, Number, Pair, Text, tensor, text
from forging.case import Case, refuse

# The limits of signs and widths; version 1 has no numbers of 64 bits.
NARROW: Final = {"2p31-1": 2**31 - 1, "2p31": 2**31, "2p32-1": 2**32 - 1}
WIDE: Final = NARROW | {"2p32": 2**32, "2p63-1": 2**63 - 1, "2p63": 2**63, "2p64-1": 2**64 - 1}
FORMS: Final = {"v1": (1, "<"), "v1-big": (1, ">"), "v3-big": (3, ">")}


def _of_pair(type: int, make: Callable[[int], Text | Array]) -> Callable[[int], dict[str, object]]:
    return lambda value: {"pairs": (Pair(text("a.b"), type, make(value)),)}


# What is a lie, the rule it breaks, and the fields of a file that tells it.
LIES: Final[dict[str, tuple[str, Callable[[int], dict[str, object]]]]] = {
    "tensor-count": ("count", lambda value: {"tensor_count": value}),
    "pair-count": ("count", lambda value: {"kv_count": value}),
    "key-length": (
        "key-length",
        lambda value: {"pairs": (Pair(Text(b"a.b", value), U8, Number(U8, 1)),)},
    ),
    "string-length": ("string-length", _of_pair(STRING, lambda value: Text(b"llama", value))),
    "item-length": (
        "string-length",
        _of_pair(ARRAY, lambda value: Array(STRING, [text("fine"), Text(b"a", value)])),
    ),
    "array-count": ("array-count", _of_pair(ARRAY, lambda value: Array(U8, [], value))),
    "inner-count": (
        "array-count",
        _of_pair(ARRAY, lambda value: Array(ARRAY, [Array(STRING, [], value)])),
    ),
    "name-length": ("name-length", lambda value: {"infos": (Info(Text(b"a", value)),)}),
}


def cases() -> Iterator[Case]:
    for form, (version, mark) in FORMS.items():
        for field, (rule, fields) in LIES.items():
            for name, value in (NARROW if version == 1 else WIDE).items():
                why = "the file has not so many, whatever its form"
                lie = Forge(version=version, mark=mark, **fields(value))
                yield refuse(f"{field}-{name}-{form}", rule, why, lie)
        yield from _dimensions(form, version, mark)


def _dimensions(form: str, version: int, mark: str) -> Iterator[Case]:
    for name, value in NARROW.items():
        many = Forge(version=version, mark=mark, infos=(tensor("a", 4, n_dims=value),))
        yield refuse(f"dims-count-{name}-{form}", "dims-count", "none has so many", many)
        vast = Forge(version=version, mark=mark, infos=(tensor("a", value, size=16),))
        yield refuse(f"dim-{name}-{form}", "data-truncated", "it needs gigabytes", vast)
        far = (tensor("a", 4), tensor("b", 4, offset=value & ~31))
        beyond = Forge(version=version, mark=mark, infos=far)
        why = "it lies far beyond the end of the file"
        yield refuse(f"offset-{name}-{form}", "tensor-beyond-end", why, beyond)
