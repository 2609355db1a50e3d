"""Every requested type has a rate; no test depends on how high it is."""

from __future__ import annotations

import math

import pytest

import ggufkit
from ggufkit.errors import TensorTypeError, ValueTypeError
from ggufkit.quants import bench, parallel


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Few rows, so that a rate takes no time."""
    monkeypatch.setattr(bench, "ELEMENTS", 1 << 18)
    monkeypatch.setattr(bench, "SAMPLE", 4)
    monkeypatch.setattr(parallel, "TASK", 1 << 14)


def test_each_type_has_rates_for_one_thread_and_for_several():
    rates = list(ggufkit.bench(["Q8_0", "f16", 12], threads=2, patience=0.001))
    assert [rate.type.name for rate in rates] == ["Q8_0", "F16", "Q4_K"]
    for rate in rates:
        assert rate.threads == 2
        numbers = [rate.encode, rate.encode_threaded, rate.decode, rate.decode_threaded]
        assert all(number > 0 and math.isfinite(number) for number in numbers)


def test_measures_all_quantized_types_by_default():
    names = [rate.type.name for rate in ggufkit.bench(threads=1, patience=0)]
    assert {"Q4_0", "Q6_K", "IQ1_S", "MXFP4", "F16", "BF16"} <= set(names)
    assert not {"F32", "F64", "I32"} & set(names)


def test_uses_weights_where_requested_or_required(monkeypatch):
    weights = []
    quantize = bench.codec.quantize

    def spy(array, type, **options):
        weights.append((type.name, options.get("imatrix") is not None))
        return quantize(array, type, **options)

    monkeypatch.setattr(bench.codec, "quantize", spy)
    list(ggufkit.bench(["Q4_0", "IQ2_XS"], threads=1, patience=0))
    assert set(weights) == {("Q4_0", False), ("IQ2_XS", True)}
    weights.clear()
    list(ggufkit.bench(["Q4_0"], threads=1, patience=0, weighted=True))
    assert set(weights) == {("Q4_0", True)}


def test_refuses_at_once_what_cannot_be_measured():
    with pytest.raises(TensorTypeError, match="Q4_2 cannot be encoded"):
        ggufkit.bench(["Q4_2"])
    with pytest.raises(ValueTypeError, match="0 is not a possible number of threads"):
        ggufkit.bench(threads=0)
