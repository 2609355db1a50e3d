"""The journal of an edit: the content of its file and the progress that it records."""

from __future__ import annotations

import os
import stat
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggufkit.errors import FormatError, OutputError
from ggufkit.system import edit_journal
from ggufkit.system.edit_journal import MAX_STEPS, EditJournal
from ggufkit.system.hidden_files import EDIT, UNDO, ForeignFileError, hidden
from neighbours import POSSIBLE, place
from platforms import posix

DIGEST = b"d" * 32
DATA = bytes(range(256)) * 4


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"old head" + DATA)
    return path


@pytest.fixture
def journal(path):
    with path.open("rb") as file:
        return EditJournal.of(file.fileno(), b"old head", b"new head")


def state(path, journal, **options):
    with path.open("rb") as file:
        return journal.state(file.fileno(), **options)


headers = st.binary(max_size=50)
numbers = st.integers(0, 2**63)


@given(headers, headers, st.lists(headers), st.lists(headers), st.tuples(numbers, numbers), numbers)
def test_journal_is_unchanged_by_encoding_and_decoding(old, new, past, future, inodes, nbytes):
    edited = EditJournal(inodes, nbytes, old, new, DIGEST, (*past, old), tuple(future))
    undone = EditJournal(inodes, nbytes, old, new, DIGEST, tuple(past), (old, *future))
    for journal in (edited, undone):
        decoded = EditJournal.decode(journal.encode())
        assert decoded == journal


@given(st.data())
def test_damaged_journal_counts_as_missing(data):
    whole = EditJournal((1, 2), 9, b"old", b"newer", DIGEST, (b"old",)).encode()
    position = data.draw(st.integers(0, len(whole) - 1))
    assert EditJournal.decode(whole[:position]) is None
    assert (
        EditJournal.decode(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        is None
    )
    assert EditJournal.decode(whole + b"\0") is None


def test_undo_and_redo_walk_along_all_steps():
    first = EditJournal((1, 1), 100, b"a", b"bb", DIGEST, (b"a",))
    second = EditJournal((1, 1), 101, b"bb", b"ccc", DIGEST, (b"bb",)).after(first)
    assert second.past == (b"a", b"bb")
    back = second.undone
    assert (back.nbytes, back.old, back.new, back.future) == (102, b"ccc", b"bb", (b"ccc",))
    again = back.undone
    assert (again.nbytes, again.new, again.past) == (101, b"a", ())
    assert again.undone is None
    forth = again.redone
    assert (forth.old, forth.new, forth.past, forth.future) == (b"a", b"bb", (b"a",), (b"ccc",))
    assert forth.redone.redone is None


def test_history_has_limits(monkeypatch):
    def edited(count):
        journal_so_far = None
        for number in range(count):
            old, new = bytes([number]) * 10, bytes([number + 1]) * 10
            journal_so_far = EditJournal((1, 1), 100, old, new, DIGEST, (old,)).after(
                journal_so_far
            )
        return journal_so_far

    assert len(edited(20).past) == MAX_STEPS
    monkeypatch.setattr(edit_journal, "MAX_HISTORY", 25)
    assert len(edited(20).past) == 3
    monkeypatch.setattr(edit_journal, "MAX_HISTORY", 0)
    assert len(edited(20).past) == 1


def test_state_follows_the_edit(path, journal):
    assert state(path, journal) == "before"
    path.write_bytes(b"new head" + DATA)
    assert state(path, journal) == "after"
    path.write_bytes(b"nld head" + DATA)
    assert state(path, journal) == "between"


@pytest.mark.parametrize(
    "content",
    [b"xxx head" + DATA, b"old head" + DATA + b"x", b"old", b"", b"nld head" + DATA[::-1]],
)
def test_other_content_is_foreign(path, journal, content):
    path.write_bytes(content)
    assert state(path, journal) == "foreign"


@pytest.mark.parametrize("offset", [8, -1])
@pytest.mark.parametrize("head", [b"old head", b"new head"])
def test_file_whose_data_changed_at_either_end_is_foreign(path, journal, offset, head):
    changed = bytearray(head + DATA)
    changed[offset] ^= 1
    path.write_bytes(changed)
    assert state(path, journal) == "foreign"


def test_copy_of_the_file_is_foreign_unless_any_inode_will_do(path, journal):
    copy = path.with_name("copy.gguf")
    copy.write_bytes(path.read_bytes())
    assert state(copy, journal) == "foreign"
    assert state(copy, journal, any_inode=True) == "before"


def test_copy_that_takes_the_place_is_never_between(path, journal):
    moved = replace(journal, inodes=(journal.inodes[0] + 1, journal.inodes[0]))
    path.write_bytes(b"nld head" + DATA)
    assert state(path, moved) == "foreign"
    path.write_bytes(b"new head" + DATA)
    assert state(path, moved) == "after"


@posix
@pytest.mark.parametrize("name", [EDIT, UNDO], ids=["pending", "done"])
@pytest.mark.parametrize("kind", POSSIBLE)
def test_neighbour_in_the_place_of_a_journal_is_not_followed(path, journal, name, kind):
    neighbour = place(hidden(path, name), kind)
    load = edit_journal.pending if name is EDIT else edit_journal.last
    with pytest.raises(ForeignFileError, match=neighbour.reason):
        load(path)
    with pytest.raises(OutputError, match=neighbour.reason):
        edit_journal.publish(path, journal)
    edit_journal.forget(path)
    assert neighbour.is_untouched()


@posix
def test_journal_is_private(path, journal):
    before = os.umask(0)
    try:
        edit_journal.publish(path, journal)
    finally:
        os.umask(before)
    assert stat.S_IMODE(hidden(path, EDIT).stat().st_mode) == 0o600


@pytest.mark.parametrize("nbytes", [1 << 40, 1 << 29, 3, 0])
def test_reads_only_the_beginning_of_what_is_no_journal(path, nbytes):
    with hidden(path, EDIT).open("wb") as file:
        file.truncate(nbytes)
    tracemalloc.start()
    with pytest.raises(FormatError, match="not a journal"):
        edit_journal.pending(path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
