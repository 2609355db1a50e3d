"""One block of a quantized tensor, decoded field by field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ggufkit.errors import TensorTypeError
from ggufkit.models.byte_ranges import little_endian_bytes
from ggufkit.models.model import Tensor
from ggufkit.models.rows import rows_and_width
from ggufkit.quants.block_parts import block_parts
from ggufkit.quants.parallel import Floats, Numbers


@dataclass(frozen=True, eq=False)  # arrays do not compare to one bool
class TensorBlock:
    """A block: the elements of row `row` from `column` on.

    `offset` is the place in the file (None if the tensor is not in a file), `data` the bytes in
    little endian. `fields` are the stored numbers by ggml's names. Each element is
    `scale * level + offset`; `scales` and `offsets` (None for types without) have a number for each
    group of elements, `levels` and `values` one for each element.
    """

    row: int
    column: int
    offset: int | None
    data: bytes
    fields: dict[str, Numbers]
    scales: Floats
    offsets: Floats | None
    levels: Numbers
    values: Floats

    def to_dict(self) -> dict[str, Any]:
        """Return the parts in a form that JSON has: numbers that are not finite become None."""
        return {
            "row": self.row,
            "column": self.column,
            "offset": self.offset,
            "bytes": self.data.hex(),
            "fields": {name: _listed(numbers) for name, numbers in self.fields.items()},
            "scales": _listed(self.scales),
            "offsets": None if self.offsets is None else _listed(self.offsets),
            "levels": _listed(self.levels),
            "values": _listed(self.values),
        }


def tensor_block(tensor: Tensor, row: int, column: int = 0) -> TensorBlock:
    """Return the block that holds an element, and read no other.

    `row` counts rows of the last axis through all other axes. Raises TensorTypeError if the type
    has no blocks, IndexError if there is no such element.
    """
    kind = tensor.type
    if not kind.is_quantized or kind.interleaved > 1:
        raise TensorTypeError(
            f"tensor {tensor.name!r} is of type {kind}, which has no blocks",
            remedy="`numpy()` gives its elements",
        )
    rows, width = rows_and_width(tensor.shape)
    if not (0 <= row < rows and 0 <= column < width):
        message = f"tensor {tensor.name!r} has {rows} rows of {width}, no element {row}, {column}"
        raise IndexError(message)
    first = column // kind.block_size
    row_start = row * tensor.row_bytes
    start = row_start + kind.row_prefix + first * kind.block_bytes
    data = little_endian_bytes(tensor, start, start + kind.block_bytes)
    prefix = little_endian_bytes(tensor, row_start, row_start + kind.row_prefix)
    with np.errstate(all="ignore"):  # scales of a broken block may be infinite or not a number
        parts = block_parts(np.concatenate((prefix, data)), kind)
        values = parts.values()[0]
    return TensorBlock(
        row=row,
        column=first * kind.block_size,
        offset=None if tensor.offset is None else tensor.offset + start,
        data=data.tobytes(),
        fields={name: numbers[0] for name, numbers in parts.fields.items()},
        scales=parts.scales[0],
        offsets=None if parts.offsets is None else parts.offsets[0],
        levels=parts.levels[0],
        values=values,
    )


def _listed(numbers: Numbers) -> list[int | float | None]:
    return [number if np.isfinite(number) else None for number in numbers.tolist()]
