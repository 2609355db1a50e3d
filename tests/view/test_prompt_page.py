"""Prompts are those of the library, with special tokens marked."""

from __future__ import annotations

import pytest

import ggufkit
from ggufkit.errors import ChatTemplateError
from ggufkit.view.prompt_page import compare_templates, prompt, templates

MESSAGES = [{"role": "user", "content": "Hello <b>"}, {"role": "assistant", "content": "Hi"}]
KEY = "tokenizer.chat_template"


def test_a_prompt_is_that_of_the_library(shown_smollm2):
    found = prompt(shown_smollm2, {"messages": MESSAGES, "add_generation_prompt": True})
    expected = ggufkit.chat_template(shown_smollm2.model).render(
        MESSAGES, add_generation_prompt=True
    )
    assert found["text"] == expected
    assert "".join(part["text"] for part in found["parts"]) == expected
    marked = {part["text"] for part in found["parts"] if part["special"]}
    assert marked == {"<|im_start|>", "<|im_end|>"}


@pytest.mark.matrix  # until the limit on time stops it
def test_a_template_without_end_is_stopped(shown):
    endless = "{% for a in range(10**5) %}{% for b in range(10**5) %}{% endfor %}{% endfor %}"
    model = shown({}, {KEY: endless, "tokenizer.ggml.tokens": ["a"]})
    with pytest.raises(ChatTemplateError):
        prompt(model, {"messages": MESSAGES})


@pytest.mark.parametrize("messages", [None, 5, "x", [5], {"role": "user"}])
def test_messages_that_are_none_are_refused(shown_smollm2, messages):
    with pytest.raises(ChatTemplateError, match="messages"):
        prompt(shown_smollm2, {"messages": messages})


def test_a_model_without_a_template_says_so(shown):
    model = shown({}, {"general.architecture": "llama"})
    assert templates(model)["templates"] == {}
    with pytest.raises(ChatTemplateError, match="no chat template"):
        prompt(model, {"messages": MESSAGES})


def test_named_templates_are_listed(shown):
    model = shown({}, {KEY: "a", f"{KEY}.tool_use": "b", "tokenizer.ggml.tokens": ["x"]})
    assert templates(model)["templates"] == {"default": "a", "tool_use": "b"}


def test_lines_of_two_templates_are_told_apart():
    found = compare_templates("a\nb\nc", "a\nB\nc")
    assert [(line["in"], line["text"]) for line in found["lines"]] == [
        ("both", "a"),
        ("before", "b"),
        ("after", "B"),
        ("both", "c"),
    ]
    assert compare_templates("a", "a")["same"]
    assert compare_templates("a\n" * 6000, "b")["lines"] is None
