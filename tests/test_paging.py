"""Long tables on a terminal go through a pager; anything else gets plain text at once."""

from __future__ import annotations

import os
import pty

import pytest

import shapes
from shell import process


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """Llama 2 7B without its data."""
    folder = tmp_path_factory.mktemp("llama")
    model = shapes.model_of(*shapes.large()["llama 7B"])
    return shapes.write_sparse(model, folder / "llama-2-7b.gguf")


def shown(*words, **environment):
    """What a terminal gets."""
    ours, theirs = pty.openpty()
    size = {"LINES": "24", "COLUMNS": "100", "TERM": "xterm", "PAGER": "sed s/^/paged:/"}
    with process(*words, stdin=theirs, stdout=theirs, env=size | environment) as command:
        os.close(theirs)
        parts = []
        while part := _read(ours):
            parts.append(part)
    os.close(ours)
    assert command.returncode == 0
    return b"".join(parts).decode().replace("\r\n", "\n")


def _read(end):
    try:
        return os.read(end, 1 << 16)
    except OSError:  # how a terminal tells that nobody holds the other end
        return b""


@pytest.mark.parametrize(
    "words", [("inspect", "FILE"), ("estimate", "FILE", "--layers"), ("plan", "FILE")]
)
def test_long_table_is_paged(llama, words):
    lines = shown(*(str(llama) if word == "FILE" else word for word in words)).splitlines()
    assert len(lines) > 24
    assert all(line.startswith("paged:") for line in lines)


def test_what_fits_the_terminal_is_shown_at_once(llama):
    assert "paged:" not in shown("estimate", llama)
    assert "paged:" not in shown("inspect", llama, LINES="5000")


def test_headings_are_bold_unless_color_is_not_wanted(llama):
    assert "\x1b[1m" in shown("estimate", llama)
    assert "\x1b" not in shown("estimate", llama, NO_COLOR="1")
    assert "\x1b" not in shown("inspect", llama, NO_COLOR="1")


def test_pipe_is_not_paged(llama):
    with process("inspect", llama, env={"PAGER": "false", "LINES": "3"}) as command:
        out = command.communicate()[0]
    assert command.returncode == 0
    assert b"token_embd.weight" in out
    assert b"\x1b" not in out
