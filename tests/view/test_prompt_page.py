"""Prompts are those of the library, with special tokens marked."""

from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ggufkit
from ggufkit.errors import ChatTemplateError
from ggufkit.view.prompt_page import compare_templates, prompt, templates

MESSAGES = [{"role": "user", "content": "Hello <b>"}, {"role": "assistant", "content": "Hi"}]
KEY = "tokenizer.chat_template"


def test_a_prompt_is_that_of_the_library(smollm2_page):
    document = prompt(smollm2_page, {"messages": MESSAGES, "add_generation_prompt": True})
    expected = ggufkit.chat_template(smollm2_page.model).render(
        MESSAGES, add_generation_prompt=True
    )
    assert document["text"] == expected
    assert "".join(part["text"] for part in document["parts"]) == expected
    marked = {part["text"] for part in document["parts"] if part["special"]}
    assert marked == {"<|im_start|>", "<|im_end|>"}


@pytest.mark.matrix  # until the limit on time stops it
def test_a_template_without_end_is_stopped(model_page):
    endless = "{% for a in range(10**5) %}{% for b in range(10**5) %}{% endfor %}{% endfor %}"
    model = model_page({}, {KEY: endless, "tokenizer.ggml.tokens": ["a"]})
    with pytest.raises(ChatTemplateError):
        prompt(model, {"messages": MESSAGES})


@pytest.mark.parametrize("messages", [None, 5, "x", [5], {"role": "user"}])
def test_messages_that_are_none_are_refused(smollm2_page, messages):
    with pytest.raises(ChatTemplateError, match="messages"):
        prompt(smollm2_page, {"messages": messages})


def test_a_model_without_a_template_says_so(model_page):
    model = model_page({}, {"general.architecture": "llama"})
    assert templates(model)["templates"] == {}
    with pytest.raises(ChatTemplateError, match="no chat template"):
        prompt(model, {"messages": MESSAGES})


def test_named_templates_are_listed(model_page):
    model = model_page({}, {KEY: "a", f"{KEY}.tool_use": "b", "tokenizer.ggml.tokens": ["x"]})
    assert templates(model)["templates"] == {"default": "a", "tool_use": "b"}


def test_many_long_templates_are_shown_in_part(model_page):
    texts = {f"{KEY}.t{number}": "a" * 200_000 for number in range(20)}
    rows = templates(model_page({}, texts))["templates"]
    assert len(rows) == 16
    assert sum(map(len, rows.values())) < 1_100_000


def test_lines_of_two_templates_are_told_apart():
    document = compare_templates("a\nb\nc", "a\nB\nc")
    assert [(line["in"], line["text"]) for line in document["lines"]] == [
        ("both", "a"),
        ("before", "b"),
        ("after", "B"),
        ("both", "c"),
    ]
    assert compare_templates("a", "a")["same"]
    assert compare_templates("a\n" * 6000, "b")["lines"] is None


@given(*[st.lists(st.sampled_from("abcd"), max_size=12)] * 2)
def test_lines_of_both_templates_stay_in_order(before, after):
    lines = compare_templates("\n".join(before), "\n".join(after))["lines"]
    assert [line["text"] for line in lines if line["in"] != "after"] == before
    assert [line["text"] for line in lines if line["in"] != "before"] == after
    same = difflib.SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    assert sum(line["in"] == "both" for line in lines) >= sum(block.size for block in same)


def test_templates_that_difflib_takes_hours_for_are_compared():
    before, after = ("".join(f"a\n{side}{n}\n" for n in range(2400)) for side in "xy")
    lines = compare_templates(before, after)["lines"]
    assert sum(line["in"] == "both" for line in lines) == 2400


@pytest.mark.parametrize(
    "template", ["{{ 'a' * 10**8 }}", "{% for a in range(10**4) %}{{ 'a' * 10**4 }}{% endfor %}"]
)
def test_a_prompt_without_bounds_is_refused(model_page, template):
    model = model_page({}, {KEY: template, "tokenizer.ggml.tokens": ["a"]})
    with pytest.raises(ChatTemplateError, match="characters"):
        prompt(model, {"messages": MESSAGES})


def test_a_prompt_longer_than_the_page_shows_is_refused(model_page):
    model = model_page({}, {KEY: "{{ 'a' * 2**21 }}", "tokenizer.ggml.tokens": ["a"]})
    with pytest.raises(ChatTemplateError, match="2,097,152 characters"):
        prompt(model, {"messages": MESSAGES})
