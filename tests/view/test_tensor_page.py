"""The list and the details of tensors say what the library says."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ggufkit.errors import GGUFError, MissingKeyError
from ggufkit.inspection.tensor_statistics import tensor_statistics
from ggufkit.view.tensor_page import block, statistics, tensor_details, tensor_parts, tensor_rows


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


def test_the_parts_of_a_model_hold_each_tensor_once(smollm2_page):
    document = tensor_parts(smollm2_page, {}, 0, 1000)
    names = [part["name"] for part in document["rows"]]
    assert names == ["embedding", *(f"block {number}" for number in range(30)), "output"]
    inside = {
        name: tensor_rows(smollm2_page, {"part": name, "sort": "-nbytes"}, 0, 1000)
        for name in names
    }
    for part in document["rows"]:
        rows = inside[part["name"]]
        assert (rows["total"], rows["nbytes"]) == (part["tensors"], part["nbytes"])
    listed = [row["number"] for rows in inside.values() for row in rows["rows"]]
    assert sorted(listed) == list(range(len(smollm2_page.tensor_names)))
    assert document["largest"] == max(part["nbytes"] for part in document["rows"])
    assert (document["tensors"], document["nbytes"]) == (len(listed), smollm2_page.nbytes)
    matching = tensor_parts(smollm2_page, {"search": "blk.3."}, 0, 1000)
    assert [(part["name"], part["tensors"]) for part in matching["rows"]] == [("block 3", 9)]


def test_blocks_of_any_kind_are_parts_in_the_order_of_their_numbers(model_page):
    row = np.zeros(32, np.float32)
    names = ["output.weight", "rope_freqs", "blk.10.a", "blk.9.a", "v.blk.1.a", "mm.1.weight",
             "double_blocks.0.img.b", "token_embd.weight", f"{'x' * 99}blk.1.a"]  # fmt: skip
    document = tensor_parts(model_page(dict.fromkeys(names, row)), {}, 0, 100)
    parts = ["embedding", "block 9", "block 10", "double_blocks 0", "v block 1"]
    long = f"{'x' * 40}\u2026 block 1"
    assert [part["name"] for part in document["rows"]] == [*parts, long, "output", "other"]
    assert document["rows"][-1]["tensors"] == 2


def test_parts_come_a_page_at_a_time(model_page):
    row = np.zeros(1, np.float32)
    page = model_page({f"blk.{number}.a": row for number in range(3000)})
    document = tensor_parts(page, {}, 2990, 1000)
    assert document["total"] == 3000
    assert [part["name"] for part in document["rows"]][-1] == "block 2999"
    assert len(document["rows"]) == 10


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
