"""The list and the details of tensors say what the library says."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ggufkit.errors import GGUFError, MissingKeyError
from ggufkit.inspection.tensor_statistics import tensor_statistics
from ggufkit.view.tensor_page import block, statistics, tensor_details, tensor_rows


def test_every_tensor_has_a_row(smollm2_page):
    document = tensor_rows(smollm2_page, {}, 0, 1000)
    assert [row["name"] for row in document["rows"]] == list(smollm2_page.model.tensors)
    for row in document["rows"]:
        tensor = smollm2_page.model[row["name"]]
        assert (row["type"], tuple(row["shape"]), row["nbytes"], row["offset"]) == (
            tensor.type.name,
            tensor.shape,
            tensor.nbytes,
            tensor.offset,
        )


def test_rows_are_filtered_and_sorted(smollm2_page):
    document = tensor_rows(smollm2_page, {"search": "ATTN_Q", "sort": "-name"}, 0, 5)
    names = [row["name"] for row in document["rows"]]
    assert document["total"] == 30
    assert names == sorted(names, reverse=True)
    assert all("attn_q" in name for name in names)
    plain = tensor_rows(smollm2_page, {"type": "F32"}, 0, 1000)
    assert {row["type"] for row in plain["rows"]} == {"F32"}
    sizes = [row["nbytes"] for row in tensor_rows(smollm2_page, {"sort": "-nbytes"}, 0, 9)["rows"]]
    assert sizes == sorted(sizes, reverse=True)


def test_statistics_are_those_of_the_library(smollm2_page):
    number = smollm2_page.number_of["blk.0.attn_q.weight"]
    document = statistics(smollm2_page, number)
    expected = tensor_statistics(smollm2_page.tensor(number))
    assert (document["min"], document["max"], document["norm"]) == (
        expected.min,
        expected.max,
        expected.norm,
    )
    assert document["histogram"] == json.loads(json.dumps(expected.histogram.to_dict()))
    assert statistics(smollm2_page, number) is document


def test_a_block_decodes_to_the_values(smollm2_page):
    number = smollm2_page.number_of["blk.0.attn_q.weight"]
    document = block(smollm2_page, number, 7, 40)
    expected = smollm2_page.tensor(number).numpy()[7, 32:64]
    assert np.array_equal(np.array(document["values"], np.float32), expected)
    with pytest.raises(GGUFError, match="no element"):
        block(smollm2_page, number, 10**9, 0)


def test_details_come_without_reading(smollm2_page):
    document = tensor_details(smollm2_page, 0)
    assert (document["decodable"], document["quantized"]) == (True, True)
    assert document["picture"]["rows"] == 49_152
    with pytest.raises(MissingKeyError):
        tensor_details(smollm2_page, 10**6)


def test_an_empty_tensor_has_no_picture(model_page):
    model = model_page({"a": np.zeros((0, 32), np.float32)})
    assert tensor_details(model, 0)["picture"] is None
    assert statistics(model, 0)["elements"] == 0
