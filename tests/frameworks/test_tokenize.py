"""Tokens have llama.cpp's ids and bytes, and become llama.cpp's texts."""

from __future__ import annotations

import random

import pytest

import ggufkit
import llama_ids
from ggufkit.conversion.tokenizer.keys import VocabularyKeys
from ggufkit.errors import CheckpointError, ValueTypeError
from ggufkit.format.metadata import Metadata
from ggufkit.frameworks.tokenize import TokenPieces
from ggufkit.models.model import Model, Tensors
from vocabulary_names import NAMES, path_of

TEXTS = ["Hello, wörld 🚀", " ' a 're 's it 'll ?", "  two  spaces\n", "▁ é 日本", ""]


@pytest.mark.parametrize("name", NAMES)
def test_pieces_are_llama_cpps(name, vocabularies):
    path = path_of(name, vocabularies)
    with ggufkit.open(path) as model:
        pieces = TokenPieces(VocabularyKeys(model.metadata))
        texts = [pieces.piece(number) for number in range(len(pieces))]
    expected = llama_ids.pieces(path)
    assert [(n, f, w) for n, (f, w) in enumerate(zip(texts, expected, strict=True)) if f != w] == []


@pytest.mark.parametrize("name", NAMES)
def test_texts_of_tokens_are_llama_cpps(name, vocabularies):
    path = path_of(name, vocabularies)
    chance = random.Random(5)
    with ggufkit.open(path) as model:
        count = len(model.metadata["tokenizer.ggml.tokens"])
        many = [[chance.randrange(count) for _ in range(chance.randint(0, 40))] for _ in range(50)]
        pieces = TokenPieces(VocabularyKeys(model.metadata))
        tokenizer = ggufkit.tokenizer(model)
        many += [tokenizer.encode(text).ids for text in TEXTS]
        texts_of_ids = [pieces.text(ids) for ids in many]
    expected = llama_ids.texts(path, many)
    assert [(i, f, w) for i, f, w in zip(many, texts_of_ids, expected, strict=True) if f != w] == []


def test_tokens_of_a_text_have_ids_and_bytes(vocabularies):
    path = path_of("gpt-2", vocabularies)
    tokens = ggufkit.tokenize(path, "Hello 🚀")
    assert len(tokens) == len(tokens.ids) == len(tokens.pieces)
    assert b"".join(tokens.pieces).decode() == "Hello 🚀"
    assert ggufkit.detokenize(path, tokens.ids) == "Hello 🚀"


def test_special_tokens_are_added_unless_left_out(vocabularies):
    path = path_of("llama-spm", vocabularies)
    assert ggufkit.tokenize(path, "a").pieces == (b"<s>", b" a")
    assert ggufkit.tokenize(path, "a", add_special=False).pieces == (b" a",)
    assert ggufkit.detokenize(path, ggufkit.tokenize(path, "a", add_special=False).ids) == "a"


def test_part_of_a_character_becomes_the_replacement_character(vocabularies):
    path = path_of("gpt-2", vocabularies)
    first, *_ = ggufkit.tokenize(path, "🚀").ids
    assert ggufkit.detokenize(path, [first]) == "\ufffd"


def test_an_id_outside_the_vocabulary_is_refused(vocabularies):
    with pytest.raises(ValueTypeError, match="no token 99999999"):
        ggufkit.detokenize(path_of("gpt-2", vocabularies), [99999999])
    with pytest.raises(ValueTypeError, match="no token -1"):
        ggufkit.detokenize(path_of("gpt-2", vocabularies), [-1])


def test_a_text_of_lone_surrogates_is_refused(vocabularies):
    with pytest.raises(ValueTypeError, match="not valid Unicode"):
        ggufkit.tokenize(path_of("gpt-2", vocabularies), "a\udc80")


def test_a_model_without_a_vocabulary_is_refused():
    with pytest.raises(CheckpointError, match="kind 'none'"):
        ggufkit.detokenize(Model(Metadata({}), Tensors()), [1])
