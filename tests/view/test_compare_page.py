"""A comparison says what `diff` says."""

from __future__ import annotations

import numpy as np
import pytest

import ggufkit
from ggufkit.errors import GGUFError
from ggufkit.view.compare_page import (
    comparison,
    error_tile,
    family,
    same_tensors,
    tensor_error,
    values_of_both,
)
from ggufkit.view.picture import TilePlace, tile

VALUES = np.random.default_rng(2).standard_normal((64, 512)).astype(np.float32)


@pytest.fixture
def pair(model_page):
    before = model_page({"a": VALUES, "b": VALUES, "c": VALUES}, {"x": 1, "y": "z"}, "before.gguf")
    after = model_page(
        {"a": (VALUES, "Q4_K"), "b": VALUES, "d": VALUES[:2]}, {"x": 2}, "after.gguf"
    )
    return before, after


def test_errors_are_those_of_diff(pair):
    before, after = pair
    (expected,) = [
        change.deviation
        for change in ggufkit.diff(before.model, after.model).tensors
        if change.name == "a"
    ]
    error = tensor_error(before, after, 0)
    for name in ("rmse", "max_abs", "cosine", "snr_db", "unequal"):
        assert error[name] == getattr(expected, name)
    assert not error["same"]


def test_equal_tensors_have_no_error(pair):
    assert tensor_error(*pair, 1) == {
        "number": 1,
        "same": True,
        "rmse": 0.0,
        "max_abs": 0.0,
        "cosine": 1.0,
        "snr_db": "Infinity",
        "unequal": 0,
    }


def test_headers_are_side_by_side(pair):
    document = comparison(*pair)
    keys = ["x", "y", "general.quantization_version"]
    assert [key["key"] for key in document["keys"]] == keys
    sides = {
        tensor["name"]: (tensor["before_type"], tensor["after_type"])
        for tensor in document["tensors"]
    }
    assert sides == {
        "a": ("F32", "Q4_K"),
        "b": ("F32", "F32"),
        "c": ("F32", None),
        "d": (None, "F32"),
    }
    assert [tensor["comparable"] for tensor in document["tensors"]] == [True, True, False, False]


def test_an_error_is_measured_once(pair, monkeypatch):
    error = tensor_error(*pair, 0)
    monkeypatch.setattr("ggufkit.view.compare_page.diff", None)
    assert tensor_error(*pair, 0) == error


def test_models_of_one_base_are_recognized_in_any_order(model_page):
    names = [f"blk.{layer}.ffn_up.weight" for layer in range(4)]
    base = model_page(dict.fromkeys(names, VALUES), {}, "base.gguf")
    small = model_page(dict.fromkeys(names, (VALUES, "Q4_K")), {}, "small.gguf")
    middle = model_page(dict.fromkeys(names[:3], (VALUES, "Q8_0")), {}, "middle.gguf")
    other = model_page(dict.fromkeys(names, VALUES[:2]), {}, "other.gguf")
    empty = model_page({}, {}, "empty.gguf")
    pages = [small, other, base, empty, middle]
    for page in (small, base, middle):
        assert family(page, pages) == {"base": 2, "quants": [0, 4]}
    assert family(other, pages) == {"base": 1, "quants": []}
    assert family(empty, pages) == {"base": None, "quants": []}


def test_a_difference_picture_is_the_second_minus_the_first(pair):
    before, after = pair
    place = TilePlace(0, 0, 0)
    expected = tile(after.model["a"], place).values - tile(before.model["a"], place).values
    assert np.array_equal(error_tile(before, after, 0, place).values, expected)
    assert not error_tile(before, after, 1, place).values.any()


def test_a_tensor_that_only_one_has_cannot_be_compared(pair):
    with pytest.raises(GGUFError, match="no tensor"):
        tensor_error(*pair, 2)


def test_values_of_both_are_those_of_the_larger_block(pair):
    before, after = pair
    assert same_tensors(before, pair, 0) == [{"model": 1, "number": 0, "type": "Q4_K"}]
    assert same_tensors(before, pair, 2) == []  # the other has no tensor of that name
    both = values_of_both(before, after, 0, 5, 300)
    assert (both["row"], both["column"], len(both["after"])) == (5, 256, 256)
    decoded = after.model["a"].numpy()[5, 256:]
    assert both["before"] == VALUES[5, 256:].tolist()
    assert both["after"] == decoded.tolist()
    assert both["difference"] == (decoded - VALUES[5, 256:]).tolist()
    with pytest.raises(GGUFError, match="no element 64, 0"):
        values_of_both(before, after, 0, 64, 0)


def test_infinities_and_their_difference_are_texts(model_page):
    odd = np.full((1, 32), np.inf, np.float32)
    pages = [model_page({"a": odd}, name=f"{name}.gguf") for name in "ab"]
    both = values_of_both(*pages, 0, 0, 3)
    assert {side: both[side][0] for side in ("before", "difference")} == {
        "before": "Infinity",
        "difference": "NaN",
    }
