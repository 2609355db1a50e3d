"""Chat templates render conversations; the oracle is transformers' own function."""

from __future__ import annotations

import importlib
import os
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

import ggufkit
import real
from ggufkit.errors import ChatTemplateError
from ggufkit.format.metadata import Metadata
from ggufkit.frameworks.chat_template import ChatTemplate
from ggufkit.models.model import Model, Tensors

USER = {"role": "user", "content": "Wie geht's? <b>&</b> 日本"}
SYSTEM = {"role": "system", "content": "Be brief."}
ANSWER = {"role": "assistant", "content": "  Good.\n"}
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a place",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string", "description": "Its näme"}},
            "required": ["place"],
        },
    },
}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {
            "type": "function",
            "id": "abcdef123",
            "function": {"name": "weather", "arguments": {"place": "Bonn"}},
        }
    ],
}
RESULT = {
    "role": "tool", "name": "weather", "tool_call_id": "abcdef123", "content": '{"sky": "grey"}',
}  # fmt: skip
CONVERSATIONS = {
    "question": {"messages": [USER]},
    "system": {"messages": [SYSTEM, USER]},
    "answered": {"messages": [USER, ANSWER, USER]},
    "tools": {"messages": [USER], "tools": [WEATHER]},
    "called": {"messages": [USER, CALL, RESULT], "tools": [WEATHER]},
    "thinking": {"messages": [USER], "enable_thinking": False},
}
SPECIALS = {"bos_token": "<s>", "eos_token": "</s>"}


def model_with(**templates):
    keys = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a", "<s>", "</s>"]}
    keys |= {"tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2}
    for name, text in templates.items():
        keys["tokenizer.chat_template" + ("" if name == "default" else f".{name}")] = text
    return Model(Metadata(keys), Tensors())


def test_messages_and_special_tokens_reach_the_template():
    turns = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
    text = "{{ bos_token }}" + turns
    template = ggufkit.chat_template(
        model_with(default=text + "{{ '>' if add_generation_prompt }}")
    )
    assert template.render([SYSTEM]) == "<s>system: Be brief.</s>"
    assert template.render([SYSTEM], add_generation_prompt=True) == "<s>system: Be brief.</s>>"


def test_the_template_for_tools_is_taken_for_tools():
    model = model_with(default="plain", tool_use="{{ tools | tojson }}")
    template = ggufkit.chat_template(model)
    assert template.render([USER]) == "plain"
    assert '"Its näme"' in template.render([USER], tools=[WEATHER])
    assert template.render([USER], tools=[WEATHER], name="default") == "plain"
    with pytest.raises(ChatTemplateError, match="default, tool_use"):
        template.render([USER], name="rag")


def test_blocks_lose_their_line_ends_and_loops_may_break():
    text = (
        "{% for m in messages %}\n  {% if loop.index > 1 %}{% break %}{% endif %}\n"
        "{{ m.role }}\n{% endfor %}"
    )
    assert ChatTemplate({"default": text}, {}).render([USER, ANSWER]) == "user\n"


@pytest.mark.parametrize(
    "text",
    [
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__init__.__globals__ }}",
        "{% include 'x' %}",
    ],
)
def test_templates_reach_neither_python_nor_files_nor_change_messages(text):
    messages = [USER]
    with pytest.raises(ChatTemplateError):
        ChatTemplate({"default": text}, {}).render(messages)
    assert messages == [USER]


def test_json_is_escaped_only_if_the_template_asks():
    text = "{{ 'ä' | tojson }}{{ 'ä' | tojson(ensure_ascii=True) }}"
    assert ChatTemplate({"default": text}, {}).render([USER]) == '"ä""\\u00e4"'


@pytest.mark.parametrize(
    "text",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 10 ** (10 ** 9) }}",
        "{{ 'x' * (10 ** 10) }}",
    ],
)
def test_template_that_takes_too_long_or_too_much_is_stopped(text, monkeypatch):
    monkeypatch.setattr("ggufkit.frameworks.chat_template.MAX_SECONDS", 1)
    with pytest.raises(ChatTemplateError, match=r"stopped|memory"):
        ChatTemplate({"default": text}, {}).render([USER])
    monkeypatch.undo()
    assert ChatTemplate({"default": "{{ messages[0].role }}"}, {}).render([USER]) == "user"


def test_threads_and_forked_processes_render_each_their_own():
    template = ChatTemplate({"default": "{{ messages[0].content }}"}, {})
    expected = [str(number) for number in range(20)]
    with ThreadPoolExecutor(4) as pool:
        texts = pool.map(
            lambda text: template.render([{"role": "user", "content": text}]), expected
        )
        assert list(texts) == expected
    if not hasattr(os, "fork"):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        text_of_child = template.render([{"role": "user", "content": "child"}])
        os._exit(0 if text_of_child == "child" else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert template.render([USER]) == USER["content"]


def test_what_is_not_json_is_refused():
    with pytest.raises(ChatTemplateError, match="as JSON"):
        ChatTemplate({"default": "x"}, {}).render([{"role": "user", "content": object()}])


def test_refusals_failures_and_wrong_arguments_are_told_apart():
    render = ChatTemplate({"default": "{{ raise_exception('no tools here') }}"}, {}).render
    with pytest.raises(ChatTemplateError, match="refuses: no tools here"):
        render([USER])
    with pytest.raises(ChatTemplateError, match="list of messages"):
        render("hello")
    with pytest.raises(ChatTemplateError, match="get_json_schema"):
        render([USER], tools=[len])
    with pytest.raises(ChatTemplateError, match="has an error"):
        ChatTemplate({"default": "{% if %}"}, {}).render([USER])
    with pytest.raises(ChatTemplateError, match="fails on this"):
        ChatTemplate({"default": "{{ 1 / 0 }}"}, {}).render([USER])
    with pytest.raises(ChatTemplateError, match="has no chat template"):
        ggufkit.chat_template(model_with())


def templates():
    """Return the templates that llama.cpp keeps of real models."""
    folder = real.llama_cpp_source() / "models" / "templates"
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.jinja"))}


@pytest.mark.torch
@pytest.mark.parametrize("prompt", [False, True])
def test_real_templates_render_as_in_transformers(prompt):
    theirs = importlib.import_module("transformers").PreTrainedTokenizerBase
    tokenizer = theirs(**SPECIALS)
    compared = 0
    for name, text in templates().items():
        ours = ChatTemplate({"default": text}, SPECIALS)
        for kind, conversation in CONVERSATIONS.items():
            try:
                expected = tokenizer.apply_chat_template(
                    conversation["messages"], chat_template=text, tokenize=False,
                    add_generation_prompt=prompt,
                    **{key: value for key, value in conversation.items() if key != "messages"},
                )  # fmt: skip
            except Exception:  # noqa: BLE001 (a template can raise whatever Python can)
                with pytest.raises(ChatTemplateError):
                    ours.render(add_generation_prompt=prompt, **conversation)
                continue
            assert ours.render(add_generation_prompt=prompt, **conversation) == expected, (
                name,
                kind,
            )
            compared += 1
    assert compared > 100
