"""The tables of levels, scales and grid points that some types look up, as arrays.

They live in the native core. It decodes blocks whose scale is 1 and whose numbers count up, which
gives each table back.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final

import numpy as np

from ggufkit.format.types import tensor_type
from ggufkit.quants.codec import decode_rows
from ggufkit.quants.parallel import Floats
from ggufkit.system.mapped_file import Bytes

_ONE: Final = (0x00, 0x3C)  # the half 1.0
_MXFP4_ONE: Final = 128  # the exponent of 1.0


@dataclass(frozen=True)
class _Grid:
    """Where blocks of a type hold the number of their first point, and what undoes the scale."""

    type: str
    count: int
    size: int  # elements of a point
    low: int  # byte of the number's low eight bits
    high: int  # byte of the bits above
    factor: float = 1.0
    shift: float = 0.0


_GRIDS: Final = {
    "iq2_xxs": _Grid("IQ2_XXS", 256, 8, 2, 2, 8.0),
    "iq2_xs": _Grid("IQ2_XS", 512, 8, 2, 3, 8.0),
    "iq2_s": _Grid("IQ2_S", 1024, 8, 2, 66, 8.0),
    "iq3_xxs": _Grid("IQ3_XXS", 256, 4, 2, 2, 4.0),
    "iq3_s": _Grid("IQ3_S", 512, 4, 2, 66),
    "iq1": _Grid("IQ1_S", 2048, 8, 2, 34, 1.0, -0.125),
}
_SCALES: Final = {"mxfp4_scales": ("MXFP4", 1), "nvfp4_scales": ("NVFP4", 4)}
LOOKUP_TABLES: Final = ("iq4_levels", "fp4_levels", *_SCALES, *_GRIDS)


@functools.cache
def lookup_table(name: str) -> Floats:
    """Return a table of `LOOKUP_TABLES`: a number for each index, or a point for each."""
    if name in _GRIDS:
        found = _points(_GRIDS[name])
    elif name in _SCALES:
        found = _scales(*_SCALES[name])
    else:
        found = _iq4_levels() if name == "iq4_levels" else _fp4_levels()
    return np.ascontiguousarray(found)


def _points(grid: _Grid) -> Floats:
    numbers = np.arange(grid.count)
    blocks = _zeros(grid.type, grid.count)
    blocks[:, :2] = _ONE
    blocks[:, grid.high] = numbers >> 8
    blocks[:, grid.low] = numbers & 255
    points = decode_rows(blocks, grid.type)[:, : grid.size]
    found: Floats = points * np.float32(grid.factor) + np.float32(grid.shift)
    return found


def _iq4_levels() -> Floats:
    blocks = _zeros("IQ4_NL", 16)
    blocks[:, :2], blocks[:, 2] = _ONE, np.arange(16)
    return decode_rows(blocks, "IQ4_NL")[:, 0]


def _fp4_levels() -> Floats:
    blocks = _zeros("MXFP4", 16)
    blocks[:, 0], blocks[:, 1] = _MXFP4_ONE, np.arange(16)
    return decode_rows(blocks, "MXFP4")[:, 0]


def _scales(type: str, at: int) -> Floats:
    """Return the scale that each byte means: with a level of 1, a block gives its scale."""
    blocks = _zeros(type, 256)
    blocks[:, 0], blocks[:, at] = np.arange(256), 1
    return decode_rows(blocks, type)[:, 0]


def _zeros(type: str, count: int) -> Bytes:
    return np.zeros((count, tensor_type(type).block_bytes), np.uint8)
