"""Tokens are found, and a text is split as llama.cpp splits it."""

from __future__ import annotations

import numpy as np
import pytest

import ggufkit
from ggufkit.errors import GGUFError, MissingKeyError
from ggufkit.view.tokens_page import split_text, token, token_merges, token_rows, tokens_facts

TEXT = "Hello, wörld! 日本 <|im_start|> x"


def test_a_text_splits_into_the_ids_of_the_library(smollm2_page):
    document = split_text(smollm2_page, TEXT)
    expected = ggufkit.tokenizer(smollm2_page.model).encode(TEXT).ids
    assert [token["id"] for token in document["tokens"]] == expected
    texts = smollm2_page.model.metadata["tokenizer.ggml.tokens"]
    assert all(token["text"] == texts[token["id"]] for token in document["tokens"])


def test_tokens_are_found_by_id_and_by_text(smollm2_page):
    assert token_rows(smollm2_page, "42", 0, 1)["rows"][0]["id"] == 42
    rows = token_rows(smollm2_page, " hello", 0, 5)["rows"]
    assert rows[0]["text"] == "Ġhello"
    assert rows[0]["bytes"] == b" hello".hex(" ")


def test_an_unsearched_vocabulary_comes_in_pages(gemma3_page):
    document = token_rows(gemma3_page, "", 100, 3)
    assert [row["id"] for row in document["rows"]] == [100, 101, 102]
    assert document["total"] == 262_144


def test_a_byte_token_has_its_byte(gemma3_page):
    number = gemma3_page.tokens.index("<0x0A>")
    assert token(gemma3_page, number)["bytes"] == "0a"
    assert token(gemma3_page, number)["type"] == "byte"


def test_merges_of_a_token_make_its_text(smollm2_page):
    number = smollm2_page.tokens.index("Ġhello")
    document = token_merges(smollm2_page, number)
    assert document["made"]
    assert all(merge["left"] + merge["right"] == "Ġhello" for merge in document["made"])


def test_facts_name_the_special_tokens(gemma3_page):
    document = tokens_facts(gemma3_page)
    assert document["tokens"] == 262_144
    assert {"key": "bos_token_id", "id": 2, "text": "<bos>"} in document["special"]


def test_a_model_without_a_vocabulary_has_no_tokens(model_page):
    model = model_page({}, {"general.architecture": "llama"})
    assert tokens_facts(model)["tokens"] == 0
    assert token_rows(model, "a", 0, 9)["rows"] == []
    with pytest.raises(MissingKeyError):
        token(model, 0)


def test_a_very_long_text_is_refused(smollm2_page):
    with pytest.raises(GGUFError, match="characters"):
        split_text(smollm2_page, "a" * 100_001)


def test_the_bytes_of_a_token_are_those_of_detokenize(gemma3_page):
    texts = gemma3_page.tokens
    for text in ("<bos>", "▁the", "<0x0A>", "<unused0>"):
        number = texts.index(text)
        data = token(gemma3_page, number)["bytes"]
        assert bytes.fromhex(data) == ggufkit.detokenize(gemma3_page.model, [number]).encode(), text


@pytest.mark.parametrize("more", [{}, {"tokenizer.ggml.model": "none"}])
def test_a_vocabulary_that_cannot_be_decoded_shows_its_texts(model_page, more):
    keys = {"tokenizer.ggml.tokens": ["a", "é"], "tokenizer.ggml.token_type": [1]}
    model = model_page(
        {}, {"general.architecture": "llama", "tokenizer.ggml.model": "llama"} | keys | more
    )
    assert token(model, 1)["bytes"] == "c3 a9"


@pytest.mark.parametrize("kind", [np.nan, np.inf, -np.inf, 2.5, 3.0])
def test_a_type_that_is_no_whole_number_is_shown(model_page, kind):
    types = np.full(2, kind, np.float32)
    keys = {"tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.token_type": types}
    known = {2.5: "2.5", 3.0: "control", np.inf: "Infinity", -np.inf: "-Infinity"}
    assert token(model_page({}, keys), 1)["type"] == known.get(kind, "NaN")


def test_a_file_that_names_many_special_tokens_shows_some(model_page):
    keys = {f"tokenizer.ggml.k{number}_token_id": np.uint32(0) for number in range(500)}
    assert len(tokens_facts(model_page({}, keys))["special"]) == 100


def test_a_search_for_a_number_of_many_digits_finds_nothing(model_page):
    model = model_page({}, {"tokenizer.ggml.tokens": ["a", "b"]})
    assert token_rows(model, "9" * 5000, 0, 9)["rows"] == []
    assert token_rows(model, "1", 0, 9)["rows"][0]["id"] == 1


def test_half_a_surrogate_pair_is_refused(smollm2_page):
    with pytest.raises(UnicodeError):
        split_text(smollm2_page, "\ud800")
