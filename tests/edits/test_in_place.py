"""Edits in place: how they are done, what they never change, and how they are undone."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading

import numpy as np
import pytest

import ggufkit
import ggufkit._native as _native
from ggufkit.edits import in_place, undo
from ggufkit.errors import DiskSpaceError, FormatError, OutputError, ValueTypeError
from ggufkit.format.header import parse
from ggufkit.system import descriptors, disk_blocks, edit_journal
from shell import ggufkit as shell
from speaking import speak

TENSORS = {f"blk.{i}.weight": np.full((7, 50), i, np.float32) for i in range(5)}
PLAIN = {"general.architecture": "llama", "llama.block_count": 5, "text": "x" * 100}
SAME = {"text": "y" * 100}
LONGER = {"text": "y" * 5000}
posix = pytest.mark.skipif(os.name == "nt", reason="Windows has no such files")


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.gguf"
    ggufkit.save(path, TENSORS, PLAIN)
    return path


@pytest.fixture
def moving(path):
    """The file, on a file system that can move blocks."""
    with path.open("r+b") as file:
        step = disk_blocks.block_bytes(file.fileno())
        if not disk_blocks.shift(file.fileno(), step):
            pytest.skip("this file system cannot move blocks")
        assert disk_blocks.shift(file.fileno(), -step)
    return path


@pytest.fixture
def still(path, monkeypatch):
    """The file, as on a file system that can neither move nor share blocks."""
    monkeypatch.setattr(disk_blocks, "fallocate", None)
    monkeypatch.setattr(disk_blocks, "clone", lambda *_: False)
    return path


def contents(path):
    with ggufkit.open(path) as model:
        assert [finding.rule for finding in ggufkit.check(path)] == []
        for name, array in TENSORS.items():
            np.testing.assert_array_equal(model.tensors[name].numpy(), array)
        return model.metadata["text"]


def leases(path):
    with path.open("r+b") as file, disk_blocks.sole_use(file.fileno()) as is_alone:
        return is_alone is not None


def names(path):
    return sorted(file.name for file in path.parent.iterdir())


# Ways.


def test_patches_a_header_that_fits(path):
    inode, size = path.stat().st_ino, path.stat().st_size
    done = ggufkit.edit_in_place(path, set=SAME)
    assert (done.way, done.shift, [change.key for change in done.changes]) == (
        "patched",
        0,
        ["text"],
    )
    assert contents(path) == SAME["text"]
    assert (path.stat().st_ino, path.stat().st_size) == (inode, size)


@posix
def test_longer_header_moves_the_data_by_blocks(moving):
    inode, size = moving.stat().st_ino, moving.stat().st_size
    done = ggufkit.edit_in_place(moving, set=LONGER)
    assert done.way == "moved"
    assert contents(moving) == LONGER["text"]
    assert (moving.stat().st_ino, moving.stat().st_size) == (inode, size + done.shift)


def test_copies_the_file_where_blocks_cannot_move(still):
    still.chmod(0o640)
    seen = []
    done = ggufkit.edit_in_place(still, set=LONGER, progress=lambda *call: seen.append(call))
    assert done.way == "copied"
    assert contents(still) == LONGER["text"]
    assert stat.S_IMODE(still.stat().st_mode) == (0o640 if os.name != "nt" else 0o666)
    assert seen[-1][0] == seen[-1][1]


def test_copies_the_file_where_open_files_cannot_be_renamed(still, monkeypatch):
    monkeypatch.setattr(descriptors, "renames_open_files", False)
    assert ggufkit.edit_in_place(still, set=LONGER).way == "copied"
    assert contents(still) == LONGER["text"]


def test_reserved_slack_allows_later_edits_in_place(still):
    assert ggufkit.edit_in_place(still, reserve=9000).way == "copied"
    assert ggufkit.edit_in_place(still, set=LONGER).way == "patched"
    assert ggufkit.edit_in_place(still, set=SAME).way == "patched"
    assert contents(still) == SAME["text"]


def test_edit_that_changes_nothing_writes_nothing(path):
    before = path.read_bytes(), path.stat().st_mtime_ns
    assert ggufkit.edit_in_place(path, set={"text": PLAIN["text"]}).way == "nothing"
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert names(path) == ["model.gguf"]


def test_planning_an_edit_writes_nothing(path):
    before = path.read_bytes()
    planned = in_place.plan(path, set=LONGER)
    assert planned.journal.shift > 0
    assert path.read_bytes() == before
    assert names(path) == ["model.gguf"]


def test_forced_alignment_moves_all_tensors(path):
    with pytest.raises(ValueTypeError, match="alignment"):
        ggufkit.edit_in_place(path, set={"general.alignment": 128})
    ggufkit.edit_in_place(path, set=SAME)
    done = ggufkit.edit_in_place(path, set={"general.alignment": 128}, force=True)
    assert done.way == "laid out"
    assert contents(path) == SAME["text"]
    with ggufkit.open(path) as model:
        assert model.alignment == 128
    with pytest.raises(OutputError, match="no edit to undo"):
        ggufkit.undo(path)


def test_changes_no_other_byte_in_files_of_unusual_layout(path):
    """Trailing bytes and nonzero padding stay unchanged."""
    with ggufkit.open(path) as model:
        end = model.data_offset
    content = bytearray(path.read_bytes())
    content[end + 1400] = 7  # padding after the first tensor
    path.write_bytes(content + b"trailing")
    done = ggufkit.edit_in_place(path, set=LONGER)
    assert path.read_bytes()[end + done.shift :] == content[end:] + b"trailing"


# Undo.


@pytest.mark.parametrize("edits", [SAME, LONGER], ids=["same", "longer"])
@pytest.mark.parametrize("where", ["path", "still"])
def test_undo_restores_every_byte_and_redo_repeats_it(request, where, edits):
    path = request.getfixturevalue(where)
    before = path.read_bytes()
    way = ggufkit.edit_in_place(path, set=edits).way
    after = path.read_bytes()
    assert ggufkit.undo(path).way == way
    assert path.read_bytes() == before
    assert [change.key for change in ggufkit.redo(path).changes] == ["text"]
    assert path.read_bytes() == after


@pytest.mark.parametrize("where", ["path", "still"])
def test_edits_are_undone_one_by_one_and_redone(request, where):
    path = request.getfixturevalue(where)
    states = [path.read_bytes()]
    for edits in (SAME, LONGER, {"text": "z" * 100}, {"drop_keys": ["text"]}):
        ggufkit.edit_in_place(path, **(edits if "drop_keys" in edits else {"set": edits}))
        states.append(path.read_bytes())
    for before in reversed(states[:-1]):
        ggufkit.undo(path)
        assert path.read_bytes() == before
    with pytest.raises(OutputError, match="no edit to undo"):
        ggufkit.undo(path)
    for after in states[1:]:
        ggufkit.redo(path)
        assert path.read_bytes() == after
    with pytest.raises(OutputError, match="no edit to redo"):
        ggufkit.redo(path)
    assert len(names(path)) == 2  # the file and one journal


def test_edit_after_undo_replaces_the_undone_edit(path):
    ggufkit.edit_in_place(path, set=SAME)
    ggufkit.undo(path)
    ggufkit.edit_in_place(path, set={"text": "z" * 100})
    with pytest.raises(OutputError, match="no edit to redo"):
        ggufkit.redo(path)


@pytest.mark.parametrize("place", [0, -1])
def test_undo_refuses_a_file_whose_data_changed_at_either_end(path, place):
    ggufkit.edit_in_place(path, set=SAME)
    with ggufkit.open(path) as model:
        begin = model.data_offset
    content = bytearray(path.read_bytes())
    content[begin if place == 0 else -1] ^= 1
    path.write_bytes(content)
    before = path.stat().st_mtime_ns
    with pytest.raises(FormatError, match="cannot undo that edit"):
        ggufkit.undo(path)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (bytes(content), before)


def test_undo_refuses_a_file_that_it_does_not_know(path):
    with pytest.raises(OutputError, match="no edit to undo"):
        ggufkit.undo(path)
    ggufkit.edit_in_place(path, set=SAME)
    ggufkit.save(path, TENSORS, PLAIN)
    with pytest.raises(FormatError, match="cannot undo that edit"):
        ggufkit.undo(path)


# Shards.


def test_edits_the_first_shard_of_a_set(path):
    with ggufkit.open(path) as model:
        paths = ggufkit.write(model, path.with_name("s.gguf"), shard_tensors=2)
    others = [path.read_bytes() for path in paths[1:]]
    done = ggufkit.edit_in_place(paths[-1], set=LONGER)
    assert done.path == paths[0]
    assert [path.read_bytes() for path in paths[1:]] == others
    assert contents(paths[0]) == LONGER["text"]
    with pytest.raises(ValueTypeError, match=r"split\.count"):
        ggufkit.edit_in_place(paths[0], drop_keys=["split.count"])
    with pytest.raises(ValueTypeError, match="5 blocks"):
        ggufkit.edit_in_place(paths[0], set={"llama.block_count": 2})


def test_folder_means_the_model_in_it(path):
    assert ggufkit.edit_in_place(path.parent, set=SAME).path == path
    assert contents(path) == SAME["text"]


def test_edits_the_first_shard_when_others_are_missing(path):
    with ggufkit.open(path) as model:
        paths = ggufkit.write(model, path.with_name("s.gguf"), shard_tensors=2)
    paths[-1].unlink()
    ggufkit.edit_in_place(paths[0], set=SAME)
    with ggufkit.open(paths[0], shards=False) as model:
        assert model.metadata["text"] == SAME["text"]


# Links and readers.


@posix
def test_refuses_links_without_force(path):
    link = path.with_name("link.gguf")
    link.symlink_to(path.name)
    with pytest.raises(OutputError, match="is a link to"):
        ggufkit.edit_in_place(link, set=SAME)
    assert ggufkit.edit_in_place(link, set=SAME, force=True).path == path
    assert link.is_symlink()
    assert contents(link) == SAME["text"]


@pytest.mark.parametrize("name", ["sha256-" + "0a" * 32, "b1" * 32, "b1" * 20])
def test_refuses_files_that_a_cache_names_by_their_content(path, name):
    blob = path.rename(path.with_name(name))
    with pytest.raises(OutputError, match="digest"):
        ggufkit.edit_in_place(blob, set=SAME)
    assert ggufkit.edit_in_place(blob, set=SAME, force=True).way == "patched"


@posix
def test_forced_edit_of_a_hard_link_changes_only_this_name(path):
    other = path.with_name("other.gguf")
    os.link(path, other)
    before = path.read_bytes()
    with pytest.raises(OutputError, match="hard links"):
        ggufkit.edit_in_place(path, set=SAME)
    ggufkit.edit_in_place(path, set=SAME, force=True)
    assert contents(path) == SAME["text"]
    assert other.read_bytes() == before


@posix
@pytest.mark.parametrize("edits", [SAME, LONGER], ids=["same", "longer"])
def test_replaces_a_file_that_is_being_read(path, edits):
    before = path.read_bytes()
    if not leases(path):
        pytest.skip("this system cannot tell who reads a file")
    with ggufkit.open(path) as model, path.open("rb") as reader:
        view = model.tensors["blk.3.weight"].numpy()
        assert ggufkit.edit_in_place(path, set=edits).way in ("copied", "cloned")
        np.testing.assert_array_equal(view, TENSORS["blk.3.weight"])
        assert model.metadata["text"] == PLAIN["text"]
        assert reader.read() == before
    assert contents(path) == edits["text"]


@posix
def test_reader_waits_for_the_end_of_an_edit_in_place(path, monkeypatch):
    command = [
        sys.executable,
        "-c",
        "import sys; print(open(sys.argv[1], 'rb').read(4))",
        str(path),
    ]
    readers = []
    write_at = in_place.write_at

    def observed(descriptor, data, offset):
        if disk_blocks._lease(descriptor):
            readers.append(subprocess.Popen(command, stdout=subprocess.PIPE))
            write_at(descriptor, b"TORN", 0)
            with pytest.raises(subprocess.TimeoutExpired):
                readers[0].wait(1)
        write_at(descriptor, data, offset)

    monkeypatch.setattr(in_place, "write_at", observed)
    ggufkit.edit_in_place(path, set=SAME)
    if not readers:
        pytest.skip("this system cannot make readers wait")
    assert readers[0].communicate()[0].strip() == b"b'GGUF'"


# Faults.


def test_does_not_replace_a_file_that_changes_while_it_is_copied(still, monkeypatch):
    copy_at = in_place.copy_at

    def disturbed(source, *where):
        os.utime(still, ns=(1, 1))
        return copy_at(source, *where)

    before = still.read_bytes()
    monkeypatch.setattr(in_place, "copy_at", disturbed)
    with pytest.raises(FormatError, match="changed during the edit"):
        ggufkit.edit_in_place(still, set=LONGER)
    assert still.read_bytes() == before
    assert names(still) == ["model.gguf"]


def test_does_not_edit_a_file_that_changed_after_the_plan(path):
    planned = in_place.plan(path, set=SAME)
    ggufkit.save(path, TENSORS, PLAIN | {"text": "z" * 100})
    with pytest.raises(FormatError, match="changed during the edit"):
        in_place.apply(planned)
    assert contents(path) == "z" * 100


def test_checks_the_free_space_before_a_copy_begins(still, monkeypatch):
    before = still.read_bytes()
    monkeypatch.setattr("shutil.disk_usage", lambda _: Full)
    with pytest.raises(DiskSpaceError):
        ggufkit.edit_in_place(still, set=LONGER)
    assert still.read_bytes() == before
    assert names(still) == ["model.gguf"]


class Full:
    free = 0


@posix
def test_error_while_writing_reverts_the_edit(moving, monkeypatch):
    before = moving.read_bytes()
    write_at = in_place.write_at

    def failing(descriptor, data, offset):
        if len(data) > 5000 and offset == 0:
            raise OSError(28, "No space left on device")
        write_at(descriptor, data, offset)

    monkeypatch.setattr(in_place, "write_at", failing)
    with pytest.raises(OutputError, match="No space left"):
        ggufkit.edit_in_place(moving, set=LONGER)
    assert moving.read_bytes() == before
    assert names(moving) == ["model.gguf"]


@posix
@pytest.mark.parametrize("edits", [SAME, LONGER], ids=["same", "longer"])
@pytest.mark.parametrize("when", ["shift", "fsync"])
def test_interruption_reverts_the_edit(moving, monkeypatch, edits, when):
    """Ctrl-C and SIGTERM are exceptions, which may come between any two steps."""
    before = moving.read_bytes()
    home = in_place.os if when == "fsync" else in_place.disk_blocks
    call, state = getattr(home, when), [None]

    def interrupted(descriptor, *arguments):
        result = call(descriptor, *arguments)
        if os.fstat(descriptor).st_ino == moving.stat().st_ino and state:
            state.pop()
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(home, when, interrupted)
    with pytest.raises(KeyboardInterrupt):
        ggufkit.edit_in_place(moving, set=edits)
    assert moving.read_bytes() == before
    assert names(moving) == ["model.gguf"]


@posix
def test_edit_gives_up_waiting_for_another_one(path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(edit_journal, "WAIT_SECONDS", 0.1)
    with path.open("rb") as file:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX)
        with pytest.raises(OutputError, match="another process"):
            ggufkit.edit_in_place(path, set=SAME)
    assert contents(path) == PLAIN["text"]


@posix
def test_edit_waits_for_another_one_and_then_edits_what_that_left(path, monkeypatch):
    second_begins, locked, write_at = threading.Event(), edit_journal._locked, in_place.write_at
    begun = []

    def noted(target):
        begun.append(target)
        if len(begun) == 2:
            second_begins.set()
        return locked(target)

    def slow(*arguments):
        assert second_begins.wait(60)
        write_at(*arguments)

    monkeypatch.setattr(edit_journal, "_locked", noted)
    monkeypatch.setattr(in_place, "write_at", slow)
    plans = [in_place.plan(path, set=edits) for edits in (SAME, {"general.name": "second"})]
    threads = [threading.Thread(target=in_place.apply, args=(plan,)) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with ggufkit.open(path) as model:
        assert model.metadata["general.name"] == "second"
        assert model.metadata["text"] == SAME["text"]


@posix
def test_undo_that_waited_undoes_the_last_edit(path):
    ggufkit.edit_in_place(path, set={"text": "first" * 40})
    planned = undo.plan_undo(path)
    ggufkit.edit_in_place(path, set={"text": "other" * 40})
    in_place.apply(planned)
    assert contents(path) == "first" * 40


EDITOR = """
import random, sys, ggufkit
from ggufkit.errors import FormatError, OutputError
random.seed(sys.argv[2])
for _ in range(25):
    text = random.choice("pq") * random.choice([100, 3000, 9000])
    try:
        ggufkit.edit_in_place(sys.argv[1], set={"text": text})
        ggufkit.undo(sys.argv[1])
    except (FormatError, OutputError):
        pass  # the other was faster
"""


@posix
def test_readers_never_see_an_unfinished_edit_of_two_editors(path):
    if not leases(path):
        pytest.skip("this system cannot make readers wait")
    command = [sys.executable, "-c", EDITOR, str(path)]
    editors = [subprocess.Popen([*command, str(seed)]) for seed in range(2)]
    end = path.read_bytes()[-5 * 1408 :]
    while any(editor.poll() is None for editor in editors):
        content = path.read_bytes()
        header = parse(content, len(content))
        assert header.findings == ()
        assert len(set(header.metadata["text"])) == 1
        assert content[header.data_offset :] == end
        assert set(contents(path)) <= set("pqx")
    assert [editor.returncode for editor in editors] == [0, 0]


# llama.cpp.


def test_llama_cpp_loads_an_edited_file(smollm2, tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(smollm2.read_bytes())
    steps = [
        {"set": {"general.name": "Another"}},
        {"chat_template": "{{ messages[0].content }}" * 900},
        {"reserve": 1 << 20},
        {"drop_keys": ["general.name"], "add_tags": ["a", "b"]},
        {"set": {"tokenizer.ggml.tokens[11]": "<tool>"}, "special_tokens": {"eot": "<tool>"}},
    ]
    for edits in steps:
        assert ggufkit.edit_in_place(path, **edits).way != "nothing"
        assert all(finding.severity == "note" for finding in ggufkit.check(path))
    assert speak(path) == "The capital of France is Paris."
    ggufkit.edit_in_place(path, set={"general.alignment": 64}, force=True)
    ggufkit.edit_in_place(path, chat_template="")
    assert speak(path) == "The capital of France is Paris."


# How often a header is read.


@pytest.fixture
def scanned(monkeypatch):
    """Return a list that grows by one for each header that is parsed."""
    sizes = []

    def scan(data):
        sizes.append(len(data))
        return original(data)

    original = _native.scan
    monkeypatch.setattr(_native, "scan", scan)
    return sizes


def test_edit_parses_the_header_once(path, scanned):
    ggufkit.edit_in_place(path, set=LONGER)
    assert len(scanned) == 1
    assert contents(path) == LONGER["text"]


def test_command_that_edits_parses_the_header_once(path, scanned):
    assert shell("edit", str(path), "--set", "text=other").code == 0
    assert len(scanned) == 1
    assert contents(path) == "other"


def test_an_edit_is_undone_after_the_file_was_renamed(tmp_path):
    path, renamed = tmp_path / "a.gguf", tmp_path / "b.gguf"
    ggufkit.save(path, {"x": np.ones(4, np.float32)}, {"general.name": "before"})
    before = path.read_bytes()
    ggufkit.edit_in_place(path, set={"general.name": "after, a longer one"})
    path.rename(renamed)
    ggufkit.save(path, {"x": np.zeros(4, np.float32)}, {})  # another file of the old name: no match
    with pytest.raises(OutputError, match="no edit to undo"):
        ggufkit.undo(renamed)
    path.unlink()
    ggufkit.undo(renamed)
    assert renamed.read_bytes() == before
    ggufkit.redo(renamed)
    assert sorted(file.name for file in tmp_path.iterdir()) == [".b.gguf.ggufkit-undo", "b.gguf"]
