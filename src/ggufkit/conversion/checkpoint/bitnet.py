"""Decodes BitNet's packed weights, four of three values in a byte, when rows are read.

Source: `dequant_bitnet` of llama.cpp's converter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from ggufkit.conversion.checkpoint.packed_weights import required
from ggufkit.conversion.tensors.arithmetic import read_floats
from ggufkit.errors import CheckpointError
from ggufkit.format.types import tensor_type
from ggufkit.models.model import Tensor
from ggufkit.models.rows import Made
from ggufkit.system.mapped_file import Bytes

_F32: Final = tensor_type("F32")
_BYTES: Final = ("U8", "I8")
_FLOATS: Final = ("F32", "F16", "BF16")
_SCALE: Final = ".weight_scale"
_VALUES: Final = 4  # in a byte
_BITS: Final = 2


@dataclass(frozen=True, eq=False)
class PackedQuarters(Made):
    """Rows of (code - 1) / scale; the bits of a byte are of rows in each quarter of the matrix."""

    packed: Tensor
    scale: np.float32

    def read(self, start: int, stop: int) -> Bytes:
        """Unpack and scale rows."""
        height = self.packed.shape[0]  # of a quarter
        codes = np.empty((stop - start, self.packed.shape[1]), np.uint8)
        for quarter in range(start // height, -(-stop // height)):
            first, last = max(start, quarter * height), min(stop, (quarter + 1) * height)
            before = quarter * height
            data = self.packed.source.read(first - before, last - before)
            codes[first - start : last - start] = data >> (_BITS * quarter) & (_VALUES - 1)
        numbers = (codes.astype(np.float32) - 1) / self.scale
        return numbers.view(np.uint8)


def bitnet(held: Mapping[str, Tensor]) -> list[Tensor]:
    """Decode each matrix that has a scale; CheckpointError lists every problem."""
    made = {name: tensor for name, tensor in held.items() if not name.endswith(_SCALE)}
    problems: list[str] = []
    for stem in [name.removesuffix(_SCALE) for name in held if name.endswith(_SCALE)]:
        try:
            made[f"{stem}.weight"] = _unpacked(held, stem)
        except CheckpointError as error:  # noqa: PERF203 (each error is reported)
            problems.append(error.message)
    if problems:
        raise CheckpointError("the packed weights are damaged", problems)
    return list(made.values())


def _unpacked(held: Mapping[str, Tensor], stem: str) -> Tensor:
    scale = required({_SCALE: held[stem + _SCALE]}, stem, _SCALE, _FLOATS, (1,))
    parts = {".weight": held[f"{stem}.weight"]} if f"{stem}.weight" in held else {}
    packed = required(parts, stem, ".weight", _BYTES)
    if len(packed.shape) != 2:  # noqa: PLR2004
        raise CheckpointError(f"{packed.name} of shape {packed.shape} is not a matrix")
    number = np.float32(read_floats(scale, _F32, 0, 1).reshape(-1)[0])
    shape = (_VALUES * packed.shape[0], packed.shape[1])
    return Tensor.over(packed.name, _F32, shape, PackedQuarters(packed, number))
