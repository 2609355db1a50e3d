"""The other byte order: big-endian files swap the bytes of each field of a block."""

from __future__ import annotations

import functools

import numpy as np

from ggufkit.errors import TensorTypeError
from ggufkit.format.encoding import ByteOrder
from ggufkit.format.types import TensorType
from ggufkit.system.mapped_file import Bytes


def is_bytewise(type: TensorType) -> bool:
    """Whether the type's bytes are the same in both byte orders; False for unknown fields."""
    return bool(type.fields) and not _wide_fields(type.fields)


def to_byte_order(data: Bytes, type: TensorType, order: ByteOrder, target: ByteOrder) -> Bytes:
    """Return packed rows of `type` in another byte order; unchanged if no byte moves.

    Raises TensorTypeError for types of a program that runs on little-endian machines alone.
    """
    if order == target or type.is_opaque or is_bytewise(type) or data.size == 0:
        return data
    if not type.fields:
        raise TensorTypeError(
            f"{type} in {order}-endian order is unknown: {type.program} has little-endian files",
            remedy=f"Make the file again as little-endian, with {type.program}",
        )
    swapped = np.array(data, order="C")
    blocks = swapped.size // type.block_bytes
    for first, count, width in _wide_fields(type.fields):
        steps = (type.block_bytes, width)
        np.ndarray((blocks, count), f"u{width}", swapped, first, steps).byteswap(inplace=True)
    return swapped


@functools.cache
def _wide_fields(fields: str) -> list[tuple[int, int, int]]:
    """Return place, count and width of fields wider than a byte; "2 16*1" is as in types.py."""
    wide_fields: list[tuple[int, int, int]] = []
    offset = 0
    for field in fields.split():
        count, _, width = field.rpartition("*")
        if int(width) > 1:
            wide_fields.append((offset, int(count or 1), int(width)))
        offset += int(count or 1) * int(width)
    return wide_fields
