"""Files are read as they were opened, written wherever one likes, and published whole."""

from __future__ import annotations

import errno
import gc
import os
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from ggufkit import store
from ggufkit.errors import ClosedError, FormatError, OutputError
from ggufkit.store import MappedFile, Staging, copy_at, lock, read_at, sweep, sync_folder, write_at

CONTENT = bytes(range(256)) * 40
posix = pytest.mark.skipif(os.name == "nt", reason="Windows has no such files")


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "input"
    path.write_bytes(CONTENT)
    os.utime(path, ns=(0, 0))  # so that any change shows in the time, however quick
    return path


@pytest.fixture
def target(tmp_path):
    descriptor = os.open(tmp_path / "target", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


def content_of(descriptor):
    return os.pread(descriptor, 1 << 20, 0)


def open_descriptors():
    return {path.name for path in Path("/proc/self/fd").iterdir() if path.exists()}


# Reading.


def test_view_is_a_look_into_the_map(path):
    file = MappedFile(path)
    view = file.view(3, 100)
    assert view.tobytes() == CONTENT[3:103]
    assert np.shares_memory(view, np.frombuffer(file.data, np.uint8))
    assert not view.flags.writeable


def test_read_is_a_copy_of_the_same(path):
    file = MappedFile(path)
    copied = file.read(3, 100)
    assert copied.tobytes() == CONTENT[3:103]
    assert not np.shares_memory(copied, np.frombuffer(file.data, np.uint8))


@pytest.mark.parametrize("size", [0, 1])
def test_nothing_is_read_as_nothing(tmp_path, size):
    (tmp_path / "small").write_bytes(b"x" * size)
    file = MappedFile(tmp_path / "small")
    assert file.nbytes == size
    assert file.view(size, 0).tobytes() == file.read(size, 0).tobytes() == b""


def test_missing_file_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        MappedFile(tmp_path / "missing")


@posix
def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path(os.devnull)):
        with pytest.raises(OSError, match="not a regular file"):
            MappedFile(path)


def test_closed_file_is_read_no_more(path, target):
    file = MappedFile(path)
    kept = file.view(0, 10)
    file.close()
    file.close()
    for use in (
        lambda: file.view(0, 10),
        lambda: file.view(0, 0),
        lambda: file.read(0, 10),
        lambda: file.copy(0, 10, target, 0),
    ):
        with pytest.raises(ClosedError, match="was closed"):
            use()
    assert kept.tobytes() == CONTENT[:10]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_descriptors_go_with_the_file(path):
    before = open_descriptors()
    file = MappedFile(path)
    file.read(0, 10)
    assert len(open_descriptors()) > len(before)
    file.close()
    assert open_descriptors() == before
    file = MappedFile(path)
    del file
    gc.collect()
    assert open_descriptors() == before


@posix
@pytest.mark.parametrize("lose", [Path.unlink, lambda path: path.rename(path.with_name("moved"))])
def test_lost_file_stays_readable_as_it_was(path, target, lose):
    file = MappedFile(path)
    lose(path)
    path.write_bytes(b"something else")
    assert file.read(0, file.nbytes).tobytes() == CONTENT
    assert file.view(0, file.nbytes).tobytes() == CONTENT
    file.copy(0, file.nbytes, target, 0)
    assert content_of(target) == CONTENT


def test_relative_path_survives_a_change_of_folder(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    file = MappedFile(Path(path.name))
    monkeypatch.chdir("/")
    assert file.read(0, 10).tobytes() == CONTENT[:10]


def overwrite(path):
    with path.open("r+b") as file:
        file.write(b"!")


CHANGES = {
    "cut": lambda path: os.truncate(path, 10),
    "emptied": lambda path: os.truncate(path, 0),
    "grown": lambda path: os.truncate(path, len(CONTENT) + 1),
    "overwritten": overwrite,
}


@posix
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.usefixtures("fallback")
def test_changed_file_is_noticed(path, target, change):
    file = MappedFile(path)
    CHANGES[change](path)
    for use in (lambda: file.read(0, 10000), lambda: file.copy(0, 10000, target, 0)):
        with pytest.raises(FormatError, match="changed while in use") as caught:
            use()
        assert caught.value.path == str(path)


def test_same_file_is_known_by_any_name(path, tmp_path):
    (tmp_path / "soft").symlink_to(path)
    os.link(path, tmp_path / "hard")
    (tmp_path / "twin").write_bytes(CONTENT)
    file = MappedFile(path)
    assert [file.same_file(tmp_path / name) for name in ("input", "soft", "hard")] == [True] * 3
    assert [file.same_file(tmp_path / name) for name in ("twin", "none")] == [False] * 2


# Moving bytes, with and without what only some platforms have.

FALLBACKS = {
    "everything": {},
    "no kernel copy": {"copy_file_range": None},
    "no positional calls": {"positional": False},
    "neither": {"copy_file_range": None, "positional": False},
}


@pytest.fixture(params=FALLBACKS)
def fallback(request, monkeypatch):
    for name, value in FALLBACKS[request.param].items():
        monkeypatch.setattr(store, name, value)


@pytest.mark.usefixtures("fallback")
def test_bytes_are_moved_wherever_one_likes(path, target):
    source = os.open(path, os.O_RDONLY)
    write_at(target, b"later", 5000)
    write_at(target, b"first", 0)
    assert copy_at(source, 7, target, 100, 1000) == 1000
    os.close(source)
    written = content_of(target)
    assert len(written) == 5005
    assert written[:5] == b"first"
    assert written[5:100] == bytes(95)
    assert written[100:1100] == CONTENT[7:1007]
    assert written[5000:] == b"later"
    assert read_at(target, 1000, 100) == CONTENT[7:1007]


@pytest.mark.usefixtures("fallback")
def test_the_end_of_a_source_ends_reads_and_copies(path, target):
    source = os.open(path, os.O_RDONLY)
    size = len(CONTENT)
    assert read_at(source, 100, size - 10) == CONTENT[-10:]
    assert read_at(source, 100, size) == b""
    assert copy_at(source, size - 10, target, 0, 100) == 10
    assert content_of(target) == CONTENT[-10:]
    os.close(source)


def test_short_reads_and_writes_are_continued(path, target, monkeypatch):
    pread, pwrite = os.pread, os.pwrite
    monkeypatch.setattr(os, "pread", lambda fd, size, at: pread(fd, min(size, 7), at))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:5], at))
    source = os.open(path, os.O_RDONLY)
    assert read_at(source, 100, 3) == CONTENT[3:103]
    write_at(target, CONTENT[:100], 0)
    monkeypatch.setattr(store, "copy_file_range", None)
    assert copy_at(source, 0, target, 100, 100) == 100
    os.close(source)
    monkeypatch.undo()
    assert content_of(target) == CONTENT[:100] * 2


@pytest.mark.parametrize("outcome", [errno.EXDEV, errno.ENOSYS, errno.EINVAL, 0])
def test_copy_goes_on_by_hand_where_the_kernel_stops(path, target, monkeypatch, outcome):
    calls = []

    def stubborn(source, out, nbytes, source_at, out_at):
        calls.append(nbytes)
        if len(calls) == 1:
            return os.pwrite(out, os.pread(source, 100, source_at), out_at)
        if outcome:
            raise OSError(outcome, os.strerror(outcome))
        return 0

    monkeypatch.setattr(store, "copy_file_range", stubborn)
    source = os.open(path, os.O_RDONLY)
    assert copy_at(source, 0, target, 0, len(CONTENT)) == len(CONTENT)
    os.close(source)
    assert calls == [len(CONTENT), len(CONTENT) - 100]
    assert content_of(target) == CONTENT


# Publishing.


@pytest.fixture(params=["renames open files", "renames closed files only"])
def platform(request, monkeypatch):
    monkeypatch.setattr(store, "renames_open_files", request.param == "renames open files")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.usefixtures("platform")
def test_staging_is_hidden_until_it_is_published(tmp_path):
    target = tmp_path / "out.gguf"
    target.write_bytes(b"old")
    staging = Staging(target)
    staging.resize(5)
    write_at(staging.descriptor, b"new", 0)
    staging.sync()
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == [".out.gguf.ggufkit-part", "out.gguf"]
    staging.publish()
    staging.discard()
    assert target.read_bytes() == b"new\0\0"
    assert names(tmp_path) == ["out.gguf"]


@pytest.mark.usefixtures("platform")
def test_discarded_staging_leaves_nothing(tmp_path):
    staging = Staging(tmp_path / "out.gguf")
    staging.discard()
    staging.discard()
    assert names(tmp_path) == []


@pytest.mark.parametrize("name", ["x" * 255, "x" * 240, "ä" * 127, "out.gguf"])
def test_staging_has_a_possible_name_for_every_target(tmp_path, name):
    staging = Staging(tmp_path / name)
    assert staging.path.parent == tmp_path
    assert staging.path.name != name
    with pytest.raises(OutputError, match="being written"):
        Staging(tmp_path / name)
    sweep(tmp_path)
    staging.publish()
    assert names(tmp_path) == [name]


def test_long_names_do_not_share_a_staging(tmp_path):
    stages = [Staging(tmp_path / ("x" * 254 + end)) for end in "ab"]
    for staging in stages:
        staging.publish()
    assert len(names(tmp_path)) == 2


def test_output_belongs_to_one_writer(tmp_path):
    first = Staging(tmp_path / "out.gguf")
    with pytest.raises(OutputError, match="being written by another process") as caught:
        Staging(tmp_path / "out.gguf")
    assert "Wait" in caught.value.remedy
    first.discard()
    Staging(tmp_path / "out.gguf").discard()


@posix
def test_mode_follows_the_umask_and_not_a_leftover(tmp_path):
    leftover = tmp_path / ".out.gguf.ggufkit-part"
    leftover.write_bytes(b"x" * 100)
    leftover.chmod(0o777)
    before = os.umask(0o027)
    try:
        Staging(tmp_path / "out.gguf").publish()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out.gguf").stat().st_mode) == 0o640
    assert (tmp_path / "out.gguf").stat().st_size == 0


@posix
def test_staging_never_writes_through_a_link(tmp_path):
    precious = tmp_path / "precious"
    precious.write_bytes(b"keep me")
    (tmp_path / ".out.gguf.ggufkit-part").symlink_to(precious)
    with pytest.raises(OutputError):
        Staging(tmp_path / "out.gguf")
    sweep(tmp_path)
    assert precious.read_bytes() == b"keep me"


@pytest.mark.usefixtures("platform")
def test_sweep_removes_the_leftovers_of_the_dead_only(tmp_path):
    living = Staging(tmp_path / "living.gguf")
    (tmp_path / ".dead.gguf.ggufkit-part").write_bytes(b"x")
    (tmp_path / "not-hidden.ggufkit-part").write_bytes(b"x")
    (tmp_path / ".other").write_bytes(b"x")
    sweep(tmp_path)
    assert names(tmp_path) == [".living.gguf.ggufkit-part", ".other", "not-hidden.ggufkit-part"]
    living.publish()
    assert "living.gguf" in names(tmp_path)


def test_sweep_leaves_a_new_writer_its_file(tmp_path, monkeypatch):
    """Between opening a leftover and locking it, another process may have begun anew."""
    leftover = tmp_path / ".out.gguf.ggufkit-part"
    leftover.write_bytes(b"old")
    real_lock = lock

    def late(descriptor):
        monkeypatch.setattr(store, "lock", real_lock)
        leftover.unlink()
        late.writer = Staging(tmp_path / "out.gguf")
        return real_lock(descriptor)

    monkeypatch.setattr(store, "lock", late)
    sweep(tmp_path)
    late.writer.publish()
    assert names(tmp_path) == ["out.gguf"]


def test_writer_whose_new_file_was_swept_begins_again(tmp_path, monkeypatch):
    real_lock = lock
    begun = []

    def sweeping_first(descriptor):
        begun.append(descriptor)
        if len(begun) == 1:
            monkeypatch.setattr(store, "lock", real_lock)
            sweep(tmp_path)
            monkeypatch.setattr(store, "lock", sweeping_first)
        return real_lock(descriptor)

    monkeypatch.setattr(store, "lock", sweeping_first)
    staging = Staging(tmp_path / "out.gguf")
    assert len(begun) == 2
    staging.publish()
    assert names(tmp_path) == ["out.gguf"]


def test_discard_leaves_the_file_of_another(tmp_path):
    staging = Staging(tmp_path / "out.gguf")
    staging.path.unlink()
    staging.path.write_bytes(b"of another")
    staging.discard()
    assert staging.path.read_bytes() == b"of another"


LOCK_IN_ANOTHER_PROCESS = """
import os, sys
from ggufkit.store import lock
print(lock(os.open(sys.argv[1], os.O_RDWR)))
"""


def locked_elsewhere(path):
    command = [sys.executable, "-c", LOCK_IN_ANOTHER_PROCESS, str(path)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_lock_is_seen_by_other_processes_and_ends_with_the_descriptor(path):
    descriptor = os.open(path, os.O_RDWR)
    assert lock(descriptor) is True
    assert locked_elsewhere(path) == "False"
    os.close(descriptor)
    assert locked_elsewhere(path) == "True"


def raising(code):
    def call(*_):
        raise OSError(code, os.strerror(code))

    return call


@pytest.mark.parametrize(
    ("code", "expected"),
    [(None, True), (errno.EAGAIN, False), (errno.EACCES, False), (errno.ENOLCK, None)],
)
@pytest.mark.parametrize("module", ["fcntl", "msvcrt"])
def test_lock_tells_held_from_unavailable(path, monkeypatch, module, code, expected):
    call = raising(code) if code else lambda *_: None
    fake = SimpleNamespace(flock=call, locking=call, LOCK_EX=2, LOCK_NB=4, LK_NBLCK=2)
    monkeypatch.setattr(store, "fcntl", None)
    monkeypatch.setattr(store, module, fake)
    descriptor = os.open(path, os.O_RDWR)
    assert lock(descriptor) is expected
    os.close(descriptor)


def test_without_locks_nothing_is_taken_for_dead(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "fcntl", None)
    staging = Staging(tmp_path / "out.gguf")
    with pytest.raises(OutputError, match="being written") as caught:
        Staging(tmp_path / "out.gguf")
    assert str(staging.path) in caught.value.remedy
    sweep(tmp_path)
    staging.publish()
    assert names(tmp_path) == ["out.gguf"]


def test_sync_needs_no_folder_that_can_be_synced(tmp_path):
    sync_folder(tmp_path)
    sync_folder(tmp_path / "missing")
