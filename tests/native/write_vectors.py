"""Write what the kernels of this machine, which the other tests hold to ggml, make of arrays.

    python tests/native/write_vectors.py FILE

`check_vectors`, the program beside this one, holds other compilers and processors to it.
"""

from __future__ import annotations

import itertools
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import ggufkit._native as _native
import oracle
from ggufkit.format.types import TENSOR_TYPES, TensorType

UNUSED, REQUIRED = 0, 2  # what weights are to a type
ENCODE, DECODE = 1, 2
INTEGERS = {"I8", "I16", "I32", "I64"}
ROWS, BLOCKS = 3, 7  # 21 blocks: whole tiles of every lane count but 16, and a rest


def main(path: str) -> None:
    """Write a record for each case."""
    isa = _native.instruction_sets()[0]
    with Path(path).open("wb") as file:
        for number, _, _, _, encodes, use in _native.codecs(isa):
            kind = TENSOR_TYPES[number]
            if encodes:
                file.writelines(encodings(kind, use, isa))
            if kind.program is None:
                file.writelines(decodings(kind, isa))


def encodings(kind: TensorType, use: int, isa: str) -> Iterator[bytes]:
    """Yield a record for each kind of data, without and with weights."""
    width = BLOCKS * (kind.block_size if kind.block_size > 1 else 32)
    characters = ["integers", "zeros"] if kind.name in INTEGERS else oracle.CHARACTERS
    options = {UNUSED: [False], REQUIRED: [True]}.get(use, [False, True])
    for character, weighted in itertools.product(characters, options):
        x = oracle.array(character, ROWS, width)
        x[np.isnan(x)] = np.nan
        if kind.program and not (np.abs(x) < 1e10).all():
            continue  # sums may be NaN, whose sign depends on the processor
        weights = np.random.default_rng(0).random(width, np.float32) if weighted else None
        out = np.zeros(ROWS * kind.row_bytes(width), np.uint8)
        bad = _native.encode(kind.id, x.reshape(-1), out, width, weights, isa)
        yield head(ENCODE, kind, character) + struct.pack("<qqqq", ROWS, width, weighted, bad)
        yield x.tobytes() + (b"" if weights is None else weights.tobytes()) + out.tobytes()


def decodings(kind: TensorType, isa: str) -> Iterator[bytes]:
    """Yield a record of random bytes."""
    blocks = ROWS * BLOCKS * (1 if kind.block_size > 1 else 32)
    data = np.random.default_rng(0).integers(0, 256, blocks * kind.block_bytes, np.uint8)
    out = np.zeros(blocks * kind.block_size, np.float32)
    _native.decode(kind.id, data, out, streaming=False, isa=isa)
    bad = _native.validate(kind.id, data, isa)
    yield head(DECODE, kind, "any bytes") + struct.pack("<qq", blocks, bad)
    yield data.tobytes() + out.tobytes()


def head(what: int, kind: TensorType, character: str) -> bytes:
    """Return how a record begins."""
    return struct.pack("<II24s", what, kind.id, character.encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
