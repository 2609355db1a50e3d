"""Bytes can be moved to any place, with and without features of some platforms."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from ggufkit.system import descriptors
from ggufkit.system.descriptors import (
    ShortReadError,
    checksum_at,
    copy_at,
    lock,
    read_at,
    sync_folder,
    write_at,
)
from platforms import CONTENT, FALLBACKS


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


@pytest.fixture(params=FALLBACKS)
def fallback(request, monkeypatch):
    for name, value in FALLBACKS[request.param].items():
        monkeypatch.setattr(descriptors, name, value)


@pytest.mark.usefixtures("fallback")
def test_moves_bytes_to_any_place(path, target):
    source = os.open(path, os.O_RDONLY)
    write_at(target, b"later", 5000)
    write_at(target, b"first", 0)
    copy_at(source, 7, target, 100, 1000)
    os.close(source)
    written = content_of(target)
    assert len(written) == 5005
    assert written[:5] == b"first"
    assert written[5:100] == bytes(95)
    assert written[100:1100] == CONTENT[7:1007]
    assert written[5000:] == b"later"
    assert read_at(target, 1000, 100) == CONTENT[7:1007]


@pytest.mark.usefixtures("fallback")
def test_reads_and_copies_beyond_the_end_of_a_source_are_errors(path, target):
    source = os.open(path, os.O_RDONLY)
    size = len(CONTENT)
    assert read_at(source, 10, size - 10) == CONTENT[-10:]
    assert read_at(source, 0, size) == b""
    for beyond in (
        lambda: read_at(source, 100, size - 10),
        lambda: read_at(source, 1, size),
        lambda: copy_at(source, size - 10, target, 0, 100),
        lambda: checksum_at(source, size - 10, 100),
    ):
        with pytest.raises(ShortReadError, match="cut while it was read"):
            beyond()
    os.close(source)


def test_continues_short_reads_and_writes(path, target, monkeypatch):
    pread, pwrite = os.pread, os.pwrite
    monkeypatch.setattr(os, "pread", lambda fd, size, offset: pread(fd, min(size, 7), offset))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: pwrite(fd, data[:5], offset))
    source = os.open(path, os.O_RDONLY)
    assert read_at(source, 100, 3) == CONTENT[3:103]
    write_at(target, CONTENT[:100], 0)
    monkeypatch.setattr(descriptors, "copy_file_range", None)
    copy_at(source, 0, target, 100, 100)
    os.close(source)
    monkeypatch.undo()
    assert content_of(target) == CONTENT[:100] * 2


@pytest.mark.parametrize("outcome", [errno.EXDEV, errno.ENOSYS, errno.EINVAL, 0])
def test_copy_continues_without_the_kernel_where_it_stops(path, target, monkeypatch, outcome):
    calls = []

    def stubborn(source, out, nbytes, source_at, out_at):
        calls.append(nbytes)
        if len(calls) == 1:
            return os.pwrite(out, os.pread(source, 100, source_at), out_at)
        if outcome:
            raise OSError(outcome, os.strerror(outcome))
        return 0

    monkeypatch.setattr(descriptors, "copy_file_range", stubborn)
    source = os.open(path, os.O_RDONLY)
    copy_at(source, 0, target, 0, len(CONTENT))
    os.close(source)
    assert calls == [len(CONTENT), len(CONTENT) - 100]
    assert content_of(target) == CONTENT


LOCK_IN_ANOTHER_PROCESS = """
import os, sys
from ggufkit.system.descriptors import lock
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
def test_lock_distinguishes_held_from_unavailable(path, monkeypatch, module, code, expected):
    call = raising(code) if code else lambda *_: None
    fake = SimpleNamespace(flock=call, locking=call, LOCK_EX=2, LOCK_NB=4, LK_NBLCK=2)
    monkeypatch.setattr(descriptors, "fcntl", None)
    monkeypatch.setattr(descriptors, module, fake)
    descriptor = os.open(path, os.O_RDWR)
    assert lock(descriptor) is expected
    os.close(descriptor)


def test_sync_works_where_folders_cannot_be_synced(tmp_path, monkeypatch):
    synced = []

    def refuse(descriptor):
        synced.append(os.fstat(descriptor).st_ino)
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "fsync", refuse)
    sync_folder(tmp_path)
    sync_folder(tmp_path / "missing")
    assert synced == [tmp_path.stat().st_ino]


def test_error_for_too_few_open_files_has_a_remedy(monkeypatch):
    def failing():
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(descriptors, "resource", None)  # as where a process may not have more
    with pytest.raises(OSError, match="Too many open files: raise the limit"):
        descriptors.with_descriptors(failing)
