from __future__ import annotations

import io
import json
import sys

import pytest

import ggufkit as api
from ggufkit.frameworks import chat_template
from shell import done, ggufkit

TEXT = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
    "{{ tools | tojson if tools }}{{ x | tojson if x is defined }}"
    "{{ '<assistant>' if add_generation_prompt }}"
)
CHAT = [{"role": "user", "content": "Hi & 日本"}]
TOOLS = [{"type": "function", "function": {"name": "weather"}}]


@pytest.fixture
def path(tmp_path):
    keys = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": ["a", "<s>"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.chat_template": TEXT,
        "tokenizer.chat_template.rag": "rag",
    }
    api.save(tmp_path / "m.gguf", {}, keys)
    return tmp_path / "m.gguf"


@pytest.fixture
def chat(tmp_path):
    return written(tmp_path / "chat.json", CHAT)


def written(path, value):
    path.write_text(json.dumps(value))
    return path


def test_the_prompt_is_printed_as_it_is(path, chat):
    assert done("template", path, "--messages", chat).raw == "<s><user>Hi & 日本\n".encode()


def test_the_prompt_ends_where_the_answer_begins(path, chat):
    result = done("template", path, "--messages", chat, "--add-generation-prompt")
    assert result.out.endswith("\n<assistant>")


def test_tools_come_from_their_file_or_with_the_messages(path, chat, tmp_path):
    tools = written(tmp_path / "tools.json", TOOLS)
    apart = done("template", path, "--messages", chat, "--tools", tools).out
    both = written(tmp_path / "both.json", {"messages": CHAT, "tools": TOOLS})
    assert apart == done("template", path, "--messages", both).out
    assert json.dumps(TOOLS) in apart


def test_messages_come_from_standard_input(path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(CHAT).encode())))
    assert done("template", path, "--messages", "-").out.startswith("<s><user>Hi")


def test_standard_input_is_used_once(path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"[]")))
    result = ggufkit("template", path, "--messages", "-", "--tools", "-")
    assert result.code == 2


@pytest.mark.parametrize(
    ("variable", "text"), [("x=false", "false"), ("x=a b", '"a b"'), ("x=[1]", "[1]"), ("x=", '""')]
)
def test_variables_are_json_or_text(path, chat, variable, text):
    assert done("template", path, "--messages", chat, "--set", variable).out.endswith(f"\n{text}")


def test_a_template_is_chosen_by_name(path, chat):
    assert done("template", path, "--messages", chat, "--name", "rag").out == "rag"
    result = ggufkit("template", path, "--messages", chat, "--name", "x")
    assert (result.code, result.out) == (1, "")
    assert "the model has no chat template 'x'\n  Use one of its names: default, rag" in result.err


def test_json_holds_the_prompt(path, chat):
    document = done("template", path, "--messages", chat, "--json").json()
    assert document == {"prompt": "<s><user>Hi & 日本\n", "templates": ["default", "rag"]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "chat.json is not JSON"),
        ('"x"', "expected a JSON list of messages"),
        ("{}", "expected a JSON list of messages"),
        ("[1]", "expected a JSON list of messages"),
        ('{"messages": [], "tools": 3}', "expected a JSON list of tools"),
    ],
)
def test_wrong_messages_are_explained(path, chat, content, message):
    chat.write_text(content)
    result = ggufkit("template", path, "--messages", chat)
    assert (result.code, result.out) == (2, "")
    assert message in result.err


def test_a_setting_needs_a_name(path, chat):
    assert ggufkit("template", path, "--messages", chat, "--set", "x").code == 2
    assert ggufkit("template", path, "--messages", chat, "--set", "messages=1").code == 2


def test_a_template_that_takes_too_long_is_stopped(path, chat, monkeypatch):
    monkeypatch.setattr(chat_template, "MAX_SECONDS", 1)
    endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    api.save(path, {}, {"tokenizer.ggml.tokens": ["a"], "tokenizer.chat_template": endless})
    result = ggufkit("template", path, "--messages", chat)
    assert (result.code, result.out) == (1, "")
    assert "the chat template was stopped" in result.err


def test_a_model_without_a_template_is_an_error(tmp_path, chat):
    api.save(tmp_path / "bare.gguf", {}, {"general.architecture": "llama"})
    result = ggufkit("template", tmp_path / "bare.gguf", "--messages", chat)
    assert (result.code, result.out) == (1, "")
    assert "the model has no chat template" in result.err


def test_a_text_is_a_question_and_without_one_there_is_a_sample(path):
    assert done("template", path, "Hi & 日本").raw == "<s><user>Hi & 日本\n".encode()
    roles = ["<user>", "<assistant>", "<user>"]
    lines = done("template", path).out.removeprefix("<s>").splitlines()
    assert [line[: len(role)] for line, role in zip(lines, roles, strict=True)] == roles
    assert ggufkit("template", path, "Hi", "--messages", "chat.json").code == 2
