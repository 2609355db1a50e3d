"""The type and the shape of stored tensors of an image or video model.

Source: `handle_tensors` of ComfyUI-GGUF's `tools/convert.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ggufkit.conversion.checkpoint.dequantize import unscaled
from ggufkit.conversion.checkpoint.safetensors import F8_E4M3, F8_E5M2
from ggufkit.conversion.tensors.arithmetic import AnyFloats
from ggufkit.conversion.tensors.moves import reshape
from ggufkit.diffusion.architecture import DiffusionArchitecture
from ggufkit.errors import CheckpointError, ValueTypeError
from ggufkit.format.types import tensor_type
from ggufkit.models.model import Tensor
from ggufkit.models.rows import ComputedRows
from ggufkit.models.sources import retyped
from ggufkit.system.mapped_file import Bytes

SMALL_ELEMENTS: Final = 1024  # tensors of at most this size stay in F32
MIN_RESHAPED_ELEMENTS: Final = 512
RESHAPED_WIDTH: Final = 256  # of a superblock
MAX_AXES: Final = 4  # of ggml; tensors with more axes are stored in F32
_INFINITE_BITS: Final = 0x7C00  # the exponent of infinities and NaN in F16


@dataclass(frozen=True, eq=False)
class Half(ComputedRows):
    """Rows of another tensor as F16; numbers beyond the range of F16 are refused."""

    tensor: Tensor

    def read(self, start: int, stop: int) -> Bytes:
        """Return rows as F16; ValueTypeError for NaN, and finite numbers that become infinite."""
        numbers = self._rows(start, stop)
        halves = numbers.view(np.uint16)
        if (halves & _INFINITE_BITS == _INFINITE_BITS).any():
            self._require_same(halves, start, stop)
        return numbers

    def _rows(self, start: int, stop: int) -> Bytes:
        if self.tensor.type.name in ("F32", "BF16"):
            return retyped(self.tensor, tensor_type("F16")).source.read(start, stop)
        data = np.ascontiguousarray(self.tensor.source.read(start, stop))
        with np.errstate(over="ignore"):
            return data.view(np.dtype(self.tensor.type.dtype)).astype(np.float16).view(np.uint8)

    def _require_same(self, halves: AnyFloats, start: int, stop: int) -> None:
        rows = retyped(self.tensor, tensor_type("F32")).source.read(start, stop)
        before = rows.view(np.float32)
        after = halves.view(np.float16)
        spoiled = np.argwhere(~np.isfinite(after) & ~np.isinf(before))
        if len(spoiled):
            row, column = map(int, spoiled[0])
            number = before[row, column]
            raise ValueTypeError(
                f"tensor {self.tensor.name!r} holds {number:g} in row {start + row}, "
                f"column {column}, which F16 cannot hold",
                remedy="The checkpoint is damaged: download it again"
                if np.isnan(number)
                else "Convert with `--outtype bf16` or `--outtype f32`",
            )


def stored_tensor(
    tensor: Tensor, architecture: DiffusionArchitecture, outtype: str | None = None
) -> Tensor:
    """Return a tensor as it is stored; `outtype` is F16, BF16 or F32, None for the source's.

    Raises CheckpointError for a tensor of a packed type without scales.
    """
    if len(tensor.shape) > MAX_AXES:
        return cast(tensor, "F32")
    is_small = len(tensor.shape) == 1 or tensor.elements <= SMALL_ELEMENTS
    is_precise = is_small or any(part in tensor.name for part in architecture.precise)
    kind = outtype or ("BF16" if tensor.type.name == "BF16" else "F16")
    output = cast(tensor, "F32" if tensor.type.name in ("F32", "BF16") and is_precise else kind)
    is_reshaped = (
        architecture.rows_of_256
        and len(tensor.shape) > 1
        and tensor.elements >= MIN_RESHAPED_ELEMENTS
        and tensor.elements % RESHAPED_WIDTH == 0
        and tensor.shape[-1] % RESHAPED_WIDTH != 0
    )
    return reshape(output, (-1, RESHAPED_WIDTH)) if is_reshaped else output


def cast(tensor: Tensor, kind: str) -> Tensor:
    """Return a tensor in the float type `kind`; numbers that F16 cannot hold are refused.

    Raises CheckpointError for a packed type.
    """
    if tensor.type.name == kind:
        return tensor
    if tensor.type in (F8_E4M3, F8_E5M2):
        tensor = unscaled(tensor)
    if tensor.type.dtype is None and tensor.type.name != "BF16":
        raise CheckpointError(f"{tensor.name} is of type {tensor.type}, which needs scales")
    target = tensor_type(kind)
    if kind == "F16":
        return Tensor.over(tensor.name, target, tensor.shape, Half(tensor))
    if tensor.type.name not in ("F32", "F16", "BF16"):
        tensor = Tensor.over(tensor.name, tensor_type("F16"), tensor.shape, Half(tensor))
    return retyped(tensor, target)
