"""The tables of levels and grid points that some types look up, as torch tensors.

They live in the native core. It decodes blocks whose scale is 1 and whose numbers count up, which
gives each table back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ggufkit.format.types import tensor_type
from ggufkit.frameworks.extras import library
from ggufkit.quants.codec import decode_rows
from ggufkit.quants.parallel import Floats
from ggufkit.system.mapped_file import Bytes

torch: Final[Any] = library("torch", "torch")
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


def table(name: str, device: Any) -> Any:  # noqa: ANN401 (a torch.device and a torch.Tensor)
    """Return a table on a device, copied there once.

    While code is compiled, the tables are its inputs; what is not on the device yet is copied by
    the compiled code.
    """
    if device.type == "cpu":
        return _TABLES[name]
    found = _COPIES.get((name, str(device)))
    if found is None:
        found = _TABLES[name].to(device)
        if not torch.compiler.is_compiling():
            _COPIES[name, str(device)] = found
    return found


def _point_table(grid: _Grid) -> Floats:
    numbers = np.arange(grid.count)
    blocks = _zeros(grid.type, grid.count)
    blocks[:, :2] = _ONE
    blocks[:, grid.high] = numbers >> 8
    blocks[:, grid.low] = numbers & 255
    points = decode_rows(blocks, grid.type)[:, : grid.size]
    return np.ascontiguousarray(points * np.float32(grid.factor) + np.float32(grid.shift))


def _iq4_levels() -> Floats:
    blocks = _zeros("IQ4_NL", 16)
    blocks[:, :2], blocks[:, 2] = _ONE, np.arange(16)
    return np.ascontiguousarray(decode_rows(blocks, "IQ4_NL")[:, 0])


def _fp4_levels() -> Floats:
    blocks = _zeros("MXFP4", 16)
    blocks[:, 0], blocks[:, 1] = _MXFP4_ONE, np.arange(16)
    return np.ascontiguousarray(decode_rows(blocks, "MXFP4")[:, 0])


def _scales(type: str, at: int) -> Floats:
    """Return the scale that each byte means: with a level of 1, a block gives its scale."""
    blocks = _zeros(type, 256)
    blocks[:, 0], blocks[:, at] = np.arange(256), 1
    return np.ascontiguousarray(decode_rows(blocks, type)[:, 0])


_SMALL: Final[dict[str, Callable[[], Floats]]] = {
    "iq4_levels": _iq4_levels,
    "fp4_levels": _fp4_levels,
    "mxfp4_scales": lambda: _scales("MXFP4", 1),
    "nvfp4_scales": lambda: _scales("NVFP4", 4),
}


def _zeros(type: str, count: int) -> Bytes:
    return np.zeros((count, tensor_type(type).block_bytes), np.uint8)


_TABLES: Final = {
    **{name: torch.from_numpy(_point_table(grid)) for name, grid in _GRIDS.items()},
    **{name: torch.from_numpy(make()) for name, make in _SMALL.items()},
}
_COPIES: Final[dict[tuple[str, str], Any]] = {}
