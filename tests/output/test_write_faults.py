"""An output appears complete or not at all, after any fault."""

from __future__ import annotations

import errno
import io
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import ggufkit
from ggufkit.errors import (
    DiskSpaceError,
    OutputError,
    ValueTypeError,
)
from ggufkit.system import descriptors
from written import (
    LEFTOVER,
    Gate,
    Writing,
    example,
    names,
    posix,
    write_example,
)


@pytest.fixture
def model(tmp_path_factory):
    with ggufkit.open(write_example(tmp_path_factory.mktemp("input"))) as model:
        yield model


# Several writers.


def test_refuses_a_second_writer_of_an_output(model, tmp_path):
    running = Writing(tmp_path / "out.gguf")
    with pytest.raises(OutputError, match="being written"):
        ggufkit.write(model, tmp_path / "out.gguf")
    assert running.finish() is None
    findings = ggufkit.check(tmp_path / "out.gguf")
    assert {finding.rule for finding in findings} == {"architecture-missing"}
    ggufkit.write(model, tmp_path / "out.gguf")
    assert (tmp_path / "out.gguf").read_bytes() == example()


def test_writers_in_one_folder_do_not_disturb_each_other(model, tmp_path):
    running = Writing(tmp_path / "out.gguf")
    ggufkit.write(model, tmp_path / "other.gguf")
    assert names(tmp_path) == [LEFTOVER, "other.gguf"]
    assert running.finish() is None
    assert names(tmp_path) == ["other.gguf", "out.gguf"]


def test_failure_of_the_second_shard_removes_the_first(model, tmp_path):
    gate = Gate()
    second = f"out-00002-of-{len(model.tensors):05d}.gguf"
    running = Writing(tmp_path / second, gate)
    with pytest.raises(OutputError, match="being written"):
        ggufkit.write(model, tmp_path / "out.gguf", shard_tensors=1)
    assert names(tmp_path) == [f".{second}.ggufkit-part"]
    assert running.finish() is None


# Killed.

SLOW = """
import sys, time
import numpy as np
import ggufkit
from ggufkit.format.metadata import Metadata
from ggufkit.models.model import Model, Tensor, Tensors
from ggufkit.models.sources import from_array
from ggufkit.format.types import tensor_type

class Slow:
    byte_order, span = "little", None
    def read(self, start, stop):
        print("reading", flush=True)
        time.sleep(float(sys.argv[2]))
        return np.zeros((stop - start, 4), np.uint8)

tensors = [from_array("a", np.zeros(1 << 20, "f4"))]
tensors.append(Tensor.over("b", tensor_type("F32"), (4, 1), Slow()))
ggufkit.write(Model(Metadata(), Tensors(tensors)), sys.argv[1], threads=2)
"""


def killed_while_writing(path, number, seconds=60):
    """Start a write in another process, send it a signal halfway, and wait for its end."""
    command = [sys.executable, "-c", SLOW, str(path), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"reading\n", process.stderr.read()
        process.send_signal(number)
        process.communicate()
        return process.returncode


@posix
def test_killed_writer_leaves_no_output_and_its_leftover_is_removed(model, tmp_path):
    path = tmp_path / "out.gguf"
    path.write_bytes(b"old")
    assert killed_while_writing(path, signal.SIGKILL) == -signal.SIGKILL
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == [LEFTOVER, "out.gguf"]
    assert (tmp_path / LEFTOVER).stat().st_size > 1 << 22
    ggufkit.write(model, tmp_path / "other.gguf")
    assert names(tmp_path) == ["other.gguf", "out.gguf"]


@posix
def test_leftover_of_a_killed_writer_does_not_block_the_next(model, tmp_path):
    killed_while_writing(tmp_path / "out.gguf", signal.SIGKILL)
    ggufkit.write(model, tmp_path / "out.gguf")
    assert names(tmp_path) == ["out.gguf"]
    assert (tmp_path / "out.gguf").read_bytes() == example()


@posix
def test_leftover_does_not_count_as_used_space(model, tmp_path, monkeypatch):
    killed_while_writing(tmp_path / "out.gguf", signal.SIGKILL)

    def usage(folder):
        swept = LEFTOVER not in names(folder)
        return shutil._ntuple_diskusage(1 << 30, 0, 1 << 30 if swept else 0)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    ggufkit.write(model, tmp_path / "other.gguf")


@posix
def test_interrupted_writer_leaves_nothing(tmp_path):
    path = tmp_path / "out.gguf"
    path.write_bytes(b"old")
    started = time.monotonic()
    assert killed_while_writing(path, signal.SIGINT, seconds=1) != 0
    assert time.monotonic() - started < 30
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["out.gguf"]


# Full disks and other faults.


def test_checks_the_free_space_before_writing(model, tmp_path, monkeypatch):
    size = len(example())
    usage = shutil._ntuple_diskusage(1 << 30, 0, size - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    (tmp_path / "out.gguf").write_bytes(b"old")
    with pytest.raises(DiskSpaceError, match=f"{size:,} are needed") as caught:
        ggufkit.write(model, tmp_path / "out.gguf")
    assert isinstance(caught.value, OSError)
    assert (tmp_path / "out.gguf").read_bytes() == b"old"
    assert names(tmp_path) == ["out.gguf"]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=size))
    ggufkit.write(model, tmp_path / "out.gguf")


FAULTS = {
    "space": (errno.ENOSPC, DiskSpaceError),
    "quota": (errno.EDQUOT, DiskSpaceError),
    "size": (errno.EFBIG, OutputError),
    "disk": (errno.EIO, OutputError),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("call", ["pwrite", "ftruncate", "fsync", "open", "replace"])
@pytest.mark.parametrize("shards", [{}, {"shard_tensors": 2}], ids=["file", "shards"])
def test_fault_in_any_call_is_reported_and_leaves_nothing(
    model, tmp_path, monkeypatch, fault, call, shards
):
    code, error = FAULTS[fault]
    real = getattr(os, call)
    calls = []

    def failing(*arguments, **options):
        if call == "open" and not arguments[1] & os.O_CREAT:
            return real(*arguments, **options)
        calls.append(arguments)
        if len(calls) > (1 if shards else 0):
            raise OSError(code, os.strerror(code))
        return real(*arguments, **options)

    monkeypatch.setattr(os, call, failing)
    monkeypatch.setattr(descriptors, "copy_file_range", None)
    (tmp_path / "out.gguf").write_bytes(b"old")
    with pytest.raises(error, match=os.strerror(code)) as caught:
        ggufkit.write(model, tmp_path / "out.gguf", **shards)
    assert "No partial output remains" in caught.value.remedy
    assert names(tmp_path) == ["out.gguf"]
    assert (tmp_path / "out.gguf").read_bytes() == b"old"


@pytest.fixture
def small_disk(tmp_path):
    """A file system of one MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if (
        not shutil.which("mount")
        or subprocess.run(mount, capture_output=True, check=False).returncode
    ):
        pytest.skip("this user cannot mount a small file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_disk_that_fills_up_meanwhile_is_reported_and_left_empty(small_disk, monkeypatch):
    free = shutil.disk_usage(small_disk).free
    tensors = {"a": np.ones(free // 8, "f4"), "b": np.ones(free // 8, "f4")}
    ggufkit.save(small_disk / "fits.gguf", {"a": tensors["a"]})
    (small_disk / "fits.gguf").unlink()
    with pytest.raises(DiskSpaceError, match="bytes free"):
        ggufkit.save(small_disk / "out.gguf", tensors)
    usage = shutil.disk_usage(small_disk)._replace(free=1 << 30)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DiskSpaceError, match="No space left"):
        ggufkit.save(small_disk / "out.gguf", tensors)
    assert names(small_disk) == []
    assert os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize == free


def test_output_needs_an_existing_folder(model, tmp_path):
    for folder in (tmp_path / "missing", tmp_path / "missing" / "more"):
        with pytest.raises(OutputError, match="does not exist"):
            ggufkit.write(model, folder / "out.gguf")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OutputError, match="does not exist"):
        ggufkit.write(model, tmp_path / "file" / "out.gguf")


@posix
def test_refuses_an_output_that_is_not_a_file_before_writing(model, tmp_path):
    (tmp_path / "folder.gguf").mkdir()
    os.mkfifo(tmp_path / "pipe.gguf")
    for path in (tmp_path / "folder.gguf", tmp_path / "pipe.gguf", tmp_path, "/", ".."):
        with pytest.raises(OutputError, match="not a regular file"):
            ggufkit.write(model, path)
    assert names(tmp_path) == ["folder.gguf", "pipe.gguf"]
    with pytest.raises(OutputError, match="not a regular file"):
        ggufkit.write(model, os.devnull)
    with pytest.raises(FileNotFoundError):
        ggufkit.write(model, "")


@pytest.mark.parametrize("name", ["x" * 250 + ".gguf", "ä" * 125 + ".gguf"])
def test_writes_the_longest_names(model, tmp_path, name):
    ggufkit.write(model, tmp_path / name)
    assert names(tmp_path) == [name]
    with pytest.raises(OutputError):
        ggufkit.write(model, tmp_path / ("x" * 256))


@pytest.mark.parametrize("threads", [0, -1])
def test_refuses_an_impossible_number_of_threads(model, tmp_path, threads):
    for path in (tmp_path / "out.gguf", io.BytesIO()):
        with pytest.raises(ValueTypeError, match="is not a possible number of threads"):
            ggufkit.write(model, path, threads=threads)
    assert names(tmp_path) == []


# Shards are published last to first.


@pytest.fixture
def moves(monkeypatch):
    """The names in the order in which files were removed (-) and put in place (+)."""
    moves = []
    replace, unlink = os.replace, Path.unlink

    def replacing(source, target, **folders):
        moves.append(f"+{Path(target).name[4:9]}")
        replace(source, target, **folders)

    def unlinking(path, **options):
        if not path.name.startswith("."):
            moves.append(f"-{path.name[4:9]}")
        unlink(path, **options)

    monkeypatch.setattr(os, "replace", replacing)
    monkeypatch.setattr(Path, "unlink", unlinking)
    return moves


def test_first_shard_is_published_last(tmp_path, moves):
    tensors = {f"t{n}": np.zeros(4, "f4") for n in range(3)}
    for _ in range(2):
        moves.clear()
        ggufkit.save(tmp_path / "out.gguf", tensors, shard_tensors=1)
        assert [move for move in moves if "-" not in move] == ["+00003", "+00002", "+00001"]
    assert moves[0] == "-00001"


def test_set_that_cannot_be_published_leaves_nothing(tmp_path, monkeypatch):
    replace = os.replace

    def failing(source, target, **folders):
        if "00001-of" in str(target):
            raise OSError(errno.EIO, "fault")
        replace(source, target, **folders)

    monkeypatch.setattr(os, "replace", failing)
    tensors = {f"t{n}": np.zeros(4, "f4") for n in range(3)}
    with pytest.raises(OutputError, match="fault"):
        ggufkit.save(tmp_path / "out.gguf", tensors, shard_tensors=1)
    assert names(tmp_path) == []
