"""The list and the details of tensors say what the library says."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ggufkit.errors import GGUFError, MissingKeyError
from ggufkit.inspection.tensor_statistics import tensor_statistics
from ggufkit.view.tensor_page import block, statistics, tensor_details, tensor_rows


def test_every_tensor_has_a_row(shown_smollm2):
    found = tensor_rows(shown_smollm2, {}, 0, 1000)
    assert [row["name"] for row in found["rows"]] == list(shown_smollm2.model.tensors)
    for row in found["rows"]:
        tensor = shown_smollm2.model[row["name"]]
        assert (row["type"], tuple(row["shape"]), row["nbytes"], row["offset"]) == (
            tensor.type.name,
            tensor.shape,
            tensor.nbytes,
            tensor.offset,
        )


def test_rows_are_filtered_and_sorted(shown_smollm2):
    found = tensor_rows(shown_smollm2, {"search": "ATTN_Q", "sort": "-name"}, 0, 5)
    names = [row["name"] for row in found["rows"]]
    assert found["total"] == 30
    assert names == sorted(names, reverse=True)
    assert all("attn_q" in name for name in names)
    plain = tensor_rows(shown_smollm2, {"type": "F32"}, 0, 1000)
    assert {row["type"] for row in plain["rows"]} == {"F32"}
    sizes = [row["nbytes"] for row in tensor_rows(shown_smollm2, {"sort": "-nbytes"}, 0, 9)["rows"]]
    assert sizes == sorted(sizes, reverse=True)


def test_statistics_are_those_of_the_library(shown_smollm2):
    at = shown_smollm2.number_of["blk.0.attn_q.weight"]
    found = statistics(shown_smollm2, at)
    expected = tensor_statistics(shown_smollm2.tensor(at))
    assert (found["min"], found["max"], found["norm"]) == (
        expected.min,
        expected.max,
        expected.norm,
    )
    assert found["histogram"] == json.loads(json.dumps(expected.histogram.to_dict()))
    assert statistics(shown_smollm2, at) is found


def test_a_block_decodes_to_the_values(shown_smollm2):
    at = shown_smollm2.number_of["blk.0.attn_q.weight"]
    found = block(shown_smollm2, at, 7, 40)
    expected = shown_smollm2.tensor(at).numpy()[7, 32:64]
    assert np.array_equal(np.array(found["values"], np.float32), expected)
    with pytest.raises(GGUFError, match="no element"):
        block(shown_smollm2, at, 10**9, 0)


def test_details_come_without_reading(shown_smollm2):
    found = tensor_details(shown_smollm2, 0)
    assert (found["decodable"], found["quantized"]) == (True, True)
    assert found["picture"]["rows"] == 49_152
    with pytest.raises(MissingKeyError):
        tensor_details(shown_smollm2, 10**6)


def test_an_empty_tensor_has_no_picture(shown):
    model = shown({"a": np.zeros((0, 32), np.float32)})
    assert tensor_details(model, 0)["picture"] is None
    assert statistics(model, 0)["elements"] == 0
