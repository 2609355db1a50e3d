"""The journal of a resumed job: truncated, foreign, or of another version."""

from __future__ import annotations

import errno
import os

import numpy as np
import pytest

import ggufkit
from ggufkit.errors import OutputError
from ggufkit.output import execute, resume
from ggufkit.output.chunks import Chunk, Sizes
from ggufkit.system.hidden_files import RESUME, RESUME_JOURNAL, hidden
from neighbours import KEPT, POSSIBLE, place
from platforms import posix


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.setattr(execute, "HERE", Sizes(1 << 10, 1 << 10))
    tensors = {f"t{n}": np.full((16, 64), n, np.float32) for n in range(3)}
    with ggufkit.open(ggufkit.save(tmp_path / "in.gguf", tensors)[0]) as model:
        yield model


@pytest.fixture
def out(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "out.gguf"


@pytest.fixture
def interrupted(model, out):
    """The content of the journal and of the output of a job that ended half-way."""

    def stopping(done, total):
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ggufkit.write(model, out, threads=1, resume=True, progress=stopping)
    return hidden(out, RESUME_JOURNAL).read_bytes(), hidden(out, RESUME).read_bytes()


def finish(model, out):
    ggufkit.write(model, out, threads=1, resume=True)
    with ggufkit.open(out) as written:
        for name, tensor in model.tensors.items():
            np.testing.assert_array_equal(written.tensors[name].numpy(), tensor.numpy())
    assert [path.name for path in out.parent.iterdir()] == [out.name]


def test_resumes_from_a_journal_cut_at_any_byte(model, out, interrupted):
    journal, staged = interrupted
    assert journal.count(b"\n") > 5
    for length in range(len(journal)):
        hidden(out, RESUME_JOURNAL).write_bytes(journal[:length])
        hidden(out, RESUME).write_bytes(staged)
        finish(model, out)
        out.unlink()


def test_uses_complete_records_before_a_torn_one(model, out, interrupted, monkeypatch):
    journal, _ = interrupted
    hidden(out, RESUME_JOURNAL).write_bytes(journal[:-3])
    chunks = []
    contents = Chunk.contents
    monkeypatch.setattr(
        Chunk, "contents", lambda chunk, *scratch: chunks.append(chunk) or contents(chunk, *scratch)
    )
    finish(model, out)
    assert len(chunks) == 12 - (journal.count(b"\n") - 2)


@pytest.mark.parametrize("head", [b"", b"\0" * 512, b"ggufkit resume", b"\0" * 512 + b"1 2 3\n"])
def test_torn_journal_header_is_not_taken_as_a_different_input(model, out, interrupted, head):
    assert interrupted
    hidden(out, RESUME_JOURNAL).write_bytes(head)
    finish(model, out)


def test_refuses_a_journal_of_another_version_and_names_it(model, out, interrupted):
    _, staged = interrupted
    head = b"ggufkit resume journal 2, version 0.0.1, plan " + b"0" * 64
    hidden(out, RESUME_JOURNAL).write_bytes(head + b"\n0 0 64 00000000\n")
    with pytest.raises(OutputError, match=r"version 0\.0\.1 of ggufkit") as caught:
        finish(model, out)
    assert "that version" in caught.value.remedy
    assert hidden(out, RESUME).read_bytes() == staged


def test_does_not_read_an_oversized_journal(model, out, interrupted):
    assert interrupted
    os.truncate(hidden(out, RESUME_JOURNAL), 1 << 40)
    with pytest.raises(OutputError, match="more than any journal"):
        finish(model, out)


@posix
@pytest.mark.parametrize("kind", POSSIBLE)
@pytest.mark.parametrize("name", [RESUME, RESUME_JOURNAL], ids=["output", "journal"])
def test_refuses_a_foreign_file_in_the_place_of_kept_work(model, out, name, kind):
    neighbour = place(hidden(out, name), kind)
    with pytest.raises(OutputError, match=neighbour.reason):
        ggufkit.write(model, out, resume=True)
    assert neighbour.is_untouched()
    assert not out.exists()


@posix
@pytest.mark.parametrize("kind", POSSIBLE)
def test_writing_without_resume_ignores_a_foreign_journal(model, out, kind):
    neighbour = place(hidden(out, RESUME_JOURNAL), kind)
    ggufkit.write(model, out)
    if "folder" not in kind and "hard" not in kind:
        assert neighbour.precious.read_bytes() == KEPT
    assert out.exists()


@pytest.mark.parametrize("call", ["close", "unlink"])
def test_error_after_publishing_is_not_a_failure(model, out, monkeypatch, call):
    real = getattr(os, call)

    def failing(name, **folders):
        is_late = out.exists()
        result = real(name, **folders) if call == "close" or not is_late else None
        if is_late:
            raise OSError(errno.EIO, "late")
        return result

    with monkeypatch.context() as patched:
        patched.setattr(os, call, failing)
        paths = ggufkit.write(model, out, resume=True)
    assert paths == [out]
    assert resume.journal_of(out).exists() == (call == "unlink")
    finish(model, out)
