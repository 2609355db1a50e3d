"""Split blocks of quantized types into parts: stored fields, scales, offsets and levels.

Every element is `scale * level + offset`, with the scale and the offset of its group. The layouts
are written once for all array libraries: NumPy here, PyTorch in `frameworks/torch_blocks.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np

from ggufkit.errors import ShapeError, TensorTypeError
from ggufkit.format.types import TensorType
from ggufkit.quants.block_fields import (
    NUMPY,
    AnyArray,
    BlockLayout,
    BlockParts,
    Blocks,
    by_group,
    separate_blocks,
    signed_bytes,
)
from ggufkit.quants.ik_blocks import IK_LAYOUTS
from ggufkit.system.mapped_file import Bytes


def block_parts(data: Bytes, type: TensorType) -> BlockParts:
    """Split whole little-endian blocks into parts; `data` is flat or has a row for each block.

    A type whose rows have a prefix takes whole rows. Raises TensorTypeError for a type that is not
    quantized, ShapeError for part of a block.
    """
    if type.name not in LAYOUTS:
        raise TensorTypeError(
            f"{type} has no blocks of parts", remedy=f"Use one of {', '.join(LAYOUTS)}"
        )
    if data.size % type.block_bytes and not type.row_prefix:
        raise ShapeError(
            f"{data.size} bytes do not divide into the {type.block_bytes} bytes of a {type} block",
            remedy="Pass whole blocks",
        )
    parts = LAYOUTS[type.name](separate_blocks(data, type, NUMPY))
    return parts if type.program else replace(parts, levels=parts.levels.astype(np.int8))


def _single_scale(
    codes: Callable[[Blocks], AnyArray], lowest: int = 0, *, start: int = 0, offset: bool = False
) -> BlockLayout:
    def split(blocks: Blocks) -> BlockParts:
        d, stored = blocks.half(start), codes(blocks)
        levels = blocks.around(stored, -lowest)
        if not offset:
            return BlockParts({"d": d}, d, levels, codes=(stored,))
        m = blocks.half(start + 2)
        return BlockParts({"d": d, "m": m}, d, levels, m, (stored,))

    return split


def _fifths(start: int) -> Callable[[Blocks], AnyArray]:
    """Return the codes of five bits: the upper ones are in four bytes, the others follow."""
    return lambda blocks: (
        blocks.fields(start + 4, start + 20, 4, 16) | (blocks.fields(start, start + 4, 1, 1) << 4)
    )


def _trits(first: int, second: int, third: int) -> BlockLayout:
    """Return a layout of bytes with five digits of base 3 in two runs, four in a third; a scale."""

    def codes(blocks: Blocks) -> AnyArray:
        runs = (blocks.digits(0, first, 5), blocks.digits(first, second, 5))
        return blocks.library.concat((*runs, blocks.digits(second, third, 4)))

    return _single_scale(codes, -1, start=third)


def _twos(stop: int) -> BlockLayout:
    return _single_scale(lambda blocks: blocks.fields(2, stop, 2, 1), -1)


def _ones(blocks: Blocks) -> BlockParts:
    d, codes = blocks.half(0), blocks.fields(2, blocks.data.shape[1], 1, 1)
    return BlockParts({"d": d}, d, blocks.around(2 * codes, 1), codes=(codes,))


def _q8_1(blocks: Blocks) -> BlockParts:
    d = blocks.half(0)
    return BlockParts({"d": d, "s": blocks.half(2)}, d, blocks.signed(4, 36))


def _q8_k(blocks: Blocks) -> BlockParts:
    d = blocks.single(0)
    sums = blocks.library.bits(blocks.data[:, 260:], "int16")
    return BlockParts({"d": d, "bsums": sums}, d, blocks.signed(4, 260))


def _iq4_nl(blocks: Blocks) -> BlockParts:
    d, codes = blocks.half(0), blocks.fields(2, 18, 4, 16)
    return BlockParts({"d": d}, d, blocks.library.lookup("iq4_levels", codes), codes=(codes,))


def _fp4(field: str, count: int) -> BlockLayout:
    def split(blocks: Blocks) -> BlockParts:
        stored = blocks.data[:, :count]
        scales = blocks.library.lookup("mxfp4_scales" if count == 1 else "nvfp4_scales", stored)
        codes = blocks.fields(count, blocks.data.shape[1], 4, 16 if count == 1 else 8)
        levels = blocks.library.lookup("fp4_levels", codes)
        return BlockParts({field: stored}, scales, levels, codes=(codes,))

    return split


def _q2_k(blocks: Blocks) -> BlockParts:
    stored = blocks.data[:, :16]
    return _with_minima(blocks, 80, stored & 15, stored >> 4, blocks.fields(16, 80, 2, 32))


def _q3_k(blocks: Blocks) -> BlockParts:
    d = blocks.half(108)
    scales = blocks.fields(96, 104, 4, 8) | (blocks.fields(104, 108, 2, 4) << 4)
    scales = blocks.around(scales, 32)
    codes = blocks.fields(32, 96, 2, 32) | (blocks.fields(0, 32, 1, 32) << 2)
    fields = {"d": d, "scales": scales}
    return BlockParts(fields, d * scales, blocks.around(codes, 4), codes=(codes,))


def _with_minima(
    blocks: Blocks, start: int, scales: AnyArray, mins: AnyArray, codes: AnyArray
) -> BlockParts:
    """Return the parts of blocks with a minimum for each group, their halves at byte `start`."""
    d, dmin = blocks.half(start), blocks.half(start + 2)
    fields = {"d": d, "dmin": dmin, "scales": scales, "mins": mins}
    return BlockParts(fields, d * scales, blocks.around(codes, 0), -(dmin * mins), (codes,))


def _six_bits(blocks: Blocks, codes: AnyArray) -> BlockParts:
    first, second, third = (blocks.data[:, start : start + 4] for start in (4, 8, 12))
    concat = blocks.library.concat
    scales = concat((first & 63, (third & 15) | ((first >> 6) << 4)))
    mins = concat((second & 63, (third >> 4) | ((second >> 6) << 4)))
    return _with_minima(blocks, 0, scales, mins, codes)


def _q4_k(blocks: Blocks) -> BlockParts:
    return _six_bits(blocks, blocks.fields(16, 144, 4, 32))


def _q5_k(blocks: Blocks) -> BlockParts:
    return _six_bits(blocks, blocks.fields(48, 176, 4, 32) | (blocks.fields(16, 48, 1, 32) << 4))


def _q6_k(blocks: Blocks) -> BlockParts:
    d, scales = blocks.half(208), blocks.signed(192, 208)
    codes = blocks.fields(0, 128, 4, 64) | (blocks.fields(128, 192, 2, 32) << 4)
    fields = {"d": d, "scales": scales}
    return BlockParts(fields, d * scales, blocks.around(codes, 32), codes=(codes,))


def _iq4_xs(blocks: Blocks) -> BlockParts:
    d = blocks.half(0)
    scales = blocks.around(blocks.fields(4, 8, 4, 1) | (blocks.fields(2, 4, 2, 1) << 4), 32)
    codes = blocks.fields(8, 136, 4, 16)
    levels = blocks.library.lookup("iq4_levels", codes)
    return BlockParts({"d": d, "scales": scales}, d * scales, levels, codes=(codes,))


def _on_grid(
    grid: str, blocks: Blocks, points: AnyArray, signs: AnyArray, scales: AnyArray
) -> BlockParts:
    """Return parts: `signs` has a byte for every eight elements, `scales` are as stored.

    Scales of groups are 1, 3, 5 and so on in IQ3_S, and a multiple of 0.5, 1.5, 2.5 in the others.
    """
    d = blocks.half(0)
    levels = blocks.library.lookup(grid, points).reshape(points.shape[0], 256)
    is_negative = blocks.spread(signs, 1, 1) != 0
    fields = {"d": d, "scales": scales, "points": points, "signs": signs}
    counts = blocks.floats(scales)
    if grid == "iq3_s":
        ready = d * (1 + 2 * counts)
    else:
        ready = d * (counts + 0.5) * (0.5 if grid == "iq3_xxs" else 0.25)
    levels = blocks.library.where(is_negative, -levels, levels)
    return BlockParts(fields, ready, levels, codes=(points, signs))


def _even(blocks: Blocks, signs: AnyArray) -> AnyArray:
    """Return seven signs with an eighth that makes their number even, as a byte."""
    odd = signs ^ (signs >> 4)
    odd = odd ^ (odd >> 2)
    odd = (odd ^ (odd >> 1)) & 1
    return blocks.library.cast(signs | (odd << 7), "uint8")


def _sevens(blocks: Blocks, words: AnyArray) -> AnyArray:
    """Return the four fields of seven bits in each word of 32, as bytes of signs."""
    signs = _parts_of_words(blocks, words, 7)
    return _even(blocks, signs)


def _parts_of_words(blocks: Blocks, words: AnyArray, bits: int) -> AnyArray:
    """Return the four lowest fields of `bits` in each word."""
    shifts = blocks.library.steps(words, 4 * bits, bits)
    parts = (words[..., None] >> shifts) & ((1 << bits) - 1)
    return parts.reshape(words.shape[0], 4 * words.shape[1])


def _upper_scales(blocks: Blocks, words: AnyArray) -> AnyArray:
    return blocks.library.cast((words >> 28) & 15, "uint8")


def _iq2_xxs(blocks: Blocks) -> BlockParts:
    words = blocks.words(2, 66, 4)
    points = blocks.data[:, 2:].reshape(-1, 8, 2, 4)[:, :, 0].reshape(-1, 32)
    return _on_grid(
        "iq2_xxs",
        blocks,
        points,
        _sevens(blocks, words[:, 1::2]),
        _upper_scales(blocks, words[:, 1::2]),
    )


def _iq2_xs(blocks: Blocks) -> BlockParts:
    words, scales = blocks.words(2, 66, 2), blocks.fields(66, 74, 4, 1)
    return _on_grid("iq2_xs", blocks, words & 511, _even(blocks, words >> 9), scales)


def _iq2_s(blocks: Blocks) -> BlockParts:
    points = blocks.ints(blocks.data[:, 2:34]) | (blocks.ints(blocks.fields(66, 74, 2, 1)) << 8)
    scales = blocks.fields(74, 82, 4, 1)
    return _on_grid("iq2_s", blocks, points, blocks.data[:, 34:66], scales)


def _iq3_xxs(blocks: Blocks) -> BlockParts:
    words = blocks.words(66, 98, 4)
    scales = _upper_scales(blocks, words)
    return _on_grid("iq3_xxs", blocks, blocks.data[:, 2:66], _sevens(blocks, words), scales)


def _iq3_s(blocks: Blocks) -> BlockParts:
    points = blocks.ints(blocks.data[:, 2:66]) | (blocks.ints(blocks.fields(66, 74, 1, 1)) << 8)
    scales = blocks.fields(106, 110, 4, 1)
    return _on_grid("iq3_s", blocks, points, blocks.data[:, 74:106], scales)


def _shifted(
    blocks: Blocks, d: AnyArray, scales: AnyArray, points: AnyArray, is_down: AnyArray
) -> BlockParts:
    """Return points of IQ1's grid, each moved up or down by an eighth of its scale."""
    ready = d * blocks.floats(2 * scales + 1)
    shifts = 0.125 - 0.25 * blocks.floats(is_down)
    offsets = (by_group(shifts, ready) * ready[..., None]).reshape(shifts.shape)
    levels = blocks.library.lookup("iq1", points).reshape(points.shape[0], 256)
    fields = {"d": d, "scales": scales, "points": points, "shifts": shifts}
    return BlockParts(fields, ready, levels, offsets, (points,))


def _iq1_s(blocks: Blocks) -> BlockParts:
    words = blocks.words(34, 50, 2)
    points = blocks.ints(blocks.data[:, 2:34]) | (_parts_of_words(blocks, words, 3) << 8)
    downs = (words >> 15) & 1
    is_down = blocks.library.concat(tuple(downs[:, i // 4 : i // 4 + 1] for i in range(32)))
    return _shifted(blocks, blocks.half(0), (words >> 12) & 7, points, is_down)


def _iq1_m(blocks: Blocks) -> BlockParts:
    nibbles, words = blocks.ints(blocks.fields(32, 48, 4, 1)), blocks.words(48, 56, 2)
    tops = words >> 12
    bits = tops[:, :1] | (tops[:, 1:2] << 4) | (tops[:, 2:3] << 8) | (tops[:, 3:] << 12)
    d = blocks.floats(blocks.library.bits(blocks.library.cast(bits, "int16"), "float16"))
    points = blocks.ints(blocks.data[:, :32]) | ((nibbles & 7) << 8)
    return _shifted(blocks, d, _parts_of_words(blocks, words, 3), points, nibbles >> 3)


LAYOUTS: Final[dict[str, BlockLayout]] = {
    "Q4_0": _single_scale(lambda blocks: blocks.fields(2, 18, 4, 16), -8),
    "Q4_1": _single_scale(lambda blocks: blocks.fields(4, 20, 4, 16), offset=True),
    "Q5_0": _single_scale(_fifths(2), -16),
    "Q5_1": _single_scale(_fifths(4), offset=True),
    "Q8_0": signed_bytes(Blocks.half, 2, 34), "Q8_1": _q8_1, "Q1_0": _ones,
    "Q2_0": _twos(18), "PQ2_0": _twos(34), "Q2_0_G128": _twos(34), "Q1_0_G32": _ones,
    "TQ1_0": _trits(32, 48, 52), "PTQ1_0": _trits(16, 24, 26),
    "TQ2_0": _single_scale(lambda blocks: blocks.fields(0, 64, 2, 32), -1, start=64),
    "MXFP4": _fp4("e", 1), "NVFP4": _fp4("d", 4), "IQ4_XS": _iq4_xs, "IQ4_NL": _iq4_nl,
    "Q2_K": _q2_k, "Q3_K": _q3_k, "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k, "Q8_K": _q8_k,
    "IQ2_XXS": _iq2_xxs, "IQ2_XS": _iq2_xs, "IQ2_S": _iq2_s,
    "IQ3_XXS": _iq3_xxs, "IQ3_S": _iq3_s, "IQ1_S": _iq1_s, "IQ1_M": _iq1_m,
    **IK_LAYOUTS,
}  # fmt: skip
