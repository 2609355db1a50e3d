"""Keys are found, and long values come in parts."""

from __future__ import annotations

import json

import numpy as np

from ggufkit.inspection.summary import plain
from ggufkit.view.metadata_page import metadata_document, metadata_rows, metadata_value


def test_every_key_has_a_row_with_its_type(gemma3_page):
    document = metadata_rows(gemma3_page, "", 0, 1000)
    metadata = gemma3_page.model.metadata
    assert [row["key"] for row in document["rows"]] == list(metadata)
    assert [row["type"] for row in document["rows"]] == [
        metadata.type_name(key) for key in metadata
    ]
    json.dumps(document, allow_nan=False)


def test_a_search_looks_at_keys_and_values(model_page):
    model = model_page({}, {"a.one": "Blue", "b.two": "red", "c.list": ["blue", "x"], "d": 7})
    assert [row["key"] for row in metadata_rows(model, "BLUE", 0, 9)["rows"]] == ["a.one", "c.list"]
    assert [row["key"] for row in metadata_rows(model, "two", 0, 9)["rows"]] == ["b.two"]
    assert [row["key"] for row in metadata_rows(model, "7", 0, 9)["rows"]] == ["d"]


def test_rows_come_in_pages(gemma3_page):
    everything = metadata_rows(gemma3_page, "", 0, 1000)
    part = metadata_rows(gemma3_page, "", 5, 3)
    assert (part["total"], part["rows"]) == (everything["total"], everything["rows"][5:8])


def test_a_long_array_comes_in_parts(smollm2_page):
    number = smollm2_page.keys.index("tokenizer.ggml.tokens")
    document = metadata_value(smollm2_page, number, 1000, 5)
    tokens = smollm2_page.model.metadata["tokenizer.ggml.tokens"]
    assert (document["length"], document["value"]) == (len(tokens), tokens[1000:1005])
    assert metadata_value(smollm2_page, number, 10**9, 5)["value"] == []


def test_numbers_that_json_lacks_are_texts(model_page):
    values = np.array([1.5, np.nan, np.inf], np.float32)
    model = model_page({}, {"x": values})
    assert metadata_value(model, model.keys.index("x"), 0, 9)["value"] == [1.5, "NaN", "Infinity"]


def test_a_long_text_comes_in_parts(model_page):
    model = model_page({}, {"x": "abcdef" * 100_000})
    number = model.keys.index("x")
    assert metadata_value(model, number, 3, 6)["value"] == "defabc"
    assert len(metadata_rows(model, "", 0, 9)["rows"][number]["value"]) < 300


def test_the_document_to_copy_is_that_of_inspect(smollm2_page):
    metadata = smollm2_page.model.metadata
    for number, key in enumerate(smollm2_page.keys):
        document = metadata_document(smollm2_page, number)
        assert document == {"type": metadata.type_name(key), "value": plain(metadata.typed(key))}


def test_a_long_value_is_not_copied_whatever_holds_it(model_page, monkeypatch):
    monkeypatch.setattr("ggufkit.view.metadata_page.MAX_COPIED", 4000)
    numbers = np.zeros(300, np.int32)
    values = {"text": "a" * 5000, "texts": ["a" * 50] * 100, "numbers": numbers}
    values |= {"nested": [numbers], "empty": [np.zeros(0, np.int32)] * 300}
    model = model_page({}, values)
    for key in values:
        assert metadata_document(model, model.keys.index(key)) is None, key
    short = model_page({}, {"x": [numbers[:9], numbers[:1]]})
    assert [part["value"] for part in metadata_document(short, 0)["value"]] == [[0] * 9, [0]]
