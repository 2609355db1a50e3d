"""Types are found by name and compare with names."""

from __future__ import annotations

import pytest

import ggufkit
from ggufkit.errors import TensorTypeError
from ggufkit.format.types import TENSOR_TYPES, TensorType, ValueType


def test_tensor_types_are_found_by_name_and_listed():
    assert list(TensorType) == list(TENSOR_TYPES.values())
    assert all(TensorType[kind.name] is kind for kind in TensorType)
    with pytest.raises(TensorTypeError, match="Q9_9"):
        TensorType["Q9_9"]


@pytest.mark.parametrize("kind", [*TENSOR_TYPES.values(), *ValueType], ids=str)
def test_types_equal_their_names_and_nothing_else(kind):
    assert kind == kind.name
    assert kind.name in {kind: 1}
    assert sum(kind == other for other in [*TensorType, *ValueType]) == 1
    assert kind not in ("", None, kind.id)


def test_types_of_models_compare_with_names():
    model = ggufkit.model({"a": ([[1.0] * 32], "Q8_0")})
    assert model["a"].type == "Q8_0"
    assert model["a"].type != "Q4_0"
