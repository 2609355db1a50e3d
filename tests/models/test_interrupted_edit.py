"""Reading a file whose edit was interrupted shows one complete state and changes nothing."""

from __future__ import annotations

import os
import shutil
import warnings
from dataclasses import replace

import numpy as np
import pytest

import ggufkit
from ggufkit.edits import in_place
from ggufkit.errors import FormatError, InterruptedEditWarning, OutputError
from ggufkit.inspection.header_map import dissect
from ggufkit.system.edit_journal import EditJournal
from ggufkit.system.hidden_files import EDIT, PART, RESUME, UNDO, hidden
from neighbours import POSSIBLE, as_another, place
from platforms import posix
from shell import done

ARRAY = np.arange(60000, dtype=np.float32)
TEXT = {"text": "x" * 100}
as_root = pytest.mark.skipif(
    getattr(os, "geteuid", lambda: 1)() != 0, reason="only root can become another user"
)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.gguf"
    ggufkit.save(path, {"a": ARRAY}, {"general.architecture": "llama", **TEXT})
    return path


def interrupt(path, upto=100):
    """Leave the file as an edit in place that stops after `upto` bytes of the header."""
    before = path.read_bytes()
    assert ggufkit.edit_in_place(path, set={"text": "y" * 100}).way == "patched"
    after = path.read_bytes()
    hidden(path, UNDO).rename(hidden(path, EDIT))
    first = next(offset for offset, byte in enumerate(after) if byte != before[offset])
    upto = max(0, min(first + upto, len(after)))
    path.write_bytes(after[:upto] + before[upto:])
    return before, after


def contents(path):
    with ggufkit.open(path) as model:
        np.testing.assert_array_equal(model.tensors["a"].numpy(), ARRAY)
        np.testing.assert_array_equal(model.tensors["a"].source.read(0, 1).view("f4")[0], ARRAY)
        return str(model.metadata["text"])


def folder_of(path):
    return {file.name: file.read_bytes() for file in path.parent.iterdir() if file.is_file()}


# Reading.


@pytest.mark.parametrize(
    ("upto", "letter", "message"),
    [
        (-1000, "x", "before it changed the file"),
        (1, "y", "state after the edit is shown"),
        (50, "y", "state after the edit is shown"),
        (10**6, "y", "after it changed the file"),
    ],
)
def test_reading_shows_a_whole_state_says_so_and_writes_nothing(path, upto, letter, message):
    interrupt(path, upto)
    before = folder_of(path)
    with pytest.warns(InterruptedEditWarning, match=message):
        assert contents(path) == letter * 100
    assert folder_of(path) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect", "{m}"),
        ("inspect", "{m}", "--key", "text"),
        ("check", "{m}"),
        ("hash", "{m}"),
        ("name", "{m}"),
        ("copy", "{m}", "{o}"),
        ("edit", "{m}", "--set", "text=z", "--dry-run"),
        ("edit", "{m}", "--set", "text=z", "--output", "{o}"),
        ("edit", "{m}", "--undo", "--dry-run"),
        ("diff", "{m}", "{m}"),
        ("select", "{m}", "{o}", "--keep", "a"),
    ],
    ids=lambda words: " ".join(words[:1] + words[2:3]),
)
def test_commands_that_do_not_edit_the_file_leave_it_alone(path, tmp_path, arguments):
    interrupt(path, 50)
    before = folder_of(path)
    (tmp_path / "out").mkdir()
    out = tmp_path / "out" / "o.gguf"
    result = done(*(word.format(m=path, o=out) for word in arguments))
    assert result.err.count("was interrupted") == 1
    assert "ggufkit recover" in result.err
    assert folder_of(path) == before
    if arguments[0] == "copy":
        assert contents(out) == "y" * 100


def test_header_map_shows_the_same_state(path):
    interrupt(path, 50)
    with pytest.warns(InterruptedEditWarning):
        fields, findings = dissect(path)
    assert not findings
    assert any("yyyy" in field.meaning for field in fields)


@posix
def test_views_of_a_shown_header_cannot_be_written(path):
    interrupt(path, 50)
    with pytest.warns(InterruptedEditWarning):
        model = ggufkit.open(path)
    with model:
        assert not model.inputs[0].view(0, 100).flags.writeable
        assert not model.tensors["a"].numpy().flags.writeable


@posix
def test_finds_a_journal_through_links(path, tmp_path):
    interrupt(path, 50)
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.gguf"
    link.symlink_to(path)
    with pytest.warns(InterruptedEditWarning):
        assert contents(link) == "y" * 100


# Editing.


@pytest.mark.parametrize("upto", [-1000, 50, 10**6])
def test_next_edit_concludes_the_interrupted_one_first(path, upto):
    before, after = interrupt(path, upto)
    with pytest.warns(InterruptedEditWarning):
        ggufkit.edit_in_place(path, set={"text": "z" * 100})
    assert contents(path) == "z" * 100
    ggufkit.undo(path)
    assert path.read_bytes() == (before if upto < 0 else after)
    if upto > 0:
        ggufkit.undo(path)
        assert path.read_bytes() == before


@pytest.mark.parametrize("upto", [50, 10**6])
def test_undo_takes_an_interrupted_edit_back(path, upto):
    before, _ = interrupt(path, upto)
    with pytest.warns(InterruptedEditWarning):
        ggufkit.undo(path)
    assert path.read_bytes() == before
    assert not hidden(path, EDIT).exists()


def test_renaming_concludes_the_edit_first(path):
    _, after = interrupt(path, 50)
    done("name", path, "--rename", "--basename", "Fine", "--encoding", "F32")
    (renamed,) = path.parent.glob("Fine*.gguf")
    assert renamed.read_bytes() == after
    assert hidden(renamed, UNDO).exists()


def test_leftover_of_a_killed_copy_is_swept_by_the_next_edit(path):
    leftover = hidden(path, PART)
    leftover.write_bytes(b"half")
    ggufkit.edit_in_place(path, set={"text": "y" * 100})
    assert not leftover.exists()


# Recovery.


def test_recover_reports_what_it_found(path):
    assert ggufkit.recover(path) == "nothing"
    before, _ = interrupt(path, -1000)
    assert ggufkit.recover(path) == "before"
    assert path.read_bytes() == before
    _, after = interrupt(path, 50)
    assert ggufkit.recover(path) == "after"
    assert path.read_bytes() == after
    assert ggufkit.recover(path) == "nothing"


@pytest.mark.parametrize("width", [9, 60000])
def test_leaves_a_file_that_replaced_another(path, width):
    interrupt(path, 50)
    ggufkit.save(path, {"a": np.ones(width, np.float32)}, {"text": "z" * 100})
    fresh = path.read_bytes()
    with (
        pytest.warns(InterruptedEditWarning, match="another file"),
        ggufkit.open(path) as model,
    ):
        assert model.metadata["text"] == "z" * 100
    assert hidden(path, EDIT).exists()
    assert ggufkit.recover(path) == "replaced"
    assert path.read_bytes() == fresh
    assert not hidden(path, EDIT).exists()


def test_copy_of_an_interrupted_file_is_recovered_only_with_force(path, tmp_path):
    _, after = interrupt(path, 50)
    (tmp_path / "copied").mkdir()
    copied = tmp_path / "copied" / path.name
    shutil.copy(path, copied)
    shutil.copy(hidden(path, EDIT), hidden(copied, EDIT))
    torn = copied.read_bytes()
    for way in (ggufkit.open, ggufkit.recover):
        with pytest.raises(FormatError, match="copied since") as caught:
            way(copied)
        assert "recover --force" in caught.value.remedy
    assert copied.read_bytes() == torn
    assert done("recover", "--force", copied).lines == [f"{copied}: finished the edit"]
    assert copied.read_bytes() == after


def test_partly_moved_data_is_an_error(path):
    """No killed process leaves this; a file system that loses power while it moves blocks may."""
    before = path.read_bytes()
    planned = in_place.plan(path, set={"text": "y" * 5000})
    step = planned.journal.shift
    hidden(path, EDIT).write_bytes(planned.journal.encode())
    hidden(path, EDIT).chmod(0o600)
    path.write_bytes(before[:300] + bytes(step) + before[300:])
    torn = path.read_bytes()
    for way in (ggufkit.open, ggufkit.recover):
        with pytest.raises(FormatError, match="while its data moved"):
            way(path)
    assert path.read_bytes() == torn
    path.write_bytes(bytes(step) + before)
    assert ggufkit.recover(path) == "after"
    assert path.read_bytes() == planned.journal.new + before[len(planned.journal.old) :]


@pytest.mark.parametrize("content", [b"", b"junk" * 100, b"ggufkit journal 2\n" + b"\xff" * 200])
def test_invalid_journal_is_an_error_and_changes_nothing(path, content):
    fresh = path.read_bytes()
    hidden(path, EDIT).write_bytes(content)
    for way in (ggufkit.open, ggufkit.recover):
        with pytest.raises(FormatError, match="not a journal"):
            way(path)
    assert path.read_bytes() == fresh


def test_missing_file_gives_the_usual_error(tmp_path):
    for way in (ggufkit.open, ggufkit.recover):
        with pytest.raises(FileNotFoundError):
            way(tmp_path / "none.gguf")


# Strangers.


def test_journal_that_would_change_weights_is_not_followed(path):
    """It names the file's number, size and data, has a checksum, and the file is a mixture."""
    before = path.read_bytes()
    end = in_place.plan(path, reserve=0).journal
    with path.open("rb") as file:
        sound = EditJournal.of(file.fileno(), end.old, end.old)
    begin = len(end.old)
    forged = bytearray(before[: begin + (80 << 10)])
    forged[-4:] = b"evil"
    old = bytearray(before[: len(forged)])
    old[60] ^= 1  # so that the file is between the two
    journal = replace(sound, old=bytes(old), new=bytes(forged), past=(bytes(old),))
    with path.open("rb") as file:
        data = EditJournal.of(file.fileno(), journal.old, journal.new).data
    hidden(path, EDIT).write_bytes(replace(journal, data=data).encode())
    for way in (ggufkit.open, ggufkit.recover, ggufkit.check):
        with pytest.raises(FormatError, match="more than its header"):
            way(path)
    assert path.read_bytes() == before


@posix
@pytest.mark.parametrize("kind", POSSIBLE)
def test_names_a_foreign_file_in_the_place_of_a_journal_and_does_not_follow_it(path, kind):
    neighbour = place(hidden(path, EDIT), kind)
    before = path.read_bytes()
    with pytest.warns(InterruptedEditWarning, match=neighbour.reason):
        assert contents(path) == "x" * 100
    for way in (ggufkit.recover, lambda file: ggufkit.edit_in_place(file, set={"text": "z"})):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InterruptedEditWarning)
            with pytest.raises(OutputError, match=neighbour.reason):
                way(path)
    assert path.read_bytes() == before
    assert neighbour.is_untouched()


@pytest.fixture
def sticky(path):
    """The folder of the file, where any user may put what they like."""
    for folder in path.parents:
        if folder.stat().st_mode & 0o1000:
            break
        folder.chmod(folder.stat().st_mode | 0o055)
    path.parent.chmod(0o1777)


@as_root
@pytest.mark.usefixtures("sticky")
def test_root_does_not_follow_the_journal_of_another_user(path):
    interrupt(path, 50)
    torn, journal = path.read_bytes(), hidden(path, EDIT).read_bytes()
    hidden(path, EDIT).unlink()
    as_another(lambda: hidden(path, EDIT).write_bytes(journal))
    with pytest.warns(InterruptedEditWarning, match="another user"):
        ggufkit.open(path).close()
    with pytest.raises(OutputError, match="another user"):
        ggufkit.recover(path)
    assert path.read_bytes() == torn


@as_root
@pytest.mark.usefixtures("sticky")
@pytest.mark.parametrize("resume", [False, True])
def test_resume_file_of_another_user_never_becomes_the_output(path, resume):
    out = path.with_name("out.gguf")

    def put():
        hidden(out, RESUME).write_bytes(b"x")
        hidden(out, RESUME).chmod(0o666)

    as_another(put)
    with ggufkit.open(path) as model, pytest.raises(OutputError, match="another user"):
        ggufkit.write(model, out, resume=resume)
    assert not out.exists()


@as_root
@pytest.mark.usefixtures("sticky")
def test_user_reads_a_file_whose_edit_root_did_not_finish(path):
    interrupt(path, 50)
    path.chmod(0o644)
    before = folder_of(path)
    with pytest.warns(InterruptedEditWarning):
        ggufkit.open(path).close()  # which imports what the other user may not read

    def read():
        with pytest.warns(InterruptedEditWarning, match="another user"):
            ggufkit.open(path).close()
        with pytest.raises(OSError, match=r"another user|ermission"):
            ggufkit.recover(path)

    as_another(read)
    assert folder_of(path) == before
