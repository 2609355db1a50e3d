"""Tokenizers in memory give llama.cpp's ids: for its own test texts, and for random ones."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import ggufkit
import llama_ids
import real
from ggufkit.errors import CheckpointError, ValueTypeError
from ggufkit.format.metadata import Metadata
from ggufkit.models.model import Model, Tensors
from vocabulary_names import NAMES, QUICK, path_of

NO_TEXTS = {"aquila", "baichuan", "gpt-neox", "nomic-bert-moe"}  # llama.cpp has none for them
PIECES = [
    *("Hello", " world", "don't", "I'LL", "we've", "camelCase", "HTTPServer", "_x_", "a", "B", "z"),
    *(" ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u200b", "\u2028", "\ufeff", "\x0b"),
    *("123", "4567890", "3.14", "\u00bd", "\u2167", "$5", "\u20ac", "%", "//", "=", "(", "{", '"'),
    *("日本語", "中文", "한국어", "ไทย", "हि", "é", "e\u0301", "ß", "İ", "\u0131", "\u03b1", "א"),
    *("🚀", "👩‍👩‍👧", "ﬁ", "—", "…", "!!!", "???", "&&", "`", "~", "#", "@", "\\", "▁", "Ġ"),
    *("<tag>", "<s>", "</s>", "[MASK]", "[CLS]", "<mask>", "<|im_end|>", "<|endoftext|>"),
]  # fmt: skip
RANGES = ((32, 126), (160, 0x2FFF), (0x3000, 0xD7FF), (0x1F300, 0x1FAFF), (0xE000, 0xFFFF))
# What llama.cpp and Hugging Face's library cannot be brought to agree on: the mark of a word in
# WordPiece's tables, and wide spaces after a special token of Phi-3.
DIFFERING = {"bert-bge": "▁", "phi-3": "\u00a0\u2028"}
# Sequences of marks that Unigram's normalization composes are not compared.
ONLY_PIECES = {"nomic-bert-moe"}


def texts_of(name, count):
    chance = random.Random(7)
    for _ in range(count):
        if name in ONLY_PIECES or chance.random() < 0.8:
            text = "".join(chance.choice(PIECES) for _ in range(chance.randint(1, 14)))
        else:
            text = "".join(chr(chance.randint(*chance.choice(RANGES))) for _ in range(9))
        yield "".join(char for char in text if char not in DIFFERING.get(name, ""))


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_llama_cpps(name, vocabularies):
    path = path_of(name, vocabularies)
    tokenizer = ggufkit.tokenizer(path)
    if name not in NO_TEXTS:
        folder = real.tokenized() / path.name
        texts = Path(f"{folder}.inp").read_text().split("\n__ggml_vocab_test__\n")
        lines = Path(f"{folder}.out").read_text().split("\n")
        expected = [[int(number) for number in line.split()] for line in lines]
        ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        assert ids == expected[: len(texts)]
    texts = [*texts_of(name, 400)]
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    expected = llama_ids.ids(path, texts)
    assert [(t, f) for t, f, w in zip(texts, ids, expected, strict=True) if f != w] == []
    assert [tokenizer.encode("a b").ids] == llama_ids.ids(path, ["a b"], special=True)


def test_texts_come_back(vocabularies):
    for name in sorted(QUICK - {"bert-bge"}):
        tokenizer = ggufkit.tokenizer(path_of(name, vocabularies))
        for text in ("Hello,  world!\n\n 3.14", "日本語 🚀 don't"):
            assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids) == text


def test_an_opened_model_is_taken_and_stays_open(vocabularies):
    with ggufkit.open(path_of("gpt-2", vocabularies)) as model:
        tokenizer = ggufkit.tokenizer(model)
        assert len(model.metadata["tokenizer.ggml.tokens"]) == tokenizer.get_vocab_size()


def model_of(**keys):
    return Model(Metadata({f"tokenizer.ggml.{k}": v for k, v in keys.items()}), Tensors())


def test_a_kind_without_a_counterpart_is_refused():
    with pytest.raises(CheckpointError, match="rwkv"):
        ggufkit.tokenizer(model_of(model="rwkv", tokens=["a"]))
    with pytest.raises(CheckpointError, match="no tokens"):
        ggufkit.tokenizer(model_of(model="gpt2"))
    with pytest.raises(ValueTypeError, match="neither a model nor a path"):
        ggufkit.tokenizer(5)


def test_merges_of_tokens_that_do_not_exist_are_refused():
    metadata = Metadata(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.tokens": ["a", "b"],
            "tokenizer.ggml.merges": ["a c"],
        }
    )
    with pytest.raises(CheckpointError, match="do not fit together"):
        ggufkit.tokenizer(Model(metadata, Tensors()))


def test_notes_name_what_is_guessed():
    notes = []
    ggufkit.tokenizer(model_of(model="gpt2", tokens=["a"], pre="made-up"), say=notes.append)
    assert "'made-up'" in notes[0]


def test_control_tokens_are_found_by_their_text_unless_the_file_names_others():
    tokens = [
        "a",
        "<",
        "|",
        "i",
        "m",
        "_",
        "e",
        "n",
        "d",
        ">",
        "<|im_end|>",
        "<PRE>",
        "P",
        "R",
        "E",
    ]
    plain = ggufkit.tokenizer(model_of(model="gpt2", tokens=tokens))
    assert plain.encode("a<|im_end|><PRE>").ids == [0, 10, 11]
    tokenizer = ggufkit.tokenizer(model_of(model="gpt2", tokens=tokens, fim_pre_token_id=0))
    assert tokenizer.encode("<PRE>").ids == [1, 12, 13, 14, 9]
