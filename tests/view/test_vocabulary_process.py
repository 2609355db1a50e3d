"""Work on a vocabulary has limits, and marks the special tokens that a regular expression would."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggufkit.errors import CheckpointError
from ggufkit.view import page_model
from ggufkit.view.prompt_page import prompt
from ggufkit.view.tokens_page import split_text
from ggufkit.view.vocabulary_process import MAX_PARTS, answer, marked

TOKENIZER = {"general.architecture": "llama", "tokenizer.ggml.model": "llama"}


def parts(text, specials):
    return [(part["text"], part["special"]) for part in marked(text, specials)]


def test_the_longest_special_token_is_marked():
    assert parts("a<x><x>>b", {"<x>", "<x>>"}) == [
        ("a", False),
        ("<x>", True),
        ("<x>>", True),
        ("b", False),
    ]
    assert parts("", {"a"}) == []
    assert parts("ab", set()) == [("ab", False)]


@given(st.text("abc", max_size=40), st.sets(st.text("abc", min_size=1, max_size=4), max_size=6))
def test_marks_are_those_of_a_regular_expression(text, specials):
    longest_first = sorted(specials, key=len, reverse=True)
    pattern = f"({'|'.join(longest_first)})" if specials else "(?!)()"
    expected = [
        (part, number % 2 == 1) for number, part in enumerate(re.split(pattern, text)) if part
    ]
    assert parts(text, specials) == expected


def test_a_prompt_has_a_limited_number_of_parts():
    pieces = parts("ab" * 2 * MAX_PARTS, {"a"})
    assert len(pieces) == 2 * MAX_PARTS
    assert "".join(text for text, _ in pieces) == "ab" * 2 * MAX_PARTS


def test_many_long_special_tokens_do_not_keep_a_prompt_waiting(model_page):
    texts = ["a" * length for length in range(1, 2000)] + [f"{'a' * 60}{n}" for n in range(20_000)]
    keys = {
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": np.full(len(texts), 3, np.int32),
        "tokenizer.chat_template": "{{ messages[0]['content'] }}",
    }
    messages = [{"role": "user", "content": "a" * 128 * 50 + "b"}]
    document = prompt(model_page({}, TOKENIZER | keys), {"messages": messages})
    assert [part["special"] for part in document["parts"]] == [True] * 50 + [False]


def test_work_that_takes_too_long_is_stopped(model_page, monkeypatch):
    model = model_page({}, TOKENIZER | {"tokenizer.ggml.tokens": ["a"]})
    monkeypatch.setattr(page_model, "MAX_SECONDS", 0.001)
    with pytest.raises(CheckpointError, match="stopped"):
        split_text(model, "a")


def test_work_that_takes_too_much_memory_is_stopped(model_page, monkeypatch):
    monkeypatch.setattr(page_model, "MAX_MEMORY", 64 << 20)
    with pytest.raises(CheckpointError, match="stopped"):
        split_text(model_page({}, TOKENIZER | {"tokenizer.ggml.tokens": ["a"]}), "a")


def test_errors_of_a_vocabulary_come_in_words(model_page):
    model = model_page({"a": np.zeros(32, np.float32)}, {"tokenizer.ggml.model": "unheard-of"})
    with pytest.raises(CheckpointError, match="unheard-of"):
        split_text(model, "a")
    keys = {"tokenizer.ggml.model": "bert", "tokenizer.ggml.tokens": ["a"]}
    with pytest.raises(CheckpointError, match="do not fit together"):
        split_text(model_page({}, TOKENIZER | keys, "bert.gguf"), "b")
    job = {"vocabulary": model.name, "task": "split", "text": "a", "special": True}
    assert "unheard-of" in answer(job)["error"]
