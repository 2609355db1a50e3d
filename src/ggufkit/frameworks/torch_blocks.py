"""Decode the blocks of every tensor type with PyTorch's own operations, on any device.

The values are those of `native/quants/types`, bit for bit. Scales are halves and levels are small
integers, so every product fits into a float exactly: a compiler that fuses a multiplication with an
addition changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ggufkit.errors import ShapeError, TensorTypeError, ValueTypeError
from ggufkit.format.types import TensorType
from ggufkit.frameworks import torch_grids
from ggufkit.frameworks.extras import library

torch: Final[Any] = library("torch", "torch")
Blocks = Any  # a torch.Tensor; torch is not there when types are checked
Decoder = Callable[[Blocks], Blocks]


def decode(data: Blocks, type: TensorType) -> Blocks:
    """Return the elements of packed `data` as float32: the last axis counts elements again."""
    decoder = DECODERS.get(type.name)
    if decoder is None:
        raise TensorTypeError(
            f"{type} cannot be decoded", remedy=f"Use one of {', '.join(DECODERS)}"
        )
    if data.dtype != torch.uint8:
        raise ValueTypeError(
            f"packed data must be a tensor of uint8, not of {data.dtype}",
            remedy="Use `data.view(torch.uint8)`",
        )
    if data.ndim == 0 or data.shape[-1] % type.block_bytes:
        raise ShapeError(
            f"rows of shape {tuple(data.shape)} do not divide into the {type.block_bytes} bytes "
            f"of a {type} block",
            remedy="Pass whole rows, with the type that they were packed as",
        )
    width = data.shape[-1] // type.block_bytes * type.block_size
    elements = decoder(data.reshape(data.numel() // type.block_bytes, type.block_bytes))
    return elements.reshape(*data.shape[:-1], width)


# Parts of blocks.


def _half(blocks: Blocks, at: int) -> Blocks:
    """Return the half at byte `at` as float32, one in a row."""
    return blocks[:, at : at + 2].contiguous().view(torch.float16).to(torch.float32)


def _spread(data: Blocks, bits: int, apart: int) -> Blocks:
    """Return the fields of `bits` in bytes: those in one byte belong to elements `apart`."""
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=data.device).reshape(1, 1, -1, 1)
    grouped = data.unflatten(1, (data.shape[1] // apart, 1, apart))
    return ((grouped >> shifts) & ((1 << bits) - 1)).flatten(1)


def _signed(data: Blocks) -> Blocks:
    return data.contiguous().view(torch.int8)


def _words(data: Blocks, width: int) -> Blocks:
    """Return little-endian words of `width` bytes as int32."""
    parts = data.unflatten(1, (data.shape[1] // width, width)).to(torch.int32)
    words = parts[..., 0]
    for byte in range(1, width):
        words = words | (parts[..., byte] << 8 * byte)
    return words


def _scaled(levels: Blocks, scales: Blocks, minima: Blocks | None = None) -> Blocks:
    """Return levels times the scale of their group, less its minimum."""
    count = scales.shape[1]
    grouped = levels.to(torch.float32).unflatten(1, (count, levels.shape[1] // count))
    products = grouped * scales[..., None]
    return (products if minima is None else products - minima[..., None]).flatten(1)


# Plain types.


def _plain(dtype: Any) -> Decoder:  # noqa: ANN401 (a torch.dtype)
    return lambda blocks: blocks.contiguous().view(dtype).to(torch.float32)


# Blocks of one scale.


def _q4_0(blocks: Blocks) -> Blocks:
    return _scaled(_spread(blocks[:, 2:], 4, 16).to(torch.int8) - 8, _half(blocks, 0))


def _q4_1(blocks: Blocks) -> Blocks:
    return _scaled(_spread(blocks[:, 4:], 4, 16), _half(blocks, 0)) + _half(blocks, 2)


def _fifths(blocks: Blocks, at: int) -> Blocks:
    return _spread(blocks[:, at + 4 :], 4, 16) | (_spread(blocks[:, at : at + 4], 1, 1) << 4)


def _q5_0(blocks: Blocks) -> Blocks:
    return _scaled(_fifths(blocks, 2).to(torch.int8) - 16, _half(blocks, 0))


def _q5_1(blocks: Blocks) -> Blocks:
    return _scaled(_fifths(blocks, 4), _half(blocks, 0)) + _half(blocks, 2)


def _q8_0(blocks: Blocks) -> Blocks:
    return _scaled(_signed(blocks[:, 2:]), _half(blocks, 0))


def _q8_1(blocks: Blocks) -> Blocks:
    return _scaled(_signed(blocks[:, 4:]), _half(blocks, 0))


def _q8_k(blocks: Blocks) -> Blocks:
    scale = blocks[:, :4].contiguous().view(torch.float32)
    return _scaled(_signed(blocks[:, 4:260]), scale)


def _q1_0(blocks: Blocks) -> Blocks:
    d = _half(blocks, 0)
    return torch.where(_spread(blocks[:, 2:], 1, 1) != 0, d, -d)


def _q2_0(blocks: Blocks) -> Blocks:
    return _scaled(_spread(blocks[:, 2:], 2, 1).to(torch.int8) - 1, _half(blocks, 0))


def _tq2_0(blocks: Blocks) -> Blocks:
    return _scaled(_spread(blocks[:, :64], 2, 32).to(torch.int8) - 1, _half(blocks, 64))


def _digits(data: Blocks, count: int) -> Blocks:
    """Return the first `count` digits of base 3 in bytes, the first digit of all bytes first."""
    powers = 3 ** torch.arange(count, dtype=torch.int32, device=data.device).reshape(1, -1, 1)
    shifted = (data.to(torch.int32)[:, None, :] * powers) & 255
    return ((shifted * 3) >> 8).flatten(1)


def _tq1_0(blocks: Blocks) -> Blocks:
    parts = (_digits(blocks[:, :32], 5), _digits(blocks[:, 32:48], 5), _digits(blocks[:, 48:52], 4))
    return _scaled(torch.cat(parts, 1) - 1, _half(blocks, 52))


def _mxfp4(blocks: Blocks) -> Blocks:
    scales = _looked_up("mxfp4_scales", blocks[:, :1])
    return _scaled(_looked_up("fp4_levels", _spread(blocks[:, 1:], 4, 16)), scales)


def _nvfp4(blocks: Blocks) -> Blocks:
    scales = _looked_up("nvfp4_scales", blocks[:, :4])
    return _scaled(_looked_up("fp4_levels", _spread(blocks[:, 4:], 4, 8)), scales)


def _iq4_nl(blocks: Blocks) -> Blocks:
    return _scaled(_looked_up("iq4_levels", _spread(blocks[:, 2:], 4, 16)), _half(blocks, 0))


def _looked_up(table: str, numbers: Blocks) -> Blocks:
    return torch_grids.table(table, numbers.device)[numbers.long()]


# Superblocks: 256 elements in groups.


def _q2_k(blocks: Blocks) -> Blocks:
    scales = blocks[:, :16]
    d, minimum = _half(blocks, 80), _half(blocks, 82)
    levels = _spread(blocks[:, 16:80], 2, 32)
    return _scaled(levels, d * (scales & 15), minimum * (scales >> 4))


def _q3_k(blocks: Blocks) -> Blocks:
    packed = blocks[:, 96:108]
    low = _spread(packed[:, :8], 4, 8)
    high = _spread(packed[:, 8:], 2, 4)
    scales = (low | (high << 4)).to(torch.int8) - 32
    levels = _spread(blocks[:, 32:96], 2, 32) | (_spread(blocks[:, :32], 1, 32) << 2)
    return _scaled(levels.to(torch.int8) - 4, _half(blocks, 108) * scales)


def _six_bits(packed: Blocks) -> tuple[Blocks, Blocks]:
    """Return the eight scales and minima of six bits that twelve bytes hold."""
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = torch.cat((first & 63, (third & 15) | ((first >> 6) << 4)), 1)
    minima = torch.cat((second & 63, (third >> 4) | ((second >> 6) << 4)), 1)
    return scales, minima


def _q4_k(blocks: Blocks) -> Blocks:
    scales, minima = _six_bits(blocks[:, 4:16])
    levels = _spread(blocks[:, 16:], 4, 32)
    return _scaled(levels, _half(blocks, 0) * scales, _half(blocks, 2) * minima)


def _q5_k(blocks: Blocks) -> Blocks:
    scales, minima = _six_bits(blocks[:, 4:16])
    levels = _spread(blocks[:, 48:], 4, 32) | (_spread(blocks[:, 16:48], 1, 32) << 4)
    return _scaled(levels, _half(blocks, 0) * scales, _half(blocks, 2) * minima)


def _q6_k(blocks: Blocks) -> Blocks:
    levels = _spread(blocks[:, :128], 4, 64) | (_spread(blocks[:, 128:192], 2, 32) << 4)
    scales = _signed(blocks[:, 192:208])
    return _scaled(levels.to(torch.int8) - 32, _half(blocks, 208) * scales)


def _iq4_xs(blocks: Blocks) -> Blocks:
    upper = _spread(blocks[:, 2:4], 2, 1)
    scales = (_spread(blocks[:, 4:8], 4, 1) | (upper << 4)).to(torch.int8) - 32
    levels = _looked_up("iq4_levels", _spread(blocks[:, 8:], 4, 16))
    return _scaled(levels, _half(blocks, 0) * scales)


# Superblocks of points in a grid.


def _points(grid: str, numbers: Blocks, signs: Blocks, scales: Blocks) -> Blocks:
    """Return scaled points of a grid; `signs` holds a byte for every eight elements."""
    levels = _looked_up(grid, numbers).flatten(1)
    down = _spread(signs, 1, 1) != 0
    return _scaled(torch.where(down, -levels, levels), scales)


def _even(signs: Blocks) -> Blocks:
    """Return seven signs with an eighth that makes their number even, as a byte."""
    odd = signs ^ (signs >> 4)
    odd = odd ^ (odd >> 2)
    odd = (odd ^ (odd >> 1)) & 1
    return (signs | (odd << 7)).to(torch.uint8)


def _sevens(words: Blocks) -> Blocks:
    """Return the four fields of seven bits in each word of 32, as bytes of signs."""
    shifts = torch.arange(0, 28, 7, dtype=torch.int32, device=words.device)
    return _even((words[..., None] >> shifts) & 127).flatten(1)


def _nibble_scales(blocks: Blocks, at: int) -> Blocks:
    return _half(blocks, 0) * (0.5 + _spread(blocks[:, at : at + 8], 4, 1)) * 0.25


def _iq2_xxs(blocks: Blocks) -> Blocks:
    groups = blocks[:, 2:].unflatten(1, (8, 8))
    words = _words(groups[..., 4:].flatten(1), 4)
    scales = _half(blocks, 0) * (0.5 + ((words >> 28) & 15)) * 0.25
    return _points("iq2_xxs", groups[..., :4].flatten(1), _sevens(words), scales)


def _iq2_xs(blocks: Blocks) -> Blocks:
    words = _words(blocks[:, 2:66], 2)
    return _points("iq2_xs", words & 511, _even(words >> 9), _nibble_scales(blocks, 66))


def _iq2_s(blocks: Blocks) -> Blocks:
    numbers = blocks[:, 2:34].to(torch.int32) | (_spread(blocks[:, 66:74], 2, 1).int() << 8)
    return _points("iq2_s", numbers, blocks[:, 34:66], _nibble_scales(blocks, 74))


def _iq3_xxs(blocks: Blocks) -> Blocks:
    words = _words(blocks[:, 66:], 4)
    scales = _half(blocks, 0) * (0.5 + ((words >> 28) & 15)) * 0.5
    return _points("iq3_xxs", blocks[:, 2:66], _sevens(words), scales)


def _iq3_s(blocks: Blocks) -> Blocks:
    numbers = blocks[:, 2:66].to(torch.int32) | (_spread(blocks[:, 66:74], 1, 1).int() << 8)
    scales = _half(blocks, 0) * (1 + 2 * _spread(blocks[:, 106:110], 4, 1))
    return _points("iq3_s", numbers, blocks[:, 74:106], scales)


def _shifted(numbers: Blocks, is_down: Blocks, scales: Blocks) -> Blocks:
    """Return points of IQ1's grid, each moved up or down by an eighth."""
    shift = torch.where(is_down, -0.125, 0.125).to(torch.float32)
    return _scaled((_looked_up("iq1", numbers) + shift[..., None]).flatten(1), scales)


def _iq1_s(blocks: Blocks) -> Blocks:
    words = _words(blocks[:, 34:], 2)
    shifts = torch.arange(0, 12, 3, dtype=torch.int32, device=blocks.device)
    upper = ((words[..., None] >> shifts) & 7).flatten(1)
    scales = _half(blocks, 0) * (2 * ((words >> 12) & 7) + 1)
    is_down = (words >> 15 != 0).repeat_interleave(4, 1)
    return _shifted(blocks[:, 2:34].to(torch.int32) | (upper << 8), is_down, scales)


def _iq1_m(blocks: Blocks) -> Blocks:
    nibbles = _spread(blocks[:, 32:48], 4, 1).to(torch.int32)
    words = _words(blocks[:, 48:], 2)
    tops = words >> 12
    bits = tops[:, :1] | (tops[:, 1:2] << 4) | (tops[:, 2:3] << 8) | (tops[:, 3:] << 12)
    d = bits.to(torch.int16).view(torch.float16).to(torch.float32)
    shifts = torch.arange(0, 12, 3, dtype=torch.int32, device=blocks.device)
    scales = d * (2 * ((words[..., None] >> shifts) & 7).flatten(1) + 1)
    numbers = blocks[:, :32].to(torch.int32) | ((nibbles & 7) << 8)
    return _shifted(numbers, (nibbles & 8) != 0, scales)


DECODERS: Final[dict[str, Decoder]] = {
    "F32": _plain(torch.float32), "F16": _plain(torch.float16), "F64": _plain(torch.float64),
    "BF16": _plain(torch.bfloat16), "I8": _plain(torch.int8), "I16": _plain(torch.int16),
    "I32": _plain(torch.int32), "I64": _plain(torch.int64),
    "Q4_0": _q4_0, "Q4_1": _q4_1, "Q5_0": _q5_0, "Q5_1": _q5_1, "Q8_0": _q8_0, "Q8_1": _q8_1,
    "Q1_0": _q1_0, "Q2_0": _q2_0, "TQ1_0": _tq1_0, "TQ2_0": _tq2_0,
    "MXFP4": _mxfp4, "NVFP4": _nvfp4, "IQ4_NL": _iq4_nl, "IQ4_XS": _iq4_xs,
    "Q2_K": _q2_k, "Q3_K": _q3_k, "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k, "Q8_K": _q8_k,
    "IQ2_XXS": _iq2_xxs, "IQ2_XS": _iq2_xs, "IQ2_S": _iq2_s,
    "IQ3_XXS": _iq3_xxs, "IQ3_S": _iq3_s, "IQ1_S": _iq1_s, "IQ1_M": _iq1_m,
}  # fmt: skip
