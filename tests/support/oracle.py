"""Run ggml on arrays, and make arrays on which a port of ggml would differ."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import real
from ggufkit.format.types import TensorType

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

# The pinned llama.cpp is the reference; libggml is compiled separately, as a second opinion.
LIBRARIES: Final[dict[str, Callable[[], ctypes.CDLL]]] = {
    "llama.cpp": functools.cache(real.llama_cpp),
    "libggml": functools.cache(real.ggml),
}
# What ggml_quantize_chunk leaves out; of a block of zeros, Q8_K's writes a part alone.
REFERENCES: Final = {"Q8_1": "quantize_row_q8_1_ref", "Q8_K": "quantize_row_q8_K_ref"}
# ggml aborts on some arrays of these, so that test_quants_grid asks it in a process apart.
GRID_TYPES: Final = ("IQ3_S", "IQ3_XXS", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S")
DECODERS: Final = {"F16": "ggml_fp16_to_fp32_row", "BF16": "ggml_bf16_to_fp32_row"}


def encode(
    library: str,
    x: Floats,
    type: TensorType,
    weights: Floats | None = None,
    out: Bytes | None = None,
) -> Bytes:
    """Return what ggml makes of contiguous rows, in the first rows of `out`."""
    shape = (x.shape[0], type.row_bytes(x.shape[1]))
    out = np.zeros(shape, np.uint8) if out is None else out[: len(x)]
    if type.name in REFERENCES:
        reference = getattr(LIBRARIES[library](), REFERENCES[type.name])
        reference.restype = None
        reference.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
        reference(x.ctypes.data, out.ctypes.data, x.size)
        return out
    function = LIBRARIES[library]().ggml_quantize_chunk
    function.restype = ctypes.c_size_t
    number, address = ctypes.c_int64, ctypes.c_void_p
    function.argtypes = [ctypes.c_int, address, address, number, number, number, address]
    columns = None if weights is None else weights.ctypes.data
    written = function(type.id, x.ctypes.data, out.ctypes.data, 0, *x.shape, columns)
    assert written == out.nbytes
    return out


def decode(library: str, data: Bytes, type: TensorType, out: Floats | None = None) -> Floats:
    """Return what ggml's decoder makes of contiguous rows, in the first rows of `out`."""
    shape = (data.shape[0], data.shape[1] // type.block_bytes * type.block_size)
    out = np.empty(shape, np.float32) if out is None else out[: len(data)]
    name = type.name.removesuffix("_K").lower() + "_K" * type.name.endswith("_K")
    function = getattr(LIBRARIES[library](), DECODERS.get(type.name, f"dequantize_row_{name}"))
    function.restype = None
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    function(data.ctypes.data, out.ctypes.data, out.size)
    return out


def is_valid(library: str, data: Bytes, type: TensorType) -> bool:
    """Return ggml's row validation."""
    function = LIBRARIES[library]().ggml_validate_row_data
    function.restype = ctypes.c_bool
    function.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
    return bool(function(type.id, data.ctypes.data, data.nbytes))


def same_floats(a: Floats, b: Floats) -> bool:
    """Whether two arrays have the same bits, any NaN being the same as any other."""
    same = (a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))
    return bool(same.all())


def sprinkled(x: npt.NDArray[Any], random: np.random.Generator, value: float, part: float) -> Any:
    """Return `x` with a part of its elements replaced by `value`."""
    return np.where(random.random(x.shape) < part, value, x)


Maker = Callable[[npt.NDArray[Any], np.random.Generator], Any]

# Each makes an array of a character from one of normally distributed numbers.
CHARACTERS: Final[dict[str, Maker]] = {
    "normal": lambda g, _: g,
    "bfloat16": lambda g, _: (g.astype("f4").view("u4") & 0xFFFF0000).view("f4"),
    "heavy tails": lambda g, r: g * np.exp(r.standard_normal(g.shape) * 3),
    "integers": lambda g, _: np.round(g * 4),
    "half integers": lambda g, _: np.round(g * 8) / 2,
    "constants": lambda g, _: np.broadcast_to(g[:, :1], g.shape),
    "two values": lambda g, _: np.where(g > 0, 1.0, -1.0),
    "one outlier": lambda g, _: np.where(g == g.max(axis=1, keepdims=True), 1e4, g * 1e-3),
    "positive": lambda g, _: np.abs(g),
    "zeros": lambda g, _: np.zeros_like(g),
    "negative zeros": lambda g, _: np.where(g > 0, 0.0, -0.0),
    "mostly zeros": lambda g, r: sprinkled(g, r, 0.0, 0.9),
    "tiny": lambda g, _: g * 1e-38,
    "denormal": lambda g, _: g * 1e-40,
    "least denormal": lambda g, _: np.round(g * 20) * 2.0**-149,
    "tiny halves": lambda g, _: g * 1e-6,
    "huge halves": lambda g, _: g * 3e5,
    "huge": lambda g, _: g * 1e38,
    "mixed scales": lambda g, r: g * np.exp(r.standard_normal(g.shape) * 20),
    "mixed blocks": lambda g, r: g * np.exp(r.uniform(-100, 88, (len(g), 1))),
    "few NaN": lambda g, r: sprinkled(g, r, np.nan, 0.02),
    "many NaN": lambda g, r: sprinkled(g * np.exp(g * 8), r, np.nan, 0.5),
    "all NaN": lambda g, _: g * np.nan,
    "negative NaN": lambda g, r: sprinkled(g, r, -np.nan, 0.3),
    "infinities": lambda g, r: sprinkled(sprinkled(g, r, np.inf, 0.02), r, -np.inf, 0.02),
    "infinities and NaN": lambda g, r: sprinkled(sprinkled(g, r, np.inf, 0.8), r, np.nan, 0.3),
    "all infinite": lambda g, _: np.abs(g) * np.inf,
    "any bits": lambda g, r: r.integers(0, 2**32, g.shape, dtype="u4").view("f4"),
}


def array(character: str, rows: int, width: int, seed: int = 0) -> Floats:
    """Return an array of one kind; each row of 32 elements is drawn independently."""
    random = np.random.default_rng([seed, *character.encode()])
    with np.errstate(all="ignore"):
        values = CHARACTERS[character](random.standard_normal((rows * width // 32, 32)), random)
        return np.ascontiguousarray(values, np.float32).reshape(rows, width)
