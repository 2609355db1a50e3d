"""Decode the blocks of every tensor type with PyTorch's own operations, on any device.

It uses the layouts of `quants/block_parts.py`, and gives the values of `native/quants/types`, bit
for bit. Scales are halves and levels are small integers, so every product fits into a float
exactly: a compiler that fuses a multiplication with an addition changes nothing.
"""

from __future__ import annotations

from typing import Any, Final

from ggufkit.errors import ShapeError, TensorTypeError, ValueTypeError
from ggufkit.format.types import DTYPES, TensorType
from ggufkit.frameworks.extras import library
from ggufkit.quants.block_fields import (
    LOOKUP_TABLES,
    ArrayLibrary,
    lookup_table,
    separate_blocks,
)
from ggufkit.quants.block_parts import LAYOUTS

torch: Final[Any] = library("torch", "torch")
TorchTensor = Any  # a torch.Tensor; torch is not there when types are checked

DECODABLE: Final = (*DTYPES, *LAYOUTS)
# A copy, because torch tensors are writable and the arrays are shared.
_TABLES: Final = {name: torch.from_numpy(lookup_table(name).copy()) for name in LOOKUP_TABLES}
_COPIES: Final[dict[tuple[str, str], TorchTensor]] = {}


def decode(data: TorchTensor, type: TensorType) -> TorchTensor:
    """Return the elements of packed `data` as float32: the last axis counts elements again."""
    if type.name not in DECODABLE:
        raise TensorTypeError(
            f"{type} cannot be decoded", remedy=f"Use one of {', '.join(DECODABLE)}"
        )
    if data.dtype != torch.uint8:
        raise ValueTypeError(
            f"packed data must be a tensor of uint8, not of {data.dtype}",
            remedy="Use `data.view(torch.uint8)`",
        )
    width = type.width(data.shape[-1]) if data.ndim else -1
    if width < 0 or data.shape[-1] != type.row_bytes(width):
        raise ShapeError(
            f"rows of shape {tuple(data.shape)} do not divide into the {type.block_bytes} bytes "
            f"of a {type} block",
            remedy="Pass whole rows, with the type that they were packed as",
        )
    blocks = separate_blocks(data, type, TORCH)
    if type.name in DTYPES:
        elements = blocks.floats(blocks.library.bits(blocks.data, DTYPES[type.name]))
    else:
        elements = LAYOUTS[type.name](blocks).values()
    return elements.reshape(*data.shape[:-1], width)


def _table(name: str, device: TorchTensor) -> TorchTensor:
    """Return a table on a device, copied there once.

    While code is compiled, the tables are its inputs; what is not on the device yet is copied by
    the compiled code.
    """
    if device.type == "cpu":
        return _TABLES[name]
    table = _COPIES.get((name, str(device)))
    if table is None:
        table = _TABLES[name].to(device)
        if not torch.compiler.is_compiling():
            _COPIES[name, str(device)] = table
    return table


TORCH: Final = ArrayLibrary(
    bits=lambda data, dtype: data.contiguous().view(getattr(torch, dtype)),
    cast=lambda data, dtype: data.to(getattr(torch, dtype)),
    steps=lambda data, stop, step: torch.arange(
        0, stop, step, dtype=data.dtype, device=data.device
    ),
    where=torch.where,
    concat=lambda parts: torch.cat(parts, 1),
    lookup=lambda table, indexes: _table(table, indexes.device)[indexes.long()].to(torch.float32),
    repeat=lambda rows, count: rows.repeat_interleave(count, 0),
)
