"""Long tables on a terminal go through a pager; anything else gets plain text at once."""

from __future__ import annotations

import os

import pytest

import shapes
from shell import done, process

pty = pytest.importorskip("pty", reason="terminals as POSIX has them")


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """Llama 2 7B without its data."""
    folder = tmp_path_factory.mktemp("llama")
    model = shapes.model_of(*shapes.large()["llama 7B"])
    return shapes.write_sparse(model, folder / "llama-2-7b.gguf")


def page_through(*words, code=0, **environment):
    """Return what a terminal receives."""
    ours, theirs = pty.openpty()
    size = {"LINES": "24", "COLUMNS": "100", "TERM": "xterm", "PAGER": "sed s/^/paged:/"}
    with process(*words, stdin=theirs, stdout=theirs, env=size | environment) as command:
        os.close(theirs)
        parts = []
        while part := _read(ours):
            parts.append(part)
    os.close(ours)
    assert command.returncode == code
    return b"".join(parts).decode().replace("\r\n", "\n")


def _read(end):
    try:
        return os.read(end, 1 << 16)
    except OSError:  # how a terminal tells that nobody holds the other end
        return b""


@pytest.mark.parametrize(
    "words",
    [
        ("inspect", "FILE"),
        ("inspect", "FILE", "--bytes"),
        ("estimate", "FILE", "--layers"),
        ("plan", "FILE"),
        ("archs",),
        ("quantize", "FILE", "Q4_K_M", "--dry-run"),
        ("select", "FILE", "x.gguf", "--vocab-only", "--dry-run"),
        ("copy", "FILE", "x.gguf", "--shard-tensors", "4", "--dry-run"),
    ],
)
def test_shows_a_long_report_in_the_pager(llama, words):
    lines = page_through(*(str(llama) if word == "FILE" else word for word in words)).splitlines()
    assert len(lines) > 24
    assert all(line.startswith("paged:") for line in lines)


def test_paged_diff_keeps_its_exit_code(llama, tmp_path):
    other = tmp_path / "other.gguf"
    done("select", llama, other, "--vocab-only")
    lines = page_through("diff", llama, other, "--no-data", code=1).splitlines()
    assert lines[-1].endswith("differ")
    assert all(line.startswith("paged:") for line in lines)


def test_shows_findings_in_the_pager(llama, tmp_path):
    text = tmp_path / "text"
    text.write_text("no model")
    files = [tmp_path / f"{number}.gguf" for number in range(20)]
    for file in files:
        file.symlink_to(text)
    lines = page_through("check", *files, code=1).splitlines()
    assert len(lines) == 40
    assert all(line.startswith("paged:") for line in lines)


def test_output_that_fits_the_terminal_is_not_paged(llama):
    assert "paged:" not in page_through("estimate", llama)
    assert "paged:" not in page_through("inspect", llama, LINES="5000")


def test_headings_are_bold_unless_color_is_off(llama):
    assert "\x1b[1m" in page_through("estimate", llama)
    assert "\x1b" not in page_through("estimate", llama, NO_COLOR="1")
    assert "\x1b" not in page_through("inspect", llama, NO_COLOR="1")


def test_pipe_is_not_paged(llama):
    with process("inspect", llama, env={"PAGER": "false", "LINES": "3"}) as command:
        out = command.communicate()[0]
    assert command.returncode == 0
    assert b"token_embd.weight" in out
    assert b"\x1b" not in out
