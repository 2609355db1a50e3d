"""Every command ends with 2 for wrong usage and with 1 for a failure, and says why on stderr."""

from __future__ import annotations

import json

import click
import pytest

from ggufkit.cli.app import COMMANDS, app
from shell import done, ggufkit

NO_FILE = "nosuch.gguf"
TROUBLE = 2  # of diff, as in diff(1), because 1 means a difference
# A complete call of each command that reads a model, with a file that is missing or no model.
CALLS = {
    "check": ("check", "FILE"),
    "convert": ("convert", "FILE", "out.gguf"),
    "convert-legacy": ("convert-legacy", "FILE", "out.gguf"),
    "copy": ("copy", "FILE", "out.gguf"),
    "diff": ("diff", "FILE", "FILE"),
    "edit": ("edit", "FILE", "--set", "a=1"),
    "estimate": ("estimate", "FILE"),
    "eval": ("eval", "FILE", "--text", "FILE"),
    "export": ("export", "FILE", "out"),
    "hash": ("hash", "FILE"),
    "imatrix": ("imatrix", "show", "FILE"),
    "inspect": ("inspect", "FILE"),
    "lora": ("lora", "merge", "FILE", "FILE", "-o", "out.gguf"),
    "plan": ("plan", "FILE"),
    "quantize": ("quantize", "FILE", "out.gguf", "Q4_0"),
    "report": ("report", "FILE", "-o", "out.html"),
    "reproduce": ("reproduce", "FILE", "--source", "FILE"),
    "select": ("select", "FILE", "out.gguf", "--keep", "*"),
    "sensitivity": ("sensitivity", "FILE", "chat.json"),
    "template": ("template", "FILE", "--messages", "chat.json"),
    "tensor": ("tensor", "FILE", "a"),
    "tokenize": ("tokenize", "FILE", "a"),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chat.json").write_text("[]")
    (tmp_path / "text.gguf").write_text("This is no model.\n" * 40)
    return tmp_path


def commands():
    """Return each command and subcommand as the words that call it."""
    for name in COMMANDS:
        command = app.get_command(None, name)
        nested = command.commands if isinstance(command, click.Group) else {}
        yield from ((name, command) for command in nested) if nested else ((name,),)


@pytest.mark.parametrize("words", [*commands()], ids=" ".join)
def test_an_unknown_option_is_wrong_usage(words):
    result = ggufkit(*words, "--no-such-option")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: ")


@pytest.mark.parametrize("words", [*commands()], ids=" ".join)
def test_help_is_no_error_and_names_the_common_options(words):
    result = done(*words, "--help")
    assert result.err == ""
    assert "--quiet" in result.out


@pytest.mark.parametrize("file", [NO_FILE, "text.gguf"])
@pytest.mark.parametrize("name", CALLS)
def test_a_file_that_is_missing_or_no_model_is_a_failure(name, file, folder):
    before = sorted(folder.iterdir())
    result = ggufkit(*(word.replace("FILE", file) for word in CALLS[name]))
    usual = {1} if name != "diff" else {TROUBLE}
    # Some options check that their file exists before the command begins.
    allowed = usual | ({2} if file == NO_FILE else set())
    assert result.code in allowed, result.err
    text = result.out if name == "check" else result.err  # findings are its result
    assert "error: " in text
    assert "Traceback" not in result.err
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("name", [name for name in CALLS if name not in {"imatrix", "lora"}])
def test_with_json_an_error_is_json(name):
    command = app.get_command(None, name)
    if not any("--json" in param.opts for param in command.params):
        return
    result = ggufkit(*(word.replace("FILE", "text.gguf") for word in CALLS[name]), "--json")
    assert result.code
    last = json.loads(result.err.splitlines()[-1])["error"] if result.err else None
    if last is None:  # check prints its findings as the result
        assert name == "check"
        return
    assert set(last) >= {"kind", "message", "remedy"}
    assert last["message"]


def test_wrong_usage_is_json_too():
    result = ggufkit("inspect", "--json")
    assert result.code == 2
    error = json.loads(result.err)["error"]
    assert error["message"] == "Missing argument 'FILE...'."
    assert error["remedy"] == "`ggufkit inspect --help` explains it"


def test_a_value_called_like_the_option_does_not_make_errors_json():
    result = ggufkit("inspect", "--", "--json")
    assert result.err.startswith("error: --json: ")
