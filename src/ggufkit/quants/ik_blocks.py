"""The block layouts of ik_llama.cpp's types, for all array libraries.

Types with a scale for each row have it before each block here: `separate_blocks` puts it there.
"""

from __future__ import annotations

from typing import Final

from ggufkit.quants.block_fields import (
    AnyArray,
    BlockLayout,
    BlockParts,
    Blocks,
    by_group,
    signed_bytes,
)


def _chosen(
    blocks: Blocks,
    table: str,
    scaled: tuple[AnyArray, AnyArray],
    codes: AnyArray,
    is_moved: AnyArray,
) -> BlockParts:
    """Return groups that choose between the levels of `table` and the same ones, moved."""
    size = {"iq2k": 4, "iq3k": 8, "iq4k": 16, "iq5k": 32, "iq6k": 64}[table]
    indexes = by_group(codes, is_moved) + (is_moved * size)[..., None]
    levels = blocks.library.lookup(table, indexes).reshape(codes.shape)
    return _scaled(blocks, scaled, levels, codes)


def _scaled(
    blocks: Blocks, scaled: tuple[AnyArray, AnyArray], levels: AnyArray, codes: AnyArray
) -> BlockParts:
    """Return groups that have scales of their own, below that of the block or row."""
    d, scales = scaled
    fields = {"d": d, "scales": scales}
    return BlockParts(fields, d * blocks.floats(scales), levels, codes=(codes,))


def _q6_0(blocks: Blocks) -> BlockParts:
    d = blocks.half(0)
    upper = blocks.fields(2, 10, 2, 8).reshape(-1, 4, 8)[:, [0, 2, 1, 3]].reshape(-1, 32)
    codes = blocks.fields(10, 26, 4, 16) | (upper << 4)
    return BlockParts({"d": d}, d, blocks.around(codes, 32), codes=(codes,))


def _iq2_k(blocks: Blocks) -> BlockParts:
    scales = blocks.around(blocks.fields(4, 12, 4, 1), 8)
    codes = blocks.fields(12, 76, 2, 32)
    return _chosen(blocks, "iq2k", (blocks.half(0), scales), codes, blocks.fields(2, 4, 1, 1))


def _iq3_k(blocks: Blocks) -> BlockParts:
    scales = 2 * blocks.around(blocks.fields(6, 14, 4, 1), 0) + 1
    scales = scales * (1 - 2 * blocks.around(blocks.fields(4, 6, 1, 1), 0))
    codes = blocks.fields(14, 78, 2, 32) | (blocks.fields(78, 110, 1, 32) << 2)
    return _chosen(blocks, "iq3k", (blocks.half(0), scales), codes, blocks.fields(2, 4, 1, 1))


def _scales_of_six(blocks: Blocks) -> AnyArray:
    return blocks.around(blocks.fields(8, 16, 4, 1) | (blocks.fields(4, 8, 2, 1) << 4), 32)


def _iq4_k(blocks: Blocks) -> BlockParts:
    d, is_moved, codes = blocks.half(0), blocks.fields(2, 4, 1, 1), blocks.fields(16, 144, 4, 16)
    return _chosen(blocks, "iq4k", (d, _scales_of_six(blocks)), codes, is_moved)


def _iq5_k(blocks: Blocks) -> BlockParts:
    codes = blocks.fields(16, 144, 4, 32) | (blocks.fields(144, 176, 1, 32) << 4)
    d, is_moved = blocks.half(0), blocks.fields(2, 4, 1, 1)
    return _chosen(blocks, "iq5k", (d, _scales_of_six(blocks)), codes, is_moved)


def _iq6_k(blocks: Blocks) -> BlockParts:
    codes = blocks.fields(20, 148, 4, 32) | (blocks.fields(148, 212, 2, 32) << 4)
    d, is_moved = blocks.half(0), blocks.fields(2, 4, 1, 1)
    return _chosen(blocks, "iq6k", (d, blocks.signed(4, 20)), codes, is_moved)


def _odd_scales(blocks: Blocks, stored: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Return scales of seven bits from -127 on, and the bits that choose the levels."""
    whole = blocks.ints(stored)
    return (whole & 254) - 127, whole & 1


def _iq4_ks(blocks: Blocks) -> BlockParts:
    scales, is_moved = _odd_scales(blocks, blocks.data[:, 4:12])
    codes = blocks.ints(blocks.fields(12, 140, 4, 16))
    return _chosen(blocks, "iq4k", (blocks.single(0), scales), codes, is_moved)


def _iq5_ks(blocks: Blocks) -> BlockParts:
    scales, is_moved = _odd_scales(blocks, blocks.data[:, 4:12])
    codes = blocks.fields(12, 140, 4, 32) | (blocks.fields(140, 172, 1, 32) << 4)
    return _chosen(blocks, "iq5k", (blocks.single(0), scales), blocks.ints(codes), is_moved)


def _iq4_kss(blocks: Blocks) -> BlockParts:
    """Each word of 16 bits has one bit of the scale, below 15 that give four codes."""
    words = blocks.words(4, 132, 2)
    bits = (words & 1).reshape(-1, 8, 8) << blocks.library.steps(words, 8, 1)
    scales, is_moved = _odd_scales(blocks, bits.sum(-1))
    words = (words & 0xFFFE) ^ ((words & 0xFFFE) >> 1)
    pairs = (words[..., None] >> blocks.library.steps(words, 16, 8)) & 255
    pairs = blocks.library.cast(pairs.reshape(-1, 128), "uint8")
    codes = blocks.ints(blocks.spread(pairs, 4, 16))
    return _chosen(blocks, "iq4k", (blocks.single(0), scales), codes, is_moved)


def _iq2_ks(blocks: Blocks) -> BlockParts:
    extra = blocks.fields(2, 4, 1, 1)
    scales = blocks.around(blocks.fields(4, 8, 4, 1) | (extra[:, 8:] << 4), 16)
    codes = blocks.fields(8, 72, 2, 32)
    return _chosen(blocks, "iq2k", (blocks.half(0), scales), codes, extra[:, :8])


def _iq3_ks(blocks: Blocks) -> BlockParts:
    extra = blocks.fields(2, 4, 1, 1)
    scales = blocks.around(blocks.fields(4, 8, 4, 4) | (extra[:, :8] << 4), 16)
    codes = blocks.fields(8, 72, 2, 32) | (blocks.fields(72, 104, 1, 32) << 2)
    return _chosen(blocks, "iq3k", (blocks.half(0), scales), codes, extra[:, 8:])


def _iq2_kl(blocks: Blocks) -> BlockParts:
    d, upper = blocks.half(0), blocks.fields(2, 4, 2, 1)
    scales = blocks.around(blocks.fields(4, 8, 4, 4) | (upper << 4), 32)
    codes = blocks.fields(8, 72, 4, 16) | (blocks.fields(72, 88, 1, 16) << 4)
    levels = blocks.library.lookup("iq2kl", codes).reshape(-1, 256)
    return _scaled(blocks, (d, scales), levels, codes)


def _iq2_bn(blocks: Blocks) -> BlockParts:
    d, codes = blocks.single(0), blocks.fields(4, 20, 2, 16)
    return BlockParts({"d": d}, d, blocks.around(codes, 1), codes=(codes,))


def _iq1_bn(blocks: Blocks) -> BlockParts:
    """Each byte has five numbers from 0 to 2: three bytes 15 of 16, and byte 14 the last ones."""
    powers = 3 ** blocks.library.steps(blocks.ints(blocks.data[:, :1]), 5, 1)
    shares = (blocks.ints(blocks.data[:, 2:15])[..., None] * (81 // powers)) & 255
    digits = (shares + (shares >> 1)) >> 7
    most, last = digits[:, :12].reshape(-1, 15), digits[:, 12, :4].reshape(-1, 1)
    codes = blocks.library.concat((most, last)).reshape(-1, 64)
    return BlockParts({"d": blocks.half(0)}, blocks.half(0), codes - 1, codes=(codes,))


def _iq1_kt(blocks: Blocks) -> BlockParts:
    stored = blocks.data[:, 4:12]
    upper = blocks.ints(blocks.fields(44, 60, 4, 16)) << 8
    top = blocks.ints(blocks.spread(stored, 1, 1).reshape(-1, 8, 8)[:, :, 4:].reshape(-1, 32)) << 12
    points = blocks.ints(blocks.data[:, 12:44]) | upper | top
    d, scales = blocks.single(0), blocks.library.lookup("iq4k", stored & 15)
    levels = blocks.library.lookup("trellis", points).reshape(-1, 256)
    return _scaled(blocks, (d, scales), levels, points)


def _iq2_kt(blocks: Blocks) -> BlockParts:
    scales = blocks.library.lookup("iq4k", blocks.fields(4, 8, 4, 4))
    points = blocks.words(8, 72, 2)
    levels = blocks.library.lookup("trellis", points).reshape(-1, 256)
    return _scaled(blocks, (blocks.single(0), scales), levels, points)


def _iq3_kt(blocks: Blocks) -> BlockParts:
    points = blocks.words(8, 72, 2)
    levels = abs(blocks.library.lookup("trellis", points).reshape(-1, 256))
    is_negative = blocks.fields(72, 104, 1, 32) != 0
    levels = blocks.library.where(is_negative, -levels, levels)
    return _scaled(blocks, (blocks.single(0), blocks.fields(4, 8, 4, 4)), levels, points)


def _iq4_kt(blocks: Blocks) -> BlockParts:
    """A word for 32 elements has a scale, three upper bits of each point, and half of the table."""
    words = blocks.words(4, 36, 4)
    tops = (words[..., None] >> (8 + blocks.library.steps(words, 24, 3))) & 7
    points = blocks.ints(blocks.data[:, 36:100]) | (
        blocks.ints(blocks.fields(100, 132, 4, 32)) << 8
    )
    points = by_group(points, words) | (tops << 12) | ((words & 1) << 15)[..., None]
    levels = blocks.library.lookup("trellis", points)[..., :4].reshape(-1, 256)
    scales = ((words & 255) >> 1) - 64
    return _scaled(blocks, (blocks.single(0), scales), levels, points)


IK_LAYOUTS: Final[dict[str, BlockLayout]] = {
    "Q6_0": _q6_0, "IQ2_K": _iq2_k, "IQ3_K": _iq3_k, "IQ4_K": _iq4_k, "IQ5_K": _iq5_k,
    "IQ6_K": _iq6_k, "IQ4_KS": _iq4_ks, "IQ5_KS": _iq5_ks, "IQ4_KSS": _iq4_kss,
    "IQ2_KS": _iq2_ks, "IQ3_KS": _iq3_ks, "IQ2_KL": _iq2_kl,
    "Q8_KV": signed_bytes(Blocks.single, 8, 40), "IQ2_BN": _iq2_bn,
    "IQ1_BN": _iq1_bn, "IQ1_KT": _iq1_kt, "IQ2_KT": _iq2_kt, "IQ3_KT": _iq3_kt, "IQ4_KT": _iq4_kt,
}  # fmt: skip
