"""The journal: what it tells of a file, and what is done about one that it does not fit."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ggufkit
from ggufkit.errors import FormatError, OutputError
from ggufkit.system import edit_journal
from ggufkit.system.edit_journal import EditJournal

PENDING = ".model.gguf.ggufkit-edit"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.gguf"
    ggufkit.save(path, {"a": np.zeros(50, np.float32)}, {"text": "x" * 100})
    return path


def interrupted(path, upto):
    """Leave the file as an edit in place does that ends after `upto` bytes of the header."""
    before = path.read_bytes()
    ggufkit.edit_in_place(path, set={"text": "y" * 100})
    after = path.read_bytes()
    path.with_name(".model.gguf.ggufkit-undo").rename(path.with_name(PENDING))
    path.write_bytes(after[:upto] + before[upto:])
    return before, after


@given(st.binary(max_size=50), st.binary(max_size=50), st.integers(0, 2**63))
def test_journal_survives_its_file(old, new, nbytes):
    made = EditJournal(nbytes, old, new)
    assert EditJournal.decode(made.encode()) == made
    assert made.reversed.reversed == made


@given(st.data())
def test_damaged_journal_is_none(data):
    whole = EditJournal(9, b"old", b"newer").encode()
    at = data.draw(st.integers(0, len(whole) - 1))
    assert EditJournal.decode(whole[:at]) is None
    assert EditJournal.decode(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]) is None
    assert EditJournal.decode(whole + b"\0") is None


@pytest.mark.parametrize("way", [ggufkit.open, ggufkit.check, ggufkit.recover])
@pytest.mark.parametrize("upto", [60, 100, 140])
def test_file_between_is_finished_by_whoever_opens_it(path, way, upto):
    before, after = interrupted(path, upto)
    assert path.read_bytes() not in (before, after)
    way(path)
    assert path.read_bytes() == after
    assert not path.with_name(PENDING).exists()
    ggufkit.undo(path)
    assert path.read_bytes() == before


def test_recover_tells_what_it_found(path):
    assert ggufkit.recover(path) == "nothing"
    before, _ = interrupted(path, 0)
    assert ggufkit.recover(path) == "before"
    assert path.read_bytes() == before
    _, after = interrupted(path, 100)
    assert ggufkit.recover(path) == "after"
    assert path.read_bytes() == after
    assert ggufkit.recover(path) == "nothing"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such links")
def test_journal_is_found_through_links(path, tmp_path):
    _, after = interrupted(path, 100)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "link.gguf").symlink_to(path)
    with ggufkit.open(folder / "link.gguf") as model:
        assert model.metadata["text"] == "y" * 100
    assert path.read_bytes() == after


@pytest.mark.parametrize("width", [9, 50])
def test_file_that_took_the_place_of_another_is_left_alone(path, width):
    interrupted(path, 100)
    ggufkit.save(path, {"a": np.ones(width, np.float32)}, {"text": "z" * 100})
    fresh = path.read_bytes()
    assert path.with_name(PENDING).exists()
    assert ggufkit.recover(path) == "replaced"
    assert path.read_bytes() == fresh
    assert not path.with_name(PENDING).exists()


def test_data_that_moved_in_part_is_an_error(path):
    """No killed process leaves this; a file system that loses power while it moves blocks may."""
    before = path.read_bytes()
    step = 4096
    moved = EditJournal(len(before), before[:192], b"new".ljust(192 + step, b"\1"))
    path.with_name(PENDING).write_bytes(moved.encode())
    path.write_bytes(before[:300] + bytes(step) + before[300:])
    torn = path.read_bytes()
    with pytest.raises(FormatError, match=PENDING):
        ggufkit.open(path)
    assert path.read_bytes() == torn
    path.write_bytes(bytes(step) + before)
    assert ggufkit.recover(path) == "after"
    assert path.read_bytes() == moved.new + before[192:]


@pytest.mark.parametrize("content", [b"", b"junk" * 100, b"ggufkit journal 1\n" + b"\xff" * 200])
def test_journal_that_is_none_is_an_error_and_changes_nothing(path, content):
    fresh = path.read_bytes()
    path.with_name(PENDING).write_bytes(content)
    with pytest.raises(FormatError, match="not a journal"):
        ggufkit.open(path)
    assert path.read_bytes() == fresh


@pytest.mark.parametrize(("upto", "text"), [(0, "x"), (10**6, "y")])
def test_file_that_cannot_be_written_is_read_as_it_is(path, monkeypatch, upto, text):
    interrupted(path, upto)
    forbid(path, monkeypatch)
    with ggufkit.open(path) as model:
        assert model.metadata["text"] == text * 100
    assert path.with_name(PENDING).exists()


def test_file_between_that_cannot_be_written_says_so(path, monkeypatch):
    interrupted(path, 100)
    torn = path.read_bytes()
    forbid(path, monkeypatch)
    with pytest.raises(OutputError, match="ggufkit recover"):
        ggufkit.open(path)
    assert path.read_bytes() == torn


def forbid(path, monkeypatch):
    """Let the file be opened for reading only; permissions would not stop root."""
    really = os.open

    def guarded(name, flags, *mode):
        if os.fspath(name) == str(path) and flags & os.O_RDWR:
            raise PermissionError(13, "Permission denied", str(name))
        return really(name, flags, *mode)

    monkeypatch.setattr(edit_journal.os, "open", guarded)


def test_journal_of_absurd_size_is_not_read(path):
    with path.with_name(PENDING).open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(FormatError, match="not a journal"):
        ggufkit.open(path)


def test_recover_removes_what_an_interrupted_copy_left(path):
    leftover = path.with_name(".model.gguf.ggufkit-part")
    leftover.write_bytes(b"half")
    ggufkit.recover(path)
    assert not leftover.exists()


def test_missing_file_is_told_as_ever(tmp_path):
    for way in (ggufkit.open, ggufkit.recover):
        with pytest.raises(FileNotFoundError):
            way(tmp_path / "none.gguf")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_pipe_in_the_place_of_a_journal_is_refused_and_not_waited_for(path):
    os.mkfifo(path.with_name(PENDING))
    with pytest.raises(FormatError, match="not a journal"):
        ggufkit.open(path)
