"""Files with a false magic, version, count or length."""

from __future__ import annotations

from collections.abc import Iterator

from forging.builder import ARCHITECTURE, Forge, string, tensor
from forging.case import Case, accept, refuse

# Numbers at which readers break: signs, narrowings, and products that wrap.
LIES = {
    "2p31": 2**31,
    "2p32": 2**32,
    "2p61": 2**61,
    "2p63-1": 2**63 - 1,
    "2p63": 2**63,
    "2p64-1": 2**64 - 1,
}
LIES_32 = {"2p31-1": 2**31 - 1, "2p31": 2**31, "2p32-1": 2**32 - 1}


def cases() -> Iterator[Case]:
    yield from _magics()
    yield from _versions()
    yield from _counts()
    yield from _lucky_counts()
    yield from _cuts()


def _magics() -> Iterator[Case]:
    for name, magic in {"case": b"GGUf", "swapped": b"FUGG", "shifted": b"\0GGU"}.items():
        why = "only the bytes 47 47 55 46 make a GGUF file"
        yield refuse(f"magic-{name}", "magic", why, Forge(magic=magic))


def _versions() -> Iterator[Case]:
    versions = {
        "0": 0,
        "4": 4,
        "259": 259,  # 3, narrowed to 8 bits
        "65539": 65539,  # 3, narrowed to 16 bits
        "2p31": 2**31,
        "2p32-1": 2**32 - 1,
        "4-swapped": 4 << 24,
        "middle-endian": 0x00030000,
    }
    for name, version in versions.items():
        why = "no such version exists, whatever it is when narrowed or swapped"
        yield refuse(f"version-{name}", "version", why, Forge(version_field=version))
    yield refuse(
        "version-swapped-alone",
        "count",
        "a big-endian version makes everything big endian, and then the counts are absurd",
        Forge(version_field=3 << 24),
    )


def _counts() -> Iterator[Case]:
    for name, count in LIES.items():
        why = "each entry takes bytes, and the file has not so many"
        yield refuse(f"tensor-count-{name}", "count", why, Forge(tensor_count=count))
        yield refuse(f"pair-count-{name}", "count", why, Forge(kv_count=count))
    for name, count in {"2p31": 2**31, "2p32-1": 2**32 - 1}.items():
        why = "version 1 counts in 32 bits, which can lie as well"
        v1 = Forge(version=1, tensor_count=count)
        yield refuse(f"tensor-count-v1-{name}", "count", why, v1)
    both = Forge(tensor_count=2**64 - 1, kv_count=2**64 - 1)
    yield refuse("both-counts-2p64-1", "count", "their sum wraps to something plausible", both)


def _lucky_counts() -> Iterator[Case]:
    yield refuse(
        "pair-count-one-too-few",
        "header-truncated",
        "the last pair is read as a tensor info, and its value type as eight dimensions",
        Forge((ARCHITECTURE, string("general.name", "n")), (), kv_count=1, tensor_count=1),
    )
    yield refuse(
        "pair-count-one-too-many",
        "value-type",
        "the first tensor info is read as a pair, and its number of dimensions as a value type",
        Forge(infos=(tensor("a", *[1] * 13),), kv_count=2, tensor_count=0),
    )
    yield refuse(
        "tensor-count-one-too-many",
        "name-length",
        "padding and data are read as the length of a name",
        Forge(tensor_count=3, padding=b"\xff", data=b"\xff" * 64),
    )
    yield refuse(
        "tensor-count-one-too-many-over-zeros",
        "name-empty",
        "padding is read as a tensor without a name, and the data does not suffice",
        Forge(infos=(tensor("a", 4),), tensor_count=2, data=bytes(64)),
    )
    yield accept(
        "tensor-count-one-too-few",
        "the last tensor info is taken for padding, which shows as padding that is not zero",
        Forge(infos=(tensor("a", 8), tensor("b", 8)), tensor_count=1),
        note="padding",
    )


def _cuts() -> Iterator[Case]:
    """Cut a file at each border of its fixed header, and inside what follows."""
    whole = Forge().build()
    for size in (1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 20, 23):
        why = "the fixed header has 24 bytes"
        yield refuse(f"cut-at-{size}", "header-truncated", why, whole[:size])
    yield refuse("cut-in-pairs", "count", "the pair does not fit into what is left", whole[:30])
    header = len(Forge().header())
    yield refuse(
        "cut-in-infos", "header-truncated", "the last info is not whole", whole[: header - 3]
    )
    why = "all infos are there, and nothing of the data"
    yield refuse("cut-before-padding", "data-truncated", why, whole[:header])
    yield refuse("cut-in-padding", "data-truncated", why, whole[: header + 1])
    why = "the last tensor lacks bytes"
    unpadded = Forge(pad_end=False).build()
    yield refuse("cut-one-byte", "data-truncated", why, unpadded[:-1])
    yield refuse("cut-half-the-data", "data-truncated", why, whole[: (header + len(whole)) // 2])
    sparse = Forge(infos=(tensor("a", 2**20, size=64),)).build()
    yield refuse("cut-most-of-the-data", "data-truncated", "4 MiB are announced", sparse)
