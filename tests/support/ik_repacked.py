"""The SHA-256 of rows of random bytes as ik_llama.cpp's own code interleaves them.

Run with the path of the library that `ik_digests.py` describes; it writes ik_repacked.json.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np

import ik_digests
from ggufkit.format.types import TensorType, tensor_type

TABLE: Final = Path(__file__).with_name("ik_repacked.json")
ROWS, WIDTH = 32, 512


def kinds() -> list[TensorType]:
    """Return the interleaved types that have a plain form."""
    return [kind for kind in TensorType if kind.plain]


def random_rows(kind: TensorType) -> np.ndarray[Any, Any]:
    """Return random bytes as plain rows for an interleaved type."""
    nbytes = tensor_type(kind.plain).row_bytes(WIDTH)
    return np.random.default_rng(kind.id).integers(0, 256, (ROWS, nbytes), np.uint8)


def digest(rows: np.ndarray[Any, Any]) -> str:
    """Return the SHA-256 of bytes."""
    return hashlib.sha256(np.ascontiguousarray(rows)).hexdigest()


def _repacked(library: ctypes.CDLL, context: int, kind: TensorType) -> np.ndarray[Any, Any]:
    rows = random_rows(kind)
    out = np.empty_like(rows)
    if kind == "BF16_R16":  # `iqk_repack_tensor` knows it only on processors with AVX512-BF16
        source, target = (x.ctypes.data_as(ctypes.c_void_p) for x in (rows, out))
        library.repack_bf16_bf16_r16(source, target, ctypes.c_int64(ROWS), ctypes.c_int64(WIDTH))
        return out
    plain = tensor_type(kind.plain).id
    tensor = ctypes.c_void_p(
        library.ggml_new_tensor_2d(
            ctypes.c_void_p(context), plain, ctypes.c_int64(WIDTH), ctypes.c_int64(ROWS)
        )
    )
    data = library.ggml_get_data(tensor)
    ctypes.memmove(data, rows.ctypes.data, rows.nbytes)
    assert library.iqk_repacked_type(tensor) == kind.id, kind
    library.iqk_repack_tensor(tensor)
    ctypes.memmove(out.ctypes.data, data, out.nbytes)
    return out


def main(path: str) -> None:
    """Write the table."""
    library = ctypes.CDLL(path)
    for name in ("ggml_init", "ggml_new_tensor_2d", "ggml_get_data"):
        getattr(library, name).restype = ctypes.c_void_p
    context = library.ggml_init(ik_digests.GgmlOptions(1 << 24, None, False))
    table = {kind.name: digest(_repacked(library, context, kind)) for kind in kinds()}
    TABLE.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
