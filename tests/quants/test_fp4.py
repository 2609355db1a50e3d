"""Rounding of MXFP4 and NVFP4: exponents near powers of two, scales and levels near ties."""

from __future__ import annotations

import numpy as np
import pytest

import oracle
from ggufkit import quants
from ggufkit.format.types import tensor_type

LEVELS = np.array([0, 1, 2, 3, 4, 6, 8, 12])


@pytest.fixture(params=quants.instruction_sets())
def isa(request, monkeypatch):
    monkeypatch.setenv("GGUFKIT_ISA", request.param)
    return request.param


def assert_is_ggmls(x, name):
    for library in oracle.LIBRARIES:
        theirs = oracle.encode(library, x, tensor_type(name))
        np.testing.assert_array_equal(quants.encode_rows(x, name), theirs)


def beside(numbers, steps):
    """Return every positive float32 up to so many steps away from one of `numbers`."""
    bits = np.asarray(numbers, np.float32).view(np.int32)[..., np.newaxis]
    values = (bits + np.arange(-steps, steps + 1, dtype=np.int32)).reshape(-1)
    return values[(values > 0) & (values < 0x7F800000)].view(np.float32)


def test_exponents_near_powers_of_two_match_a_rounded_logarithm(isa):
    largest = beside(2.0 ** np.arange(-149, 128), 100)
    x = np.outer(largest, np.linspace(-1, 1, 32)).astype(np.float32)
    assert_is_ggmls(x, "MXFP4")


@pytest.mark.parametrize("name", ["MXFP4", "NVFP4"])
def test_an_element_between_two_levels_gets_the_first(isa, name):
    middles = (LEVELS[1:] + LEVELS[:-1]) / 2
    for scale in (1.0, 1.125, 1.875, 2.0**-9, 7 * 2.0**-10, 200.0):
        near = beside(middles * scale, 4)
        x = np.zeros((len(near), 64), np.float32)
        x[:, ::16] = 12 * scale
        x[:, 1::2], x[:, 2::4] = near[:, np.newaxis], -near[:, np.newaxis]
        assert_is_ggmls(x, name)


def test_scales_of_nvfp4_round_as_in_ggml(isa):
    every = np.arange(256, dtype=np.uint32) << 20
    sizes = every.view(np.float32)[:, np.newaxis] * np.float32(2.0) ** np.arange(-140, 120, 4)
    with np.errstate(over="ignore"):
        largest = beside(6 * sizes.astype(np.float32), 1)
    largest = np.concatenate([largest, beside(6 * np.arange(0, 500, 2.0**-10), 1)])
    x = np.outer(np.resize(largest, (len(largest) // 4 + 1) * 4), [1, -0.5] * 8)
    assert_is_ggmls(x.astype(np.float32).reshape(-1, 64), "NVFP4")
