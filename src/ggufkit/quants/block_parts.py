"""Split blocks of quantized types into parts: stored fields, scales, offsets and levels.

Every element is `scale * level + offset`, with the scale and the offset of its group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ggufkit.errors import ShapeError, TensorTypeError
from ggufkit.format.types import TensorType
from ggufkit.quants.lookup_tables import lookup_table
from ggufkit.quants.parallel import Floats, Numbers
from ggufkit.system.mapped_file import Bytes

Integers = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class BlockParts:
    """The parts of blocks; the first axis of each array counts blocks.

    `fields` are the stored numbers by ggml's names, such as `d` (the scale of the whole block),
    `scales` (of its groups, as stored) and `points` (numbers of grid points). `scales` and
    `offsets` are those of each group, ready to use; types without offsets have None. `levels` are
    the integers that a group's scale multiplies, one for each element.
    """

    fields: dict[str, Numbers]
    scales: Floats
    levels: Integers
    offsets: Floats | None = None

    def values(self) -> Floats:
        """Return the elements: equal to those that `dequantize` gives."""
        count, width = self.levels.shape
        grouped = self.levels.astype(np.float32).reshape(count, self.scales.shape[1], -1)
        products = (grouped * self.scales[..., None]).reshape(count, width)
        if self.offsets is None:
            return products
        parts = products.reshape(count, self.offsets.shape[1], -1)
        return (parts + self.offsets[..., None]).reshape(count, width)


def block_parts(data: Bytes, type: TensorType) -> BlockParts:
    """Split whole little-endian blocks into parts; `data` is flat or has a row for each block.

    Raises TensorTypeError for a type that is not quantized, ShapeError for part of a block.
    """
    split = _TYPES.get(type.name)
    if split is None:
        raise TensorTypeError(
            f"{type} has no blocks of parts", remedy=f"Use one of {', '.join(_TYPES)}"
        )
    if data.size % type.block_bytes:
        raise ShapeError(
            f"{data.size} bytes do not divide into the {type.block_bytes} bytes of a {type} block",
            remedy="Pass whole blocks",
        )
    return split(np.ascontiguousarray(data).reshape(-1, type.block_bytes))


# Fields of bits.


def _half(blocks: Bytes, at: int) -> Floats:
    """Return the half at byte `at` as float32, one in a row."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _spread(data: Bytes, bits: int, apart: int) -> Bytes:
    """Return the fields of `bits` in bytes: those in one byte belong to elements `apart`."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8).reshape(1, 1, -1, 1)
    grouped = data.reshape(len(data), data.shape[1] // apart, 1, apart)
    fields: Bytes = (grouped >> shifts) & np.uint8((1 << bits) - 1)
    return fields.reshape(len(data), -1)


def _signed(data: Bytes) -> Integers:
    return np.ascontiguousarray(data).view(np.int8)


def _words(data: Bytes, width: int) -> npt.NDArray[np.int64]:
    """Return little-endian words of `width` bytes."""
    return np.ascontiguousarray(data).view(f"<u{width}").astype(np.int64)


def _less(levels: Numbers, middle: int) -> Integers:
    """Return levels around zero."""
    found: Integers = levels.astype(np.int8) - np.int8(middle)
    return found


def _looked_up(table: str, numbers: Numbers) -> Integers:
    found: Integers = lookup_table(table)[numbers].astype(np.int8)
    return found


# Blocks of one scale.


def _of_one_scale(
    levels: Callable[[Bytes], Integers], *, at: int = 0, offset: bool = False
) -> Callable[[Bytes], BlockParts]:
    """Return the function for a type with its scale at byte `at`, perhaps an offset after it."""

    def split(blocks: Bytes) -> BlockParts:
        d = _half(blocks, at)
        found = levels(blocks)
        if not offset:
            return BlockParts({"d": d}, d, found)
        m = _half(blocks, at + 2)
        return BlockParts({"d": d, "m": m}, d, found, m)

    return split


def _fifths(blocks: Bytes, at: int) -> Numbers:
    return _spread(blocks[:, at + 4 :], 4, 16) | (_spread(blocks[:, at : at + 4], 1, 1) << 4)


def _q8_1(blocks: Bytes) -> BlockParts:
    d = _half(blocks, 0)
    return BlockParts({"d": d, "s": _half(blocks, 2)}, d, _signed(blocks[:, 4:]))


def _q8_k(blocks: Bytes) -> BlockParts:
    d = np.ascontiguousarray(blocks[:, :4]).view("<f4")
    sums = np.ascontiguousarray(blocks[:, 260:]).view("<i2")
    return BlockParts({"d": d, "bsums": sums}, d, _signed(blocks[:, 4:260]))


def _digits(data: Bytes, count: int) -> npt.NDArray[np.int64]:
    """Return the first `count` digits of base 3 in bytes, the first digit of all bytes first."""
    powers = 3 ** np.arange(count).reshape(1, -1, 1)
    shifted = (data.astype(np.int64)[:, None, :] * powers) & 255
    return ((shifted * 3) >> 8).reshape(len(data), -1)


def _trits(blocks: Bytes) -> Integers:
    parts = (_digits(blocks[:, :32], 5), _digits(blocks[:, 32:48], 5), _digits(blocks[:, 48:52], 4))
    return _less(np.concatenate(parts, 1), 1)


def _mxfp4(blocks: Bytes) -> BlockParts:
    scales = lookup_table("mxfp4_scales")[blocks[:, :1]]
    levels = _looked_up("fp4_levels", _spread(blocks[:, 1:], 4, 16))
    return BlockParts({"e": blocks[:, :1]}, scales, levels)


def _nvfp4(blocks: Bytes) -> BlockParts:
    scales = lookup_table("nvfp4_scales")[blocks[:, :4]]
    levels = _looked_up("fp4_levels", _spread(blocks[:, 4:], 4, 8))
    return BlockParts({"d": blocks[:, :4]}, scales, levels)


# Superblocks: 256 elements in groups.


def _q2_k(blocks: Bytes) -> BlockParts:
    d, dmin = _half(blocks, 80), _half(blocks, 82)
    scales, mins = blocks[:, :16] & 15, blocks[:, :16] >> 4
    fields: dict[str, Numbers] = {"d": d, "dmin": dmin, "scales": scales, "mins": mins}
    levels = _less(_spread(blocks[:, 16:80], 2, 32), 0)
    return BlockParts(fields, d * scales, levels, -(dmin * mins))


def _q3_k(blocks: Bytes) -> BlockParts:
    d, packed = _half(blocks, 108), blocks[:, 96:108]
    scales = _less(_spread(packed[:, :8], 4, 8) | (_spread(packed[:, 8:], 2, 4) << 4), 32)
    levels = _spread(blocks[:, 32:96], 2, 32) | (_spread(blocks[:, :32], 1, 32) << 2)
    return BlockParts({"d": d, "scales": scales}, d * scales, _less(levels, 4))


def _six_bits(packed: Bytes) -> tuple[Bytes, Bytes]:
    """Return the eight scales and minima of six bits that twelve bytes hold."""
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate((first & 63, (third & 15) | ((first >> 6) << 4)), 1)
    minima = np.concatenate((second & 63, (third >> 4) | ((second >> 6) << 4)), 1)
    return scales, minima


def _with_minima(blocks: Bytes, levels: Numbers) -> BlockParts:
    """Return the parts of Q4_K or Q5_K."""
    d, dmin = _half(blocks, 0), _half(blocks, 2)
    scales, mins = _six_bits(blocks[:, 4:16])
    fields: dict[str, Numbers] = {"d": d, "dmin": dmin, "scales": scales, "mins": mins}
    return BlockParts(fields, d * scales, _less(levels, 0), -(dmin * mins))


def _q4_k(blocks: Bytes) -> BlockParts:
    return _with_minima(blocks, _spread(blocks[:, 16:], 4, 32))


def _q5_k(blocks: Bytes) -> BlockParts:
    levels = _spread(blocks[:, 48:], 4, 32) | (_spread(blocks[:, 16:48], 1, 32) << 4)
    return _with_minima(blocks, levels)


def _q6_k(blocks: Bytes) -> BlockParts:
    d, scales = _half(blocks, 208), _signed(blocks[:, 192:208])
    levels = _spread(blocks[:, :128], 4, 64) | (_spread(blocks[:, 128:192], 2, 32) << 4)
    return BlockParts({"d": d, "scales": scales}, d * scales, _less(levels, 32))


def _iq4_xs(blocks: Bytes) -> BlockParts:
    d = _half(blocks, 0)
    scales = _less(_spread(blocks[:, 4:8], 4, 1) | (_spread(blocks[:, 2:4], 2, 1) << 4), 32)
    levels = _looked_up("iq4_levels", _spread(blocks[:, 8:], 4, 16))
    return BlockParts({"d": d, "scales": scales}, d * scales, levels)


# Superblocks of points in a grid.


@dataclass(frozen=True)
class _OnGrid:
    """What is stored of points: `signs` has a byte for every eight elements."""

    grid: str
    points: Numbers
    signs: Bytes
    d: Floats
    scales: Numbers

    def parts(self, scales: Floats) -> BlockParts:
        """Return the parts; `scales` are those of the groups, ready to use."""
        levels = _looked_up(self.grid, self.points).reshape(len(self.points), -1)
        is_negative = _spread(self.signs, 1, 1) != 0
        fields = {"d": self.d, "scales": self.scales, "points": self.points, "signs": self.signs}
        return BlockParts(fields, scales, np.where(is_negative, -levels, levels))


def _even(signs: Numbers) -> Bytes:
    """Return seven signs with an eighth that makes their number even, as a byte."""
    odd = signs ^ (signs >> 4)
    odd = odd ^ (odd >> 2)
    odd = (odd ^ (odd >> 1)) & 1
    found: Bytes = (signs | (odd << 7)).astype(np.uint8)
    return found


def _sevens(words: Numbers) -> Bytes:
    """Return the four fields of seven bits in each word of 32, as bytes of signs."""
    return _even((words[..., None] >> np.arange(0, 28, 7)) & 127).reshape(len(words), -1)


def _steps(scales: Numbers) -> Floats:
    """Return scales that count from one half."""
    found: Floats = scales.astype(np.float32) + np.float32(0.5)
    return found


def _iq2_xxs(blocks: Bytes) -> BlockParts:
    d, groups = _half(blocks, 0), blocks[:, 2:].reshape(-1, 8, 8)
    words = _words(groups[..., 4:].reshape(-1, 32), 4)
    points, scales = groups[..., :4].reshape(-1, 32), (words >> 28).astype(np.uint8)
    found = _OnGrid("iq2_xxs", points, _sevens(words), d, scales)
    return found.parts(d * _steps(scales) * np.float32(0.25))


def _iq2_xs(blocks: Bytes) -> BlockParts:
    d, words = _half(blocks, 0), _words(blocks[:, 2:66], 2)
    scales = _spread(blocks[:, 66:74], 4, 1)
    found = _OnGrid("iq2_xs", words & 511, _even(words >> 9), d, scales)
    return found.parts(d * _steps(scales) * np.float32(0.25))


def _iq2_s(blocks: Bytes) -> BlockParts:
    d, scales = _half(blocks, 0), _spread(blocks[:, 74:82], 4, 1)
    points = blocks[:, 2:34].astype(np.int64) | (_spread(blocks[:, 66:74], 2, 1).astype("i8") << 8)
    found = _OnGrid("iq2_s", points, blocks[:, 34:66], d, scales)
    return found.parts(d * _steps(scales) * np.float32(0.25))


def _iq3_xxs(blocks: Bytes) -> BlockParts:
    d, words = _half(blocks, 0), _words(blocks[:, 66:], 4)
    scales = (words >> 28).astype(np.uint8)
    found = _OnGrid("iq3_xxs", blocks[:, 2:66], _sevens(words), d, scales)
    return found.parts(d * _steps(scales) * np.float32(0.5))


def _iq3_s(blocks: Bytes) -> BlockParts:
    d, scales = _half(blocks, 0), _spread(blocks[:, 106:110], 4, 1)
    points = blocks[:, 2:66].astype(np.int64) | (_spread(blocks[:, 66:74], 1, 1).astype("i8") << 8)
    found = _OnGrid("iq3_s", points, blocks[:, 74:106], d, scales)
    return found.parts(d * (1 + 2 * scales.astype(np.float32)))


def _shifted(d: Floats, scales: Numbers, points: Numbers, is_down: Numbers) -> BlockParts:
    """Return points of IQ1's grid, each moved up or down by an eighth of its scale."""
    ready = d * (2 * scales + 1).astype(np.float32)
    shift = np.where(is_down, np.float32(-0.125), np.float32(0.125))
    offsets = np.repeat(ready, shift.shape[1] // ready.shape[1], 1) * shift
    levels = _looked_up("iq1", points).reshape(len(points), -1)
    fields = {"d": d, "scales": scales, "points": points, "shifts": shift}
    return BlockParts(fields, ready, levels, offsets)


def _iq1_s(blocks: Bytes) -> BlockParts:
    words = _words(blocks[:, 34:], 2)
    upper = ((words[..., None] >> np.arange(0, 12, 3)) & 7).reshape(len(blocks), -1)
    is_down = np.repeat(words >> 15 != 0, 4, 1)
    points = blocks[:, 2:34].astype(np.int64) | (upper << 8)
    return _shifted(_half(blocks, 0), (words >> 12) & 7, points, is_down)


def _iq1_m(blocks: Bytes) -> BlockParts:
    nibbles, words = _spread(blocks[:, 32:48], 4, 1).astype(np.int64), _words(blocks[:, 48:], 2)
    tops = words >> 12
    bits = tops[:, :1] | (tops[:, 1:2] << 4) | (tops[:, 2:3] << 8) | (tops[:, 3:] << 12)
    d = bits.astype(np.uint16).view(np.float16).astype(np.float32)
    scales = ((words[..., None] >> np.arange(0, 12, 3)) & 7).reshape(len(blocks), -1)
    points = blocks[:, :32].astype(np.int64) | ((nibbles & 7) << 8)
    return _shifted(d, scales, points, (nibbles & 8) != 0)


_TYPES: Final[dict[str, Callable[[Bytes], BlockParts]]] = {
    "Q4_0": _of_one_scale(lambda blocks: _less(_spread(blocks[:, 2:], 4, 16), 8)),
    "Q4_1": _of_one_scale(lambda blocks: _less(_spread(blocks[:, 4:], 4, 16), 0), offset=True),
    "Q5_0": _of_one_scale(lambda blocks: _less(_fifths(blocks, 2), 16)),
    "Q5_1": _of_one_scale(lambda blocks: _less(_fifths(blocks, 4), 0), offset=True),
    "Q8_0": _of_one_scale(lambda blocks: _signed(blocks[:, 2:])),
    "Q8_1": _q8_1,
    "Q1_0": _of_one_scale(lambda blocks: _less(2 * _spread(blocks[:, 2:], 1, 1), 1)),
    "Q2_0": _of_one_scale(lambda blocks: _less(_spread(blocks[:, 2:], 2, 1), 1)),
    "TQ1_0": _of_one_scale(_trits, at=52),
    "TQ2_0": _of_one_scale(lambda blocks: _less(_spread(blocks[:, :64], 2, 32), 1), at=64),
    "MXFP4": _mxfp4, "NVFP4": _nvfp4, "IQ4_XS": _iq4_xs,
    "IQ4_NL": _of_one_scale(lambda blocks: _looked_up("iq4_levels", _spread(blocks[:, 2:], 4, 16))),
    "Q2_K": _q2_k, "Q3_K": _q3_k, "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k, "Q8_K": _q8_k,
    "IQ2_XXS": _iq2_xxs, "IQ2_XS": _iq2_xs, "IQ2_S": _iq2_s,
    "IQ3_XXS": _iq3_xxs, "IQ3_S": _iq3_s, "IQ1_S": _iq1_s, "IQ1_M": _iq1_m,
}  # fmt: skip
