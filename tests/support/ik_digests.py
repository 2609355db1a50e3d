"""The SHA-256 of what ik_llama.cpp's own code decodes, for blocks of random bytes, and encodes.

Run with the path of a library made of its `ggml.c`, `ggml-quants.c` and `iqk/iqk_quantize.cpp`
(`-ffp-contract=off`, `-DGGML_USE_IQK_MULMAT`, `-DNDEBUG`), this decodes and encodes the same as the
tests, and also compares the elements of rows that ik_llama.cpp quantized. It writes
ik_digests.json and ik_encoded.json.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

import oracle
from ggufkit import quants
from ggufkit.format.types import IK, TensorType, tensor_type
from ggufkit.quants import kernels
from ggufkit.quants.ik_interleaved import separated

TABLE: Final = Path(__file__).with_name("ik_digests.json")
ENCODED: Final = TABLE.with_name("ik_encoded.json")
ROWS, WIDTH = 16, 1024
Numbers = np.ndarray[Any, Any]
Encode = Callable[[Numbers, "Numbers | None"], Numbers]
# Where errors overflow, ik_llama.cpp aborts.
LARGEST: Final = dict.fromkeys(("IQ4_KSS", "IQ2_KL"), 1e9)
ENCODED_SHAPE: Final = 19, 512  # leaves some rows over, of any number of lanes
# Halves at the beginning of each block, or of each group of interleaved blocks.
HALVES: Final = {
    **dict.fromkeys(("Q6_0", "IQ2_K", "IQ3_K", "IQ4_K", "IQ5_K", "IQ6_K"), 1),
    **dict.fromkeys(("Q2_K_R4", "Q4_K_R4", "Q5_K_R4"), 8),
}
WITHOUT_HALVES: Final = {"MXFP4_R8"}  # besides all types with a scale for each row
BITNET: Final = {"IQ1_BN": "f2", "IQ2_BN": "f4"}  # ik_llama.cpp's decoders leave out the scale


def kinds() -> list[TensorType]:
    """Return ik_llama.cpp's types that ggufkit decodes."""
    return [kind for kind in TensorType if kind.program == IK and quants.codec.can_decode(kind)]


def seeded_rows(kind: TensorType) -> np.ndarray[Any, Any]:
    """Return rows of random bytes whose scales are finite."""
    random = np.random.default_rng(kind.id)
    count = kind.interleaved
    group = random.integers(0, 256, (ROWS // count, count * kind.row_bytes(WIDTH)), np.uint8)
    prefix = count * kind.row_prefix
    scales = random.uniform(-0.01, 0.01, (len(group), count))
    if prefix:
        scales = scales.astype("<f2" if kind.row_prefix == 2 else "<f4")
        group[:, : scales.itemsize * count] = scales.view(np.uint8)
    blocks = group[:, prefix:].reshape(len(group), -1, count * kind.block_bytes)
    halves = HALVES.get(kind.name, count if count > 1 and not prefix else 0)
    if kind.name in WITHOUT_HALVES:
        halves = 0
        blocks[..., :8] = random.integers(110, 130, 8)  # exponents
    d = random.uniform(-0.01, 0.01, (*blocks.shape[:2], halves)).astype("<f2")
    blocks[..., : 2 * halves] = d.view(np.uint8).reshape(*blocks.shape[:2], 2 * halves)
    return group.reshape(ROWS, -1)


def encodable_kinds() -> list[TensorType]:
    """Return ik_llama.cpp's types that ggufkit encodes."""
    return [kind for kind in TensorType if kind.program == IK and kernels.has_encoder(kind)]


def encoded_digests(kind: TensorType, encode: Encode) -> list[str]:
    """Return the SHA-256 of all rows that are encoded without importance, and with it."""
    cases = (_cases(kind, encode, weighted) for weighted in (0, 1))
    return [hashlib.sha256(b"".join(rows)).hexdigest() for rows in cases]


def _cases(kind: TensorType, encode: Encode, weighted: int) -> Iterator[bytes]:
    largest = LARGEST.get(kind.name, np.inf)
    random = np.random.default_rng(1)
    weights = random.exponential(1, ENCODED_SHAPE[1]).astype("f4")
    weights[random.uniform(0, 1, len(weights)) < 0.3] = 0
    for character in oracle.CHARACTERS:
        values = oracle.array(character, *ENCODED_SHAPE).clip(-largest, largest)
        values[3:6] = 0
        values[6:9, :256] = 0
        if np.isfinite(values).all():
            rows = encode(values, weights if weighted else None)
            size = kind.row_prefix or 2  # of the scale that each row, or each block, begins with
            parts = rows.reshape(-1, rows.shape[1] if kind.row_prefix else kind.block_bytes)
            is_nan = np.isnan(np.ascontiguousarray(parts[:, :size]).view(f"<f{size}")[:, 0])
            parts[is_nan, size - 1] &= 0x7F  # processors give NaN different signs
            yield rows.tobytes()


def digest(values: np.ndarray[Any, Any]) -> str:
    """Return the SHA-256 of float32 numbers; minus zero counts as zero.

    For interleaved rows, ik_llama.cpp subtracts where ggml multiplies.
    """
    return hashlib.sha256(np.ascontiguousarray(values + np.float32(0), "<f4")).hexdigest()


def _decoded(library: ctypes.CDLL, kind: TensorType, rows: np.ndarray[Any, Any]) -> Any:
    if kind == "BF16_R16":  # ik_llama.cpp only packs it
        plain, packed = separated(rows, kind), np.empty_like(rows)
        source, target = (x.ctypes.data_as(ctypes.c_void_p) for x in (plain, packed))
        library.repack_bf16_bf16_r16(
            source, target, ctypes.c_int64(len(rows)), ctypes.c_int64(WIDTH)
        )
        assert (packed == rows).all()
        return quants.dequantize(plain, "BF16")
    if kind == "MXFP4_R8":  # its decoder there writes beyond its rows
        return _decoded(library, tensor_type("MXFP4"), separated(rows, kind))
    name = kind.name.lower().replace("q8_kv", "q8_KV")
    decode = getattr(library, f"dequantize_row_{name}")
    count, skipped = kind.interleaved, kind.row_prefix if kind.name in BITNET else 0
    values = np.empty((len(rows) // count, count * kind.width(rows.shape[1])), np.float32)
    for source, target in zip(rows.reshape(len(values), -1), values, strict=True):
        part = np.ascontiguousarray(source[skipped:])
        decode(
            part.ctypes.data_as(ctypes.c_void_p),
            target.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_int64(values.shape[1]),
        )
    values = values.reshape(len(rows), -1)
    if skipped:
        values *= rows[:, :skipped].copy().view(BITNET[kind.name]).astype("f4")
    return values


def _encoded(
    library: ctypes.CDLL, kind: TensorType, values: Numbers, weights: Numbers | None
) -> Any:
    encode = getattr(library, f"quantize_{kind.name.lower().replace('q8_kv', 'q8_KV')}", None)
    if encode is None:
        return None
    rows = np.zeros((len(values), kind.row_bytes(values.shape[1])), np.uint8)
    encode(
        values.ctypes.data_as(ctypes.c_void_p),
        rows.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_int64(len(values)),
        ctypes.c_int64(values.shape[1]),
        None if weights is None else weights.ctypes.data_as(ctypes.c_void_p),
        None,
    )
    return rows


class GgmlOptions(ctypes.Structure):
    """`ggml_init_params` of ggml.h."""

    _fields_ = (("size", ctypes.c_size_t), ("buffer", ctypes.c_void_p), ("plain", ctypes.c_bool))


def main(path: str) -> None:
    """Compare, and write the table."""
    library = ctypes.CDLL(path)
    library.ggml_init(GgmlOptions(1 << 20, None, False))  # fills the table of halves
    for kind in TensorType:
        library.ggml_quantize_init(kind.id)
    random = np.random.default_rng(0)
    values = random.standard_normal((ROWS, WIDTH)).astype("f4")
    values[1] *= 1e4
    values[2, 5:] = 0
    values[3] *= random.uniform(0, 1, WIDTH) > 0.9
    table = {}
    for kind in kinds():
        rows = seeded_rows(kind)
        expected = _decoded(library, kind, rows)
        assert np.isfinite(expected).all(), kind
        table[kind.name] = digest(expected)
        own = quants.dequantize(rows, kind)
        assert digest(own) == table[kind.name], kind
        rows = _encoded(library, kind, values, np.ones(WIDTH, np.float32))
        if rows is not None:
            own, expected = quants.dequantize(rows, kind), _decoded(library, kind, rows)
            assert digest(own) == digest(expected), kind
    TABLE.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    encoded = {
        kind.name: encoded_digests(kind, functools.partial(_encoded, library, kind))
        for kind in encodable_kinds()
    }
    ENCODED.write_text(json.dumps(encoded, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
