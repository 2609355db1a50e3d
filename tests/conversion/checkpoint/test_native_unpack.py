"""The native decoders of words, tables and scales do what the formats say, and check every size."""

from __future__ import annotations

import numpy as np
import pytest

import ggufkit._native as _native

RNG = np.random.default_rng(12)
AWQ = [0, 2, 4, 6, 1, 3, 5, 7]
PACKINGS = [(2, 1, 16), (3, 3, 32), (4, 1, 8), (8, 1, 4), (3, 1, 10)]


def plain(words, bits, words_of_group, order):
    """Return the codes along rows, by Python's own integers."""
    codes = np.empty((len(words), words.shape[1] // words_of_group * len(order)), np.uint8)
    for row, group in np.ndindex(len(words), words.shape[1] // words_of_group):
        group_words = words[row, group * words_of_group :][:words_of_group]
        number = sum(int(word) << (32 * n) for n, word in enumerate(group_words))
        for n, column in enumerate(order):
            code = number >> (n * bits) & ((1 << bits) - 1)
            codes[row, group * len(order) + column] = code
    return codes


@pytest.mark.parametrize(("bits", "words", "values"), PACKINGS)
@pytest.mark.parametrize("is_plain", [True, False])
def test_codes_are_those_of_the_bits_along_rows_and_columns(bits, words, values, is_plain):
    order = list(range(values)) if is_plain else RNG.permutation(values).tolist()
    packed = RNG.integers(0, 1 << 32, (5, 3 * words), np.uint32)
    expected = plain(packed, bits, words, order)
    along, down = np.empty_like(expected), np.empty(expected.T.shape, np.uint8)
    _native.unpack(packed, along, bits, words, order, down=False)
    _native.unpack(np.ascontiguousarray(packed.T), down, bits, words, order, down=True)
    assert np.array_equal(along, expected)
    assert np.array_equal(down.T, expected)


@pytest.mark.parametrize(
    ("bits", "words", "order", "shape"),
    [
        (0, 1, [0], (2, 2)), (9, 1, [0], (2, 2)), (4, 0, [0], (2, 2)), (4, 1, [], (2, 0)),
        (4, 1, list(range(9)), (2, 18)), (4, 1, [0, 0], (2, 4)), (4, 1, [0, 2], (2, 4)),
        (4, 1, list(range(8)), (2, 8)), (4, 1, list(range(8)), (1, 16)), (3, 3, [0], (2, 1)),
    ],
)  # fmt: skip
def test_packings_and_shapes_that_do_not_fit_are_refused(bits, words, order, shape):
    packed, codes = np.zeros((2, 2), np.uint32), np.zeros(shape, np.uint8)
    with pytest.raises(ValueError, match=r"the|no"):
        _native.unpack(packed, codes, bits, words, order, down=False)


@pytest.mark.parametrize("group_of", [None, np.array([1, 0, 2, 2, 1], np.int64)])
def test_numbers_are_codes_less_their_zero_times_their_scale(group_of):
    codes = RNG.integers(0, 256, (3, 6), np.uint8)
    zeros = RNG.integers(0, 257, (3, 3)).astype(np.int16)
    scales = RNG.normal(size=(3, 3)).astype(np.float32)
    numbers = np.empty((3, 5), np.float32)
    _native.center(codes, zeros, scales, numbers, 2, group_of)
    index = np.arange(5) // 2 if group_of is None else group_of
    centred = codes[:, :5].astype(np.int32) - zeros[:, index]
    assert np.array_equal(numbers, scales[:, index] * centred.astype(np.float32))


@pytest.mark.parametrize(
    ("width", "size", "group_of"),
    [(7, 3, None), (6, 0, None), (6, 1, None), (2, 9, [0, 3]), (2, 9, [0, -1]), (2, 9, [0])],
)
def test_groups_that_do_not_exist_are_refused(width, size, group_of):
    index = None if group_of is None else np.array(group_of, np.int64)
    codes, zeros = np.zeros((1, 6), np.uint8), np.zeros((1, 3), np.int16)
    scales, numbers = np.zeros((1, 3), np.float32), np.zeros((1, width), np.float32)
    with pytest.raises(ValueError, match=r"the|a "):
        _native.center(codes, zeros, scales, numbers, size, index)


@pytest.mark.parametrize(
    ("places", "size", "length"), [([0, 2], 2, 256), ([0, -1], 2, 256), ([0], 2, 256),
                                   ([0, 1], 1, 256), ([0, 1], 0, 256), ([0, 1], 2, 255)]
)  # fmt: skip
def test_tables_and_scales_that_do_not_fit_are_refused(places, size, length):
    codes, table = np.zeros((2, 4), np.uint8), np.zeros(length, np.float32)
    scales, numbers = np.zeros((2, 2), np.float32), np.zeros((2, 4), np.float32)
    with pytest.raises(ValueError, match=r"the|a "):
        _native.look_up(codes, table, scales, np.array(places, np.int64), numbers, size)


@pytest.mark.parametrize("begin", [0, 1])
@pytest.mark.parametrize("count", [1, 2, 9, 10, 31])
@pytest.mark.parametrize("into", [0, 1, 3])
@pytest.mark.parametrize("block", [4, 5])
def test_halves_of_bytes_are_looked_up_from_any_place(begin, count, into, block):
    pairs = RNG.integers(0, 256, (count + begin + 1) // 2, np.uint8)
    table = RNG.normal(size=16).astype(np.float32)
    scales = RNG.normal(size=-(-(count + into) // block)).astype(np.float32)
    numbers = np.empty(count, np.float32)
    _native.look_up_pairs(pairs, table, scales, numbers, begin, into, block)
    codes = np.stack((pairs >> 4, pairs & 15), axis=1).reshape(-1)[begin : begin + count]
    assert np.array_equal(numbers, table[codes] * scales[(np.arange(count) + into) // block])


@pytest.mark.parametrize(
    ("begin", "into", "block", "pairs", "scales"),
    [(2, 0, 4, 3, 2), (0, 4, 4, 3, 2), (0, 0, 0, 3, 2), (0, 0, 4, 2, 2), (1, 0, 4, 2, 2),
     (0, 0, 4, 3, 1), (0, 3, 5, 3, 1), (0, 0, 1 << 40, 3, 2)],
)  # fmt: skip
def test_too_few_codes_and_scales_are_refused(begin, into, block, pairs, scales):
    packed, table = np.zeros(pairs, np.uint8), np.zeros(16, np.float32)
    factors, numbers = np.zeros(scales, np.float32), np.zeros(5, np.float32)
    with pytest.raises(ValueError, match="the"):
        _native.look_up_pairs(packed, table, factors, numbers, begin, into, block)
