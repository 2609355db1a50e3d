"""No text in a file or its name controls the terminal or breaks JSON output."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

import derived
import ggufkit as library
import legacy_files
from ggufkit.cli.app import COMMANDS, app
from ggufkit.cli.completion import Bash, is_harmless
from plain_checkpoint import ARCH, CONFIG, whole
from shell import ggufkit
from spelled import SpelledTensor, Spelling
from tensors_file import write_checkpoint

# Clears the screen, rings, turns text around, begins a sequence in one byte, links to elsewhere,
# and ends the line.
EVIL = "\x1b[2J\x07\u202e\u2066\x9b31m\x1b]8;;a:b\x1b\\\x9d8;;\x9c\r\x7f"
NAME = f"e{EVIL}.gguf"

pytestmark = pytest.mark.skipif(os.name == "nt", reason="its names hold no control characters")


def evil_file():
    """Return a valid file whose every text is malicious."""
    text = EVIL.encode()
    floats = np.array([np.nan, np.inf], "<f4").tobytes()
    pairs = [
        ("general.architecture", ("string", "llama")),
        ("llama.block_count", ("uint32", 1)),
        ("llama.context_length", ("uint32", 128)),
        ("llama.embedding_length", ("uint32", 32)),
        ("llama.attention.head_count", ("uint32", 4)),
        ("general.name", ("string", text)),
        ("general.license", ("string", text)),
        ("general.basename", ("string", text)),
        ("tokenizer.ggml.model", ("string", "gpt2")),
        ("tokenizer.ggml.pre", ("string", text)),
        ("tokenizer.ggml.tokens", ("array", ("string", [text, b"\xff\xfe", b"\xed\xa0\x80"]))),
        ("tokenizer.chat_template", ("string", b"{{ 1/0 }}{% for " + text)),
        (f"a.{EVIL}", ("string", b"lone \xff")),
        ("b.floats", ("array", ("float32", [floats[:4], floats[4:]]))),
        ("b.nan", ("float32", floats[:4])),
        ("b.infinite", ("float64", np.array(-np.inf, "<f8").tobytes())),
        ("b.nested", ("array", ("array", [("string", [text])]))),
    ]
    tensors = [
        SpelledTensor(f"blk.0.{EVIL}.weight", (32, 2), 0, bytes(256)),
        SpelledTensor("token_embd.weight", (32, 3), 0, floats * 48),
        SpelledTensor(f"odd{EVIL}", (8,), 0, bytes(32)),
    ]
    return Spelling().file(pairs, tensors)


@pytest.fixture
def work(tmp_path, monkeypatch):
    content = evil_file()
    (tmp_path / NAME).write_bytes(content)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / NAME).write_bytes(content[:-40])
    library.save(tmp_path / "plain.gguf", {"odd": np.ones(8, "f4")}, {"general.name": "other"})
    entry = library.imatrix.Entry(np.ones((1, 64), "f4"), np.array([3]))
    library.Imatrix({f"blk.0.{EVIL}": entry}, (EVIL,), 3, 512).save(tmp_path / "matrix.gguf")
    write_checkpoint(tmp_path / "checkpoint", CONFIG | {"architectures": [EVIL]}, model=whole())
    (tmp_path / "arch").mkdir()
    (tmp_path / "arch" / f"{EVIL}.toml").write_text(ARCH)
    legacy_files.write(tmp_path / f"old{EVIL}.bin", "GGJT", 3)
    (tmp_path / "recipe.toml").write_text(f'base = "Q8_0"\nnonsense = {json.dumps(EVIL)}\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    return tmp_path


RUNS = {
    "inspect": [
        ("IN",),
        ("IN", "--json"),
        ("IN", "--bytes"),
        ("IN", "--bytes", "--json"),
        ("IN", "--key", "general.name", "--json"),  # to a pipe, text goes as it is
        ("IN", "--key", f"a.{EVIL}", "--json"),
        ("IN", "--key", "tokenizer.chat_template", "--json"),
        ("IN", "--key", "tokenizer.ggml.tokens"),
        ("IN", "--key", "b.nested", "--json"),
        ("IN", "--key", "b.floats", "--json"),
        ("IN", "--key", EVIL),
    ],
    "check": [
        ("IN",),
        ("IN", "--json"),
        ("IN", "--sarif"),
        ("IN", "--data"),
        ("IN", "--fix", "--dry-run"),
    ],
    "quantize": [
        ("IN", "Q8_0", "--dry-run"),
        ("IN", "OUT", "Q8_0"),
        ("IN", "OUT", EVIL),
        ("IN", "OUT", "recipe.toml"),
        ("IN", "Q8_0", "--dry-run", "--json"),
    ],
    "plan": [("IN",), ("IN", "--json")],
    "estimate": [("IN",), ("IN", "--json")],
    "imatrix": [
        ("show", "matrix.gguf"),
        ("show", "matrix.gguf", "--json"),
        ("show", "IN"),
        ("convert", "matrix.gguf", "OUT"),
        ("merge", "matrix.gguf", "IN", "-o", "OUT"),
    ],
    "copy": [("IN", "OUT"), ("IN", "IN"), ("IN", f"gone{EVIL}/out.gguf"), (f"gone{EVIL}", "OUT")],
    "edit": [
        ("IN", "--set", f"new.{EVIL}={EVIL}", "--dry-run"),
        ("IN", "--unset", EVIL),
        ("IN", "--set", f"general.name={EVIL}!", "--json"),
        ("IN", "--undo"),
        ("IN", "--set", "general.name=x", "--output", "OUT"),
    ],
    "recover": [("IN",), ("IN", "--json"), (EVIL,)],
    "convert": [("checkpoint", "OUT"), ("checkpoint", "OUT", "--arch-path", "arch")],
    "convert-legacy": [(f"old{EVIL}.bin", "OUT"), ("IN", "OUT")],
    "export": [("IN", f"folder{EVIL}"), ("IN", "checkpoint")],
    "archs": [("--arch-path", "arch"), (EVIL,)],
    "hash": [("IN", "--all"), ("IN", "--json"), ("IN", "--check", "IN"), ("IN", "--name", EVIL)],
    "select": [("IN", "OUT", "--keep", EVIL), ("IN", "OUT", "--keep", "re:["), ("IN", "OUT")],
    "diff": [("IN", "plain.gguf"), ("IN", "plain.gguf", "--json"), ("IN", "broken/IN")],
    "name": [("IN",), ("IN", "--json"), ("IN", "--rename", "--dry-run"), ("IN", "--rename")],
    "list": [(), ("--json",)],
    "view": [(EVIL,), ("IN", "--no-browser", "--host", EVIL)],  # else it serves until Ctrl-C
    "lora": [
        ("convert", f"gone{EVIL}", "OUT"),
        ("merge", "IN", "IN", "-o", "OUT"),
        ("extract", "IN", "IN", "OUT", "--rank", "2"),
        ("extract", "IN", "plain.gguf", "OUT", "--rank", "2", "--json"),
    ],
}


def runs(command):
    """Return the arguments to try: those listed above, or those that the help asks for."""
    if command in RUNS:
        return RUNS[command]
    row = derived.leaves()[command]
    words = derived.words(row, "IN", "OUT")
    return [words, (*words, "--json")] if "--json" in derived.spellings(row) else [words]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("folder", ["", "broken/"])
def test_no_command_lets_a_file_control_the_terminal(work, command, folder):
    for words in runs(command):
        words_of_command = [
            word.replace("IN", folder + NAME).replace("OUT", f"out{EVIL}.gguf") for word in words
        ]
        done = ggufkit(command, *words_of_command)
        text = done.raw.decode("utf-8", "backslashreplace") + done.err
        assert all(char.isprintable() or char == "\n" for char in text), (words, text)
        assert "Traceback" not in text
        assert done.code in range(6), (words, text)
        if "--json" in words and done.out.strip():
            done.json()


def test_completion_offers_no_key_that_a_shell_would_run(work):
    items = Bash(app, {}, "ggufkit", "_").get_completions(["inspect", NAME, "--key"], "")
    offered = [item.value for item in items]
    assert "general.name" in offered
    assert all(is_harmless(key) for key in offered)
