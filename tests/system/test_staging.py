"""Outputs are staged in hidden files, belong to one writer, and appear complete."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from ggufkit.errors import OutputError
from ggufkit.system import descriptors
from ggufkit.system import staging as staging_module
from ggufkit.system.descriptors import lock, write_at
from ggufkit.system.staging import Staging, require_file, staged, sweep
from platforms import posix


@pytest.fixture(params=["renames open files", "renames closed files only"])
def platform(request, monkeypatch):
    monkeypatch.setattr(descriptors, "renames_open_files", request.param == "renames open files")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.usefixtures("platform")
def test_staging_file_is_hidden_until_published(tmp_path):
    target = tmp_path / "out.gguf"
    target.write_bytes(b"old")
    staging = Staging(target)
    os.ftruncate(staging.descriptor, 5)
    write_at(staging.descriptor, b"new", 0)
    os.fsync(staging.descriptor)
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == [".out.gguf.ggufkit-part", "out.gguf"]
    staging.publish()
    staging.discard()
    assert target.read_bytes() == b"new\0\0"
    assert names(tmp_path) == ["out.gguf"]


@pytest.mark.usefixtures("platform")
def test_discarded_staging_file_leaves_nothing(tmp_path):
    staging = Staging(tmp_path / "out.gguf")
    staging.discard()
    staging.discard()
    assert names(tmp_path) == []


@pytest.mark.parametrize("name", ["x" * 255, "x" * 240, "ä" * 127, "out.gguf"])
def test_staging_file_has_a_valid_name_for_every_target(tmp_path, name):
    staging = Staging(tmp_path / name)
    assert staging.path.parent == tmp_path
    assert staging.path.name != name
    with pytest.raises(OutputError, match="being written"):
        Staging(tmp_path / name)
    sweep(tmp_path)
    staging.publish()
    assert names(tmp_path) == [name]


def test_long_names_do_not_share_a_staging_file(tmp_path):
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
def test_mode_comes_from_the_umask_and_not_from_a_leftover(tmp_path):
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
def test_sweep_removes_only_leftovers_of_dead_processes(tmp_path):
    living = Staging(tmp_path / "living.gguf")
    (tmp_path / ".dead.gguf.ggufkit-part").write_bytes(b"x")
    (tmp_path / "not-hidden.ggufkit-part").write_bytes(b"x")
    (tmp_path / ".other").write_bytes(b"x")
    sweep(tmp_path)
    assert names(tmp_path) == [".living.gguf.ggufkit-part", ".other", "not-hidden.ggufkit-part"]
    living.publish()
    assert "living.gguf" in names(tmp_path)


def test_sweep_keeps_the_file_of_a_new_writer(tmp_path, monkeypatch):
    """Between opening a leftover and locking it, another process may have started again."""
    leftover = tmp_path / ".out.gguf.ggufkit-part"
    leftover.write_bytes(b"old")
    real_lock = lock

    def late(descriptor):
        monkeypatch.setattr(staging_module, "lock", real_lock)
        leftover.unlink()
        late.writer = Staging(tmp_path / "out.gguf")
        return real_lock(descriptor)

    monkeypatch.setattr(staging_module, "lock", late)
    sweep(tmp_path)
    late.writer.publish()
    assert names(tmp_path) == ["out.gguf"]


def test_writer_starts_again_if_its_new_file_was_swept(tmp_path, monkeypatch):
    real_lock = lock
    begun = []

    def sweeping_first(descriptor):
        begun.append(descriptor)
        if len(begun) == 1:
            monkeypatch.setattr(staging_module, "lock", real_lock)
            sweep(tmp_path)
            monkeypatch.setattr(staging_module, "lock", sweeping_first)
        return real_lock(descriptor)

    monkeypatch.setattr(staging_module, "lock", sweeping_first)
    staging = Staging(tmp_path / "out.gguf")
    assert len(begun) == 2
    staging.publish()
    assert names(tmp_path) == ["out.gguf"]


def test_discard_keeps_the_file_of_another_writer(tmp_path):
    staging = Staging(tmp_path / "out.gguf")
    staging.path.unlink()
    staging.path.write_bytes(b"of another")
    staging.discard()
    assert staging.path.read_bytes() == b"of another"


def test_without_locks_no_leftover_counts_as_dead(tmp_path, monkeypatch):
    monkeypatch.setattr(descriptors, "fcntl", None)
    staging = Staging(tmp_path / "out.gguf")
    with pytest.raises(OutputError, match="being written") as caught:
        Staging(tmp_path / "out.gguf")
    assert str(staging.path) in caught.value.remedy
    sweep(tmp_path)
    staging.publish()
    assert names(tmp_path) == ["out.gguf"]


@pytest.mark.usefixtures("platform")
def test_a_failed_fill_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "out.gguf"
    target.write_bytes(b"old")

    def fill(stage):
        write_at(stage.descriptor, b"new", 0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        staged(target, fill)
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["out.gguf"]
    with pytest.raises(ZeroDivisionError):
        staged(target, fill, resumable=True)
    assert names(tmp_path) == [".out.gguf.ggufkit-resume", "out.gguf"]
    assert staged(target, lambda stage: stage.is_new, resumable=True) is False
    assert target.read_bytes() == b"new"


def test_a_full_disk_names_the_file(tmp_path):
    def fill(_stage):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match=r"out\.npy") as caught:
        staged(tmp_path / "out.npy", fill)
    assert caught.value.filename == str(tmp_path / "out.npy")


@posix
@pytest.mark.usefixtures("capfd")  # makes it a file
def test_standard_output_is_no_output_file():
    assert Path("/dev/stdout").is_file()
    with pytest.raises(OutputError, match="/dev/stdout exists and is not a regular file"):
        require_file(Path("/dev/stdout"))


@posix
def test_a_pipe_or_device_is_never_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    for target in (pipe, tmp_path / "link"):
        with pytest.raises(OutputError, match="is not a regular file"):
            staged(target, lambda _stage: None)
    assert names(tmp_path) == ["link", "pipe"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
