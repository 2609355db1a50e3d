"""Tokens are found, and a text is split as llama.cpp splits it."""

from __future__ import annotations

import numpy as np
import pytest

import ggufkit
from ggufkit.errors import GGUFError, MissingKeyError
from ggufkit.view.tokens_page import split_text, token, token_merges, token_rows, tokens_facts

TEXT = "Hello, wörld! 日本 <|im_start|> x"


def test_a_text_splits_into_the_ids_of_the_library(shown_smollm2):
    found = split_text(shown_smollm2, TEXT)
    expected = ggufkit.tokenizer(shown_smollm2.model).encode(TEXT).ids
    assert [each["id"] for each in found["tokens"]] == expected
    texts = shown_smollm2.model.metadata["tokenizer.ggml.tokens"]
    assert all(each["text"] == texts[each["id"]] for each in found["tokens"])


def test_tokens_are_found_by_id_and_by_text(shown_smollm2):
    assert token_rows(shown_smollm2, "42", 0, 1)["rows"][0]["id"] == 42
    found = token_rows(shown_smollm2, " hello", 0, 5)["rows"]
    assert found[0]["text"] == "Ġhello"
    assert found[0]["bytes"] == b" hello".hex(" ")


def test_an_unsearched_vocabulary_comes_in_pages(shown_gemma3):
    found = token_rows(shown_gemma3, "", 100, 3)
    assert [row["id"] for row in found["rows"]] == [100, 101, 102]
    assert found["total"] == 262_144


def test_a_byte_token_has_its_byte(shown_gemma3):
    at = shown_gemma3.tokens().index("<0x0A>")
    assert token(shown_gemma3, at)["bytes"] == "0a"
    assert token(shown_gemma3, at)["type"] == "byte"


def test_merges_of_a_token_make_its_text(shown_smollm2):
    at = shown_smollm2.tokens().index("Ġhello")
    found = token_merges(shown_smollm2, at)
    assert found["made"]
    assert all(each["left"] + each["right"] == "Ġhello" for each in found["made"])


def test_facts_name_the_special_tokens(shown_gemma3):
    found = tokens_facts(shown_gemma3)
    assert found["tokens"] == 262_144
    assert {"key": "bos_token_id", "id": 2, "text": "<bos>"} in found["special"]


def test_a_model_without_a_vocabulary_has_no_tokens(shown):
    model = shown({}, {"general.architecture": "llama"})
    assert tokens_facts(model)["tokens"] == 0
    assert token_rows(model, "a", 0, 9)["rows"] == []
    with pytest.raises(MissingKeyError):
        token(model, 0)


def test_a_very_long_text_is_refused(shown_smollm2):
    with pytest.raises(GGUFError, match="characters"):
        split_text(shown_smollm2, "a" * 100_001)


def test_the_bytes_of_a_token_are_those_of_detokenize(shown_gemma3):
    texts = shown_gemma3.tokens()
    for text in ("<bos>", "▁the", "<0x0A>", "<unused0>"):
        at = texts.index(text)
        found = token(shown_gemma3, at)["bytes"]
        assert bytes.fromhex(found) == ggufkit.detokenize(shown_gemma3.model, [at]).encode(), text


@pytest.mark.parametrize("more", [{}, {"tokenizer.ggml.model": "none"}])
def test_a_vocabulary_that_cannot_be_decoded_shows_its_texts(shown, more):
    keys = {"tokenizer.ggml.tokens": ["a", "é"], "tokenizer.ggml.token_type": [1]}
    model = shown(
        {}, {"general.architecture": "llama", "tokenizer.ggml.model": "llama"} | keys | more
    )
    assert token(model, 1)["bytes"] == "c3 a9"


@pytest.mark.parametrize("kind", [np.nan, np.inf, -np.inf, 2.5, 3.0])
def test_a_type_that_is_no_whole_number_is_shown(shown, kind):
    types = np.full(2, kind, np.float32)
    keys = {"tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.token_type": types}
    known = {2.5: "2.5", 3.0: "control", np.inf: "Infinity", -np.inf: "-Infinity"}
    assert token(shown({}, keys), 1)["type"] == known.get(kind, "NaN")


def test_a_file_that_names_many_special_tokens_shows_some(shown):
    keys = {f"tokenizer.ggml.k{number}_token_id": np.uint32(0) for number in range(500)}
    assert len(tokens_facts(shown({}, keys))["special"]) == 100


def test_a_search_for_a_number_of_many_digits_finds_nothing(shown):
    model = shown({}, {"tokenizer.ggml.tokens": ["a", "b"]})
    assert token_rows(model, "9" * 5000, 0, 9)["rows"] == []
    assert token_rows(model, "1", 0, 9)["rows"][0]["id"] == 1


def test_half_a_surrogate_pair_is_refused(shown_smollm2):
    with pytest.raises(UnicodeError):
        split_text(shown_smollm2, "\ud800")
