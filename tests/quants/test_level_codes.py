"""Levels that are chosen for given scales, and blocks with other levels."""

from __future__ import annotations

import numpy as np
import pytest

from ggufkit import quants
from ggufkit.format.types import tensor_type
from ggufkit.quants.block_parts import block_parts
from ggufkit.quants.gptq import BlockColumns, Gptq, level_codes
from ggufkit.quants.search import SEARCHED

WIDTH = 512


def blocks_of(name, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((16, WIDTH), np.float32)
    weights = rng.random(WIDTH, np.float32) + np.float32(0.1)
    packed = quants.quantize(rows, name, imatrix=weights)
    return packed.reshape(-1, tensor_type(name).block_bytes)


def nearest(codes, values, weights):
    """Return the codes and the levels that are chosen for units in columns, without feedback."""
    exact = np.ascontiguousarray(values, np.float32)
    ones, zeros = (np.full((1, exact.shape[1]), value, np.float32) for value in (1, 0))
    columns = BlockColumns(exact, exact.copy(), np.empty_like(exact), zeros[0].copy())
    shares = np.zeros((len(exact), len(exact)), np.float32)
    numbers = codes.choose(columns, ones, zeros, Gptq(shares, weights))
    return numbers, exact - columns.errors


def codes_for(codes, levels):
    """Return the codes nearest to levels, in the order that `put` takes."""
    units = (levels - codes.first).astype(np.float32).reshape(len(levels), -1, codes.unit)
    weights = np.ones(codes.unit, np.float32)
    chosen = [nearest(codes, unit.T, weights)[0] for unit in units]
    return np.array([code.T.reshape(-1) for code in chosen], np.int32)


@pytest.mark.parametrize("name", SEARCHED)
def test_codes_of_the_levels_in_a_block_give_the_same_block(name):
    codes, blocks = level_codes(tensor_type(name)), blocks_of(name)
    levels = block_parts(blocks, tensor_type(name)).levels
    again = codes.bits.put(codes_for(codes, levels).T, blocks)
    assert np.array_equal(block_parts(again, tensor_type(name)).levels, levels)
    assert np.array_equal(again, blocks)


@pytest.mark.parametrize("name", SEARCHED)
def test_other_levels_leave_the_scales_of_a_block(name):
    codes, blocks, others = level_codes(tensor_type(name)), blocks_of(name), blocks_of(name, 1)
    expected = block_parts(others, tensor_type(name)).levels
    parts = block_parts(codes.bits.put(codes_for(codes, expected).T, blocks), tensor_type(name))
    was = block_parts(blocks, tensor_type(name))
    assert np.array_equal(parts.levels, expected)
    assert np.array_equal(parts.scales, was.scales)
    assert was.offsets is None or np.array_equal(parts.offsets, was.offsets)


@pytest.mark.parametrize("name", SEARCHED)
def test_nearest_levels_are_no_farther_than_those_of_another_block(name):
    codes = level_codes(tensor_type(name))
    rng = np.random.default_rng(2)
    weights = rng.random(codes.unit, np.float32)
    levels = block_parts(blocks_of(name), tensor_type(name)).levels.astype(np.float32)
    known = levels.reshape(-1, codes.unit).T
    target = known + rng.normal(0, np.abs(known).mean() / 4, known.shape).astype(np.float32)
    chosen = nearest(codes, target - codes.first, weights)[1] + codes.first
    errors = [weights @ np.square(levels - target) for levels in (chosen, known)]
    # A sign that keeps the number of signs even is chosen before the point.
    assert errors[0].mean() <= errors[1].mean()


def test_types_whose_levels_cannot_be_chosen_alone_have_no_codes():
    assert [level_codes(tensor_type(name)) for name in ("Q8_0", "TQ2_0")] == [None] * 2
