"""Keys are found, and long values come in parts."""

from __future__ import annotations

import json

import numpy as np

from ggufkit.inspection.summary import plain
from ggufkit.view.metadata_page import metadata_document, metadata_rows, metadata_value


def test_every_key_has_a_row_with_its_type(shown_gemma3):
    found = metadata_rows(shown_gemma3, "", 0, 1000)
    metadata = shown_gemma3.model.metadata
    assert [row["key"] for row in found["rows"]] == list(metadata)
    assert [row["type"] for row in found["rows"]] == [metadata.type_name(key) for key in metadata]
    json.dumps(found, allow_nan=False)


def test_a_search_looks_at_keys_and_values(shown):
    model = shown({}, {"a.one": "Blue", "b.two": "red", "c.list": ["blue", "x"], "d": 7})
    assert [row["key"] for row in metadata_rows(model, "BLUE", 0, 9)["rows"]] == ["a.one", "c.list"]
    assert [row["key"] for row in metadata_rows(model, "two", 0, 9)["rows"]] == ["b.two"]
    assert [row["key"] for row in metadata_rows(model, "7", 0, 9)["rows"]] == ["d"]


def test_rows_come_in_pages(shown_gemma3):
    everything = metadata_rows(shown_gemma3, "", 0, 1000)
    part = metadata_rows(shown_gemma3, "", 5, 3)
    assert (part["total"], part["rows"]) == (everything["total"], everything["rows"][5:8])


def test_a_long_array_comes_in_parts(shown_smollm2):
    at = shown_smollm2.keys.index("tokenizer.ggml.tokens")
    found = metadata_value(shown_smollm2, at, 1000, 5)
    tokens = shown_smollm2.model.metadata["tokenizer.ggml.tokens"]
    assert (found["length"], found["value"]) == (len(tokens), tokens[1000:1005])
    assert metadata_value(shown_smollm2, at, 10**9, 5)["value"] == []


def test_numbers_that_json_lacks_are_texts(shown):
    values = np.array([1.5, np.nan, np.inf], np.float32)
    model = shown({}, {"x": values})
    assert metadata_value(model, model.keys.index("x"), 0, 9)["value"] == [1.5, "NaN", "Infinity"]


def test_a_long_text_comes_in_parts(shown):
    model = shown({}, {"x": "abcdef" * 100_000})
    at = model.keys.index("x")
    assert metadata_value(model, at, 3, 6)["value"] == "defabc"
    assert len(metadata_rows(model, "", 0, 9)["rows"][at]["value"]) < 300


def test_the_document_to_copy_is_that_of_inspect(shown_smollm2):
    metadata = shown_smollm2.model.metadata
    for at, key in enumerate(shown_smollm2.keys):
        found = metadata_document(shown_smollm2, at)
        assert found == {"type": metadata.type_name(key), "value": plain(metadata.typed(key))}


def test_a_long_value_is_not_copied_whatever_holds_it(shown, monkeypatch):
    monkeypatch.setattr("ggufkit.view.metadata_page.MAX_COPIED", 4000)
    numbers = np.zeros(300, np.int32)
    values = {"text": "a" * 5000, "texts": ["a" * 50] * 100, "numbers": numbers}
    values |= {"nested": [numbers], "empty": [np.zeros(0, np.int32)] * 300}
    model = shown({}, values)
    for key in values:
        assert metadata_document(model, model.keys.index(key)) is None, key
    short = shown({}, {"x": [numbers[:9], numbers[:1]]})
    assert [part["value"] for part in metadata_document(short, 0)["value"]] == [[0] * 9, [0]]
