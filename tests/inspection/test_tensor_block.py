from __future__ import annotations

import json

import numpy as np
import pytest

import ggufkit
from ggufkit.errors import TensorTypeError
from ggufkit.models.tensors.in_memory import as_tensor

ARRAY = np.random.default_rng(4).standard_normal((2, 3, 512)).astype("f4")


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize("name", ["Q4_K", "Q8_0", "IQ4_XS", "MXFP4"])
def test_a_block_holds_the_elements_at_its_place(tmp_path, name, order):
    path = tmp_path / "m.gguf"
    ggufkit.save(path, {"a": ARRAY, "t": (ARRAY, name)}, {}, byte_order=order)
    with ggufkit.open(path) as model:
        tensor = model["t"]
        block = ggufkit.tensor_block(tensor, 4, 300)
        size = tensor.type.block_size
        assert (block.row, block.column) == (4, 300 // size * size)
        expected = tensor.numpy()[1, 1, block.column : block.column + size]
        np.testing.assert_array_equal(block.values, expected)
        assert len(block.levels) == size
        stored = path.read_bytes()[block.offset : block.offset + tensor.type.block_bytes]
    assert (stored == block.data) is (order == "little" or name == "MXFP4")


def test_a_block_of_a_broken_file_is_shown_too():
    data = np.full(34, 255, np.uint8)  # a scale that is not a number
    tensor = ggufkit.Tensor.over(
        "t", ggufkit.format.types.tensor_type("Q8_0"), (1, 32), _source(data.reshape(1, 34))
    )
    document = ggufkit.tensor_block(tensor, 0).to_dict()
    assert document["fields"] == {"d": [None]}
    assert document["offset"] is None
    assert set(document["values"]) == {None}
    json.dumps(document, allow_nan=False)


def _source(data):
    return ggufkit.models.sources.ArraySource(data)


def test_a_plain_tensor_has_no_blocks():
    with pytest.raises(TensorTypeError, match="type F32, which has no blocks"):
        ggufkit.tensor_block(as_tensor("t", ARRAY), 0)


@pytest.mark.parametrize("place", [(6, 0), (0, 512), (-1, 0)])
def test_a_place_outside_is_refused(place):
    with pytest.raises(IndexError, match="6 rows of 512"):
        ggufkit.tensor_block(as_tensor("t", (ARRAY, "Q8_0")), *place)
