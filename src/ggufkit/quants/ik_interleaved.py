"""Rows that ik_llama.cpp interleaves in groups of 4, 8 or 16: the same bits in another order.

Most types are blocks of a plain type, which one table converts exactly in both directions. Others
have a layout of their own, for which `OWN_LAYOUTS` has the parts of a block.
"""

from __future__ import annotations

import functools
from typing import Final

import numpy as np
import numpy.typing as npt

from ggufkit.errors import ShapeError, TensorTypeError
from ggufkit.format.types import TensorType, tensor_type
from ggufkit.quants.block_fields import (
    AnyArray,
    BlockLayout,
    BlockParts,
    Blocks,
    by_group,
    signed_bytes,
)
from ggufkit.system.mapped_file import Bytes

# The fields of a row's block, in order: its bytes (and which bits of each, if not all), the bit
# where the field of all rows begins, in bytes, and where each bit of an element's number goes:
# three bits count bits in a byte, others bytes of the field, the highest ones rows. After `w` the
# bits of a word are in another order: see `_WORD`.
_FIELDS: Final = {
    key: fields.split()
    for key, _, fields in (
        line.partition(" ")
        for line in """
    Q4_0_R8 2@0:0123456 16@16:0123489567
    Q5_0_R4 2@0:012345 4@8:3412056 16@24:017348256
    Q8_0_R8 2@0:0123456 32@16:0123489a567
    Q2_K_R4 16@16:012567834 64@80:08934127a56 2@0:012345 2@8:012345
    Q3_K_R4 32@56:7893401256 64@184:08934127a56 8@24:01256734 4@8:0125634 2@0:012345
    Q4_K_R4 2@0:012345 2@8:012345 8.0.4@32:0156234 8.4.2@16:056134 8.6.2@16.5:056134 \
4@48:0125634 128@64:01934827ab56
    Q5_K_R4 2@0:012345 2@8:012345 8.0.4@32:0156234 8.4.2@16:056134 8.6.2@16.5:056134 \
4@48:0125634 32@64:7893410256 128@192:01934827ab56
    Q6_K_R4 128@328:01a348279b56 64@72:08934217a56 16@8:012567834 2@0:012345
    IQ4_NL_R4 2@0:012345 16@8:017348256
    IQ3_S_R4 2@0:012345 64@8:01267589a34 8@264:01256734 32@296:3401278956 4@424:0156234
    IQ2_S_R4 2@0:012345 32@8:0123478956 32@168:0123478956 8@136:01256734 8@296:01256734
    IQ4_XS_R8 2@0:0123456 2@16:0612345 4@32:01672345 128@64:0193428abc567
    Q6_0_R4 2@0:012345 8@8:07234156 16@40:017348256
    IQ2_BN_R4 16@0:078341256
    IQ2_K_R4 2@0:012345 2@8:501234 8@16:01567234 64@48:08934127a56
    IQ3_K_R4 2@0:012345 2@8:501234 2@16:501234 8@24:01567234 64@56:08934127a56 32@312:7893401256
    IQ4_K_R4 2@0:012345 2@8:501234 4@16:0561234 8@32:01567234 128@64:01734829ab56
    IQ5_K_R4 2@0:012345 2@8:501234 4@16:0561234 8@32:01567234 128@64:01934827ab56 32@576:7893420156
    IQ4_KS_R4 8@0:01256734 128@32:01734829ab56
    IQ5_KS_R4 8@0:01256734 128@32:01934827ab56 32@544:7893420156
    MXFP4_R8 1@0:012345 16@8:0123489567
    IQ2_XS_R4 2@0:012345 64@8:01234589a67 8@264:01256734
    IQ3_XXS_R4 2@0:012345 64@136:01234589a67 32w@8:0123478956
    BF16_R16 4@0:012345678
    IQ1_S_R4 4@0:0125634 2@16:012345
    IQ1_M_R4 4@0:0125634 2@16:012534 1@24:01234
    Q8_K_R8 2@0:0123456 256@16:0123489abcd567
    Q8_K_R16 2@0:01234567 256@32:012349abcde5678
    Q8_KV_R8 32@0:0123489a567
    """.strip().split("\n    ")
    )
}
_FIELDS["IQ2_XXS_R4"] = ["2@0:012345"] + [
    field
    for start in range(8, 136, 16)
    for field in (f"4@{start + 128}:0123456", f"4w@{start}:0123456")
]
# A word of 32 bits ends with four bits of the scale, which interleaved are the lowest of each byte.
_WORD: Final = np.array([8 * (i // 7) + i % 7 + 1 for i in range(28)] + [0, 8, 16, 24])
# Interleaved bytes with seven signs above another bit. A sign is the difference from the one below.
_SIGNS: Final = {
    "IQ2_XXS_R4": slice(8, 136),
    "IQ3_XXS_R4": slice(8, 136),
    "IQ2_XS_R4": slice(9, 264, 2),
}
_PLAIN_SIGNS: Final = np.array([byte ^ (byte << 1 & 0xFC) for byte in range(256)], np.uint8)


def separated_type(type: TensorType) -> TensorType:
    """Return the type of separated rows; `type` itself where no other program has a name for it."""
    return tensor_type(type.plain) if type.plain else type


def require_groups(count: int, type: TensorType) -> None:
    """Raise ShapeError for a number of rows that `type` cannot interleave."""
    if count % type.interleaved:
        raise ShapeError(
            f"{count} rows of {type} are not groups of {type.interleaved}",
            remedy="Pass whole groups; a tensor with such a number of rows is damaged",
        )


def separated(rows: Bytes, type: TensorType) -> Bytes:
    """Return interleaved rows as rows of `separated_type`, without loss.

    Raises ShapeError for a part of a group, TensorTypeError for a type that is not interleaved.
    """
    if type.interleaved == 1:
        raise TensorTypeError(f"{type} is not interleaved", remedy="Leave it as it is")
    require_groups(rows.size // max(rows.shape[-1], 1), type)
    groups = rows.reshape(-1, type.interleaved * rows.shape[-1])
    start, order = type.interleaved * type.row_prefix, _order(type)
    blocks = groups[:, start:].reshape(-1, len(order) // 8)
    prefix = groups[:, :start].reshape(len(groups), type.interleaved, type.row_prefix)
    if type.name in _SIGNS:
        blocks = _with_signs(blocks, type, _PLAIN_SIGNS)
    single = _bits_moved(blocks, order).reshape(len(groups), -1, type.interleaved, _unit(type))
    single = single.swapaxes(1, 2).reshape(len(groups), type.interleaved, -1)
    return np.concatenate((prefix, single), 2).reshape(rows.shape)


def interleaved(rows: Bytes, type: TensorType) -> Bytes:
    """Return rows of the type `type.plain` as rows of `type`: the inverse of `separated`.

    Raises ShapeError for a part of a group, TensorTypeError for a type without a plain form.
    """
    if type.plain is None:
        raise TensorTypeError(f"{type} has no plain form", remedy="Use a type such as Q4_K_R4")
    require_groups(rows.size // max(rows.shape[-1], 1), type)
    groups = rows.reshape(-1, type.interleaved, rows.shape[-1])
    prefix, single = np.split(groups, [type.row_prefix], axis=2)
    if single.shape[2] % _unit(type):
        raise ShapeError(f"{type} interleaves pairs of columns", remedy=f"Use {type.plain}")
    single = single.reshape(len(groups), type.interleaved, -1, _unit(type)).swapaxes(1, 2)
    order = np.argsort(_order(type))
    blocks = _bits_moved(single.reshape(-1, len(order) // 8), order)
    if type.name in _SIGNS:
        blocks = _with_signs(blocks, type, np.argsort(_PLAIN_SIGNS).astype(np.uint8))
    parts = [part.reshape(len(groups), -1) for part in (prefix, blocks)]
    return np.concatenate(parts, 1).reshape(rows.shape)


def _unit(type: TensorType) -> int:
    """Return the bytes of a row that lie together: a block, or of BF16 two columns."""
    return type.block_bytes * (2 if type.block_size == 1 else 1)


def _bits_moved(blocks: Bytes, order: npt.NDArray[np.int64]) -> Bytes:
    bits = np.unpackbits(blocks, axis=1, bitorder="little")
    return np.packbits(bits.take(order, 1), axis=1, bitorder="little")


def _with_signs(blocks: Bytes, type: TensorType, signs: Bytes) -> Bytes:
    changed: Bytes = blocks.copy()
    changed[:, _SIGNS[type.name]] = signs[blocks[:, _SIGNS[type.name]]]
    return changed


@functools.cache
def _order(type: TensorType) -> npt.NDArray[np.int64]:
    """Return for each bit of a group's blocks, one after the other, where it is interleaved."""
    order = np.empty((type.interleaved, _unit(type), 8), np.int64)
    offset = 0
    for field in _FIELDS[type.name]:
        bits, _, place = field.partition("@")
        start, _, digits = place.partition(":")
        size, first, count = (
            map(int, bits.split(".")) if "." in bits else (int(bits.strip("w")), 0, 8)
        )
        numbers = np.arange(1 << len(digits))
        if bits.endswith("w"):
            numbers = numbers & ~31 | _WORD[numbers & 31]
        places = sum(((numbers >> i) & 1) << int(digit, 16) for i, digit in enumerate(digits))
        part = order[:, offset : offset + size, first : first + count]
        part[...] = np.reshape(places + int(8 * float(start)), part.shape)
        offset += size if first + count == 8 else 0  # noqa: PLR2004 (bits)
    return order.reshape(-1)


def _on_grid(blocks: Blocks, scales: AnyArray, points: AnyArray, is_down: AnyArray) -> BlockParts:
    """Return points of IQ1's grid, each moved up or down by an eighth of its scale."""
    levels = blocks.library.lookup("iq1", points)
    shifts = 0.125 - 0.25 * blocks.floats(is_down)
    levels = (by_group(levels.reshape(len(points), -1), shifts) + shifts[..., None]).reshape(
        len(points), -1
    )
    d = blocks.half(0)
    return BlockParts({"d": d, "scales": scales}, d * blocks.floats(scales), levels)


def _iq1_s_r4(blocks: Blocks) -> BlockParts:
    word = blocks.words(6, 8, 2)
    upper = (word >> blocks.library.steps(word, 12, 3)) & 7
    points = blocks.ints(blocks.data[:, 2:6]) | (upper << 8)
    down = ((word >> 15) & 1) | 0 * points
    return _on_grid(blocks, 2 * ((word >> 12) & 7) + 1, points, down)


def _iq1_m_r4(blocks: Blocks) -> BlockParts:
    upper = blocks.ints(blocks.fields(6, 8, 4, 1))
    points = blocks.ints(blocks.data[:, 2:6]) | ((upper & 7) << 8)
    return _on_grid(blocks, blocks.fields(8, 9, 4, 1), points, upper >> 3)


def _q8_k_r16(blocks: Blocks) -> BlockParts:
    d = blocks.half(0)
    return BlockParts({"d": d}, d, blocks.data[:, 2:], d * -128)


OWN_LAYOUTS: Final[dict[str, BlockLayout]] = {
    "IQ1_S_R4": _iq1_s_r4,
    "IQ1_M_R4": _iq1_m_r4,
    "Q8_K_R8": signed_bytes(Blocks.half, 2, 258),
    "Q8_K_R16": _q8_k_r16,
    "Q8_KV_R8": signed_bytes(Blocks.single, 4, 36),
}
