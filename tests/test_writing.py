"""An output appears whole or not at all, whatever happens, and is the same by every way."""

from __future__ import annotations

import errno
import io
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import ggufkit
from ggufkit import chunking, executing, store, writing
from ggufkit.chunking import Sizes
from ggufkit.errors import (
    ClosedError,
    DiskSpaceError,
    FormatError,
    OutputError,
    ShapeError,
    TensorTypeError,
    ValueTypeError,
)
from ggufkit.metadata import Metadata
from ggufkit.model import Model, Tensor, Tensors
from ggufkit.sources import from_array
from ggufkit.types import TENSOR_TYPES, tensor_type
from spelled import Info, Spelling

F32 = tensor_type("F32")
LEFTOVER = ".out.gguf.ggufkit-part"
posix = pytest.mark.skipif(os.name == "nt", reason="Windows has no such files or signals")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def example(seed=0):
    """Return the bytes of a canonical file with tensors of many types and sizes."""
    draw = random.Random(seed)
    infos = []
    for number, kind in enumerate(draw.sample(sorted(TENSOR_TYPES), 12)):
        known = TENSOR_TYPES[kind]
        if known.is_opaque:
            continue
        dims = (known.block_size * draw.choice([1, 3]), draw.choice([0, 1, 5, 300]))
        infos.append(
            Info(f"t{number}", dims, kind, draw.randbytes(known.row_bytes(dims[0]) * dims[1]))
        )
    pairs = [("general.name", ("string", "example")), ("numbers", ("array", ("int16", [1, -1])))]
    return Spelling().file(pairs, infos)


@pytest.fixture
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("input") / "in.gguf"
    path.write_bytes(example())
    os.utime(path, ns=(0, 0))  # so that any change shows in the time, however quick
    with ggufkit.open(path) as model:
        yield model


class Gate:
    """A source that waits inside `read` until it is let through, or fails."""

    byte_order = "little"
    span = None

    def __init__(self, error=None):
        self.reached = threading.Event()
        self.opened = threading.Event()
        self.error = error

    def read(self, start, stop):
        self.reached.set()
        assert self.opened.wait(60)
        if self.error:
            raise self.error
        return np.ones((stop - start, 4), np.uint8)


def gated_model(gate):
    tensors = [from_array("before", np.zeros(1000, "f4")), Tensor.over("gate", F32, (9, 1), gate)]
    return Model(Metadata({"a": 1}), Tensors(tensors))


class Writing(threading.Thread):
    """A write that runs in a thread and stands at a gate."""

    def __init__(self, path, gate=None):
        super().__init__()
        self.gate = gate or Gate()
        self.path = path
        self.error = None
        self.start()
        assert self.gate.reached.wait(60)

    def run(self):
        try:
            ggufkit.write(gated_model(self.gate), self.path, threads=2)
        except Exception as error:  # noqa: BLE001 (handed to the test)
            self.error = error

    def finish(self):
        self.gate.opened.set()
        self.join()
        return self.error


# The same bytes by every way.

WAYS = {
    "plainly": {},
    "no kernel copy": {"copy_file_range": None},
    "no positional calls": {"positional": False},
    "no locks": {"fcntl": None},
    "renames closed files only": {"renames_open_files": False},
    "nothing at all": {
        "copy_file_range": None,
        "positional": False,
        "fcntl": None,
        "renames_open_files": False,
    },
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("chunk", [1000, None])
def test_every_way_gives_the_same_bytes(model, tmp_path, monkeypatch, way, threads, chunk):
    for name, value in WAYS[way].items():
        monkeypatch.setattr(store, name, value)
    if chunk:
        monkeypatch.setattr(executing, "HERE", Sizes(chunk, 2 * chunk))
        monkeypatch.setattr(chunking, "PIECE", chunk)
    ggufkit.write(model, tmp_path / "out.gguf", threads=threads)
    assert (tmp_path / "out.gguf").read_bytes() == example()
    ggufkit.write(model, tmp_path / "big.gguf", threads=threads, byte_order="big")
    with ggufkit.open(tmp_path / "big.gguf") as swapped:
        ggufkit.write(swapped, tmp_path / "out.gguf", threads=threads, byte_order="little")
    assert (tmp_path / "out.gguf").read_bytes() == example()
    assert names(tmp_path) == ["big.gguf", "out.gguf"]


FORMS = [
    {},
    {"version": 2},
    {"byte_order": "big"},
    {"alignment": 8},
    {"alignment": 1024},
    {"shard_tensors": 1},
    {"shard_size": 3000},
    {"version": 2, "byte_order": "big", "alignment": 64, "shard_tensors": 3},
]


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_there_and_back_gives_the_same_bytes(tmp_path, form, seed):
    (tmp_path / "in.gguf").write_bytes(example(seed))
    with ggufkit.open(tmp_path / "in.gguf") as model:
        paths = ggufkit.write(model, tmp_path / "there.gguf", **form)
        again = ggufkit.write(model, tmp_path / "again.gguf", **form)
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in again]
    with ggufkit.open(paths[-1]) as there:
        back = there.replace(metadata=there.metadata.without("general.alignment"))
        ggufkit.write(back, tmp_path / "back.gguf", version=3, byte_order="little")
    assert (tmp_path / "back.gguf").read_bytes() == example(seed)


@pytest.mark.parametrize("end", [b"", b"\0" * 4])
def test_file_without_padding_at_its_end_is_rewritten_the_same(tmp_path, end):
    whole = Spelling().file([("a", ("uint8", 1))], [Info("t", (3,), 0, b"\x07" * 12)])
    cut = whole[: len(whole) - 20]
    (tmp_path / "in.gguf").write_bytes(cut + end)
    bare = Spelling().file([("a", ("uint8", 1))], padding=b"")
    (tmp_path / "bare.gguf").write_bytes(bare)
    for name, expected in (("in.gguf", cut), ("bare.gguf", bare)):
        with ggufkit.open(tmp_path / name) as model:
            ggufkit.write(model, tmp_path / "out.gguf")
            paths = ggufkit.write(model, tmp_path / "part.gguf", shard_tensors=1)
        assert (tmp_path / "out.gguf").read_bytes() == expected
        assert len(paths) == 1


def test_version_1_becomes_version_3(tmp_path):
    pairs, infos = [("a", ("string", "x"))], [Info("t", (3,), 0, bytes(12))]
    (tmp_path / "in.gguf").write_bytes(Spelling(1, "little").file(pairs, infos))
    with ggufkit.open(tmp_path / "in.gguf") as model:
        ggufkit.write(model, tmp_path / "out.gguf")
    assert (tmp_path / "out.gguf").read_bytes() == Spelling(3, "little").file(pairs, infos)


def test_gaps_and_order_of_the_input_are_not_copied(tmp_path):
    """Tensors may lie in any order with gaps between them; what is written has neither."""
    infos = [Info("a", (3,), 0, b"\x01" * 12), Info("b", (3,), 0, b"\x02" * 12)]
    content = bytearray(Spelling().file([], infos) + b"\x03" * 64)
    first, second = (content.index(info.name.encode()) + 17 for info in infos)
    content[first : first + 8] = (96).to_bytes(8, "little")
    assert content[second : second + 8] == (32).to_bytes(8, "little")
    (tmp_path / "in.gguf").write_bytes(content)
    with ggufkit.open(tmp_path / "in.gguf") as model:
        ggufkit.write(model, tmp_path / "out.gguf")
        kept = [tensor.raw().tobytes() for tensor in model.tensors.values()]
    expected = [info._replace(data=data) for info, data in zip(infos, kept, strict=True)]
    assert kept == [b"\x03" * 12, b"\x02" * 12]
    assert (tmp_path / "out.gguf").read_bytes() == Spelling().file([], expected)


def test_write_returns_the_paths_in_order(model, tmp_path):
    assert ggufkit.write(model, tmp_path / "a.gguf") == [tmp_path / "a.gguf"]
    assert ggufkit.write(model, str(tmp_path / "b.gguf")) == [tmp_path / "b.gguf"]
    assert ggufkit.write(model, os.fsencode(tmp_path / "c.gguf")) == [tmp_path / "c.gguf"]
    paths = ggufkit.write(model, tmp_path / "d.gguf", shard_tensors=1)
    count = len(model.tensors)
    assert [path.name for path in paths] == [
        f"d-{number + 1:05d}-of-{count:05d}.gguf" for number in range(count)
    ]


def test_relative_path_is_written_in_the_current_folder(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ggufkit.write(model, "out.gguf")
    assert names(tmp_path) == ["out.gguf"]


# Save.


def test_saved_arrays_come_back(tmp_path):
    big = np.random.default_rng(0).standard_normal((300, 64)).astype("f4")
    tensors = {
        "plain": big,
        "transposed": big.T,
        "Fortran": np.asfortranarray(big),
        "big": big.astype(">f8"),
        "pair": (big, "Q8_0"),
        "packed": (ggufkit.quants.quantize(big, "Q4_0"), "Q4_0"),
        "nothing": np.zeros((0, 4), np.int8),
        "scalar": np.float64(2.5),
        "list": [[1.0, 2.0], [3.0, 4.0]],
    }
    ggufkit.save(tmp_path / "out.gguf", tensors)
    with ggufkit.open(tmp_path / "out.gguf") as model:
        assert list(model.tensors) == list(tensors)
        found = {name: tensor.numpy() for name, tensor in model.tensors.items()}
        types = {name: str(tensor.type) for name, tensor in model.tensors.items()}
        ggufkit.save(tmp_path / "again.gguf", {"renamed": model.tensors["pair"]})
    for name in ("plain", "transposed", "Fortran", "big", "nothing", "scalar", "list"):
        np.testing.assert_array_equal(found[name], tensors[name])
    assert types["pair"] == "Q8_0"
    assert types["list"] == "F64"
    np.testing.assert_array_equal(
        found["packed"], ggufkit.quants.dequantize(tensors["packed"][0], "Q4_0")
    )
    with ggufkit.open(tmp_path / "again.gguf") as model:
        np.testing.assert_array_equal(model.tensors["renamed"].numpy(), found["pair"])


def test_an_empty_model_is_a_file(tmp_path):
    ggufkit.save(tmp_path / "out.gguf", {})
    assert (tmp_path / "out.gguf").read_bytes() == Spelling().file()
    ggufkit.save(tmp_path / "out.gguf", {}, {"a": 1}, byte_order="big")
    assert (tmp_path / "out.gguf").read_bytes() == Spelling(3, "big").file([("a", ("uint32", 1))])


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (None, TensorTypeError),
        ("text", TensorTypeError),
        (b"bytes", TensorTypeError),
        (np.zeros(2, bool), TensorTypeError),
        (np.zeros(2, np.uint8), TensorTypeError),
        ([[1.0], [1.0, 2.0]], TensorTypeError),
        ((np.zeros(32, "f4"), "Q9_9"), TensorTypeError),
        ((np.zeros(32, "f4"), 2.0), TensorTypeError),
        ((np.zeros(32, "f4"), None), TensorTypeError),
        ((1.0, 2.0, 3.0), TensorTypeError),
        ((), TensorTypeError),
        ((np.zeros(33, "f4"), "Q8_0"), ShapeError),
        ((np.zeros(33, np.uint8), "Q8_0"), ShapeError),
    ],
    ids=str,
)
def test_what_is_no_tensor_is_refused(tmp_path, value, error):
    with pytest.raises(error, match=r"tensor|type"):
        ggufkit.save(tmp_path / "out.gguf", {"t": value})
    assert names(tmp_path) == []


def test_number_that_does_not_fit_leaves_nothing(tmp_path):
    with pytest.raises(ValueTypeError, match="does not hold 300"):
        ggufkit.save(tmp_path / "out.gguf", {"t": (np.array([300]), "I8")})
    assert names(tmp_path) == []


# Replacing.


def test_existing_file_is_replaced_at_once(model, tmp_path):
    path = tmp_path / "out.gguf"
    ggufkit.save(path, {"old": np.zeros(4, "f4")})
    with ggufkit.open(path) as old:
        tensor = old.tensors["old"]
        ggufkit.write(model, path)
        assert tensor.numpy().tolist() == [0, 0, 0, 0]
        assert tensor.source.read(0, 1).tobytes() == bytes(16)
    assert path.read_bytes() == example()


def test_reader_never_sees_a_part(tmp_path):
    path = tmp_path / "out.gguf"
    path.write_bytes(example())
    running = Writing(path)
    assert path.read_bytes() == example()
    assert names(tmp_path) == [LEFTOVER, "out.gguf"]
    assert running.finish() is None
    assert path.read_bytes() != example()
    assert ggufkit.check(path) == []
    assert names(tmp_path) == ["out.gguf"]


@pytest.mark.parametrize(
    "error", [RuntimeError("fault"), OSError(errno.EIO, "fault"), MemoryError()]
)
def test_failing_source_leaves_the_old_file(tmp_path, error):
    path = tmp_path / "out.gguf"
    path.write_bytes(b"old")
    running = Writing(path, Gate(error))
    raised = running.finish()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["out.gguf"]
    if isinstance(error, OSError):
        assert isinstance(raised, OutputError)
        assert "fault" in str(raised)
    else:
        assert raised is error


@posix
@pytest.mark.parametrize("there", [True, False])
def test_link_is_replaced_and_its_target_kept(model, tmp_path, there):
    precious = tmp_path / "precious"
    if there:
        precious.write_bytes(b"keep me")
    (tmp_path / "out.gguf").symlink_to(precious)
    ggufkit.write(model, tmp_path / "out.gguf")
    assert not (tmp_path / "out.gguf").is_symlink()
    assert (tmp_path / "out.gguf").read_bytes() == example()
    assert precious.exists() == there
    assert not there or precious.read_bytes() == b"keep me"


# Inputs.


def own_names(path):
    """Return names under which a file is also known, by how they came about."""
    soft, hard = path.with_name("soft.gguf"), path.with_name("hard.gguf")
    soft.symlink_to(path)
    os.link(path, hard)
    return {"its own": path, "a link": soft, "a hard link": hard}


@posix
@pytest.mark.parametrize("name", ["its own", "a link", "a hard link"])
def test_output_that_is_an_input_is_refused(model, name):
    source = model.files[0].path
    target = own_names(source)[name]
    made = Model(Metadata(), Tensors([model.tensors["t0"]]))
    for changed in (model, model.replace(tensors=[]), made):
        with pytest.raises(OutputError, match="is also an input"):
            ggufkit.write(changed, target)
    with pytest.raises(OutputError, match="is also an input"):
        ggufkit.save(target, {"t": model.tensors["t0"]})
    assert source.read_bytes() == example()


def test_shard_that_is_an_input_is_refused(tmp_path):
    tensors = {f"t{n}": np.zeros(4, "f4") for n in range(3)}
    paths = ggufkit.save(tmp_path / "m.gguf", tensors, shard_tensors=1)
    before = [path.read_bytes() for path in paths]
    with ggufkit.open(paths[0]) as model:
        with pytest.raises(OutputError, match=r"m-00001-of-00003\.gguf is also an input"):
            ggufkit.write(model, tmp_path / "m.gguf", shard_tensors=1)
        with pytest.raises(OutputError, match="is also an input"):
            ggufkit.write(model, paths[2])
        ggufkit.write(model, tmp_path / "m.gguf")
        ggufkit.write(model, tmp_path / "m.gguf", shard_tensors=2)
    assert [path.read_bytes() for path in paths] == before


CHANGES = {
    "cut": lambda path: os.truncate(path, 2000),
    "emptied": lambda path: os.truncate(path, 0),
    "grown": lambda path: os.truncate(path, path.stat().st_size + 1),
    "overwritten": lambda path: path.write_bytes(path.read_bytes()),
}


@posix
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("options", [{}, {"byte_order": "big"}], ids=["copied", "made"])
@pytest.mark.parametrize("way", ["plainly", "no kernel copy"])
def test_input_that_changes_is_noticed(model, tmp_path, monkeypatch, change, options, way):
    for name, value in WAYS[way].items():
        monkeypatch.setattr(store, name, value)
    plan = writing.layout(model, "out.gguf", **options)
    CHANGES[change](model.files[0].path)
    for write in (
        lambda: executing.execute(plan, tmp_path),
        lambda: writing.stream(plan, io.BytesIO()),
    ):
        with pytest.raises(FormatError, match="changed while in use"):
            write()
    assert names(tmp_path) == []


@posix
def test_input_that_is_replaced_is_written_as_it_was_opened(model, tmp_path):
    source = model.files[0].path
    source.with_name("other").write_bytes(b"other")
    source.with_name("other").replace(source)
    ggufkit.write(model, tmp_path / "out.gguf")
    assert (tmp_path / "out.gguf").read_bytes() == example()


def test_closed_model_cannot_be_written(model, tmp_path):
    bare = model.replace(metadata=Metadata())
    model.close()
    with pytest.raises(ClosedError):
        ggufkit.write(bare, tmp_path / "out.gguf")
    assert names(tmp_path) == []


# Several writers.


def test_second_writer_of_an_output_is_refused(model, tmp_path):
    running = Writing(tmp_path / "out.gguf")
    with pytest.raises(OutputError, match="being written"):
        ggufkit.write(model, tmp_path / "out.gguf")
    assert running.finish() is None
    assert ggufkit.check(tmp_path / "out.gguf") == []
    ggufkit.write(model, tmp_path / "out.gguf")
    assert (tmp_path / "out.gguf").read_bytes() == example()


def test_writers_in_one_folder_leave_each_other_alone(model, tmp_path):
    running = Writing(tmp_path / "out.gguf")
    ggufkit.write(model, tmp_path / "other.gguf")
    assert names(tmp_path) == [LEFTOVER, "other.gguf"]
    assert running.finish() is None
    assert names(tmp_path) == ["other.gguf", "out.gguf"]


def test_failing_second_shard_leaves_no_first(model, tmp_path):
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
from ggufkit.metadata import Metadata
from ggufkit.model import Model, Tensor, Tensors
from ggufkit.sources import from_array
from ggufkit.types import tensor_type

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
    """Start a write in another process, send it a signal in the middle, and wait for its end."""
    command = [sys.executable, "-c", SLOW, str(path), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"reading\n", process.stderr.read()
        process.send_signal(number)
        process.communicate()
        return process.returncode


@posix
def test_killed_writer_leaves_no_output_and_its_leftover_is_swept(model, tmp_path):
    path = tmp_path / "out.gguf"
    path.write_bytes(b"old")
    assert killed_while_writing(path, signal.SIGKILL) == -signal.SIGKILL
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == [LEFTOVER, "out.gguf"]
    assert (tmp_path / LEFTOVER).stat().st_size > 1 << 22
    ggufkit.write(model, tmp_path / "other.gguf")
    assert names(tmp_path) == ["other.gguf", "out.gguf"]


@posix
def test_leftover_of_a_killed_writer_is_no_obstacle(model, tmp_path):
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


def test_lack_of_space_is_found_before_writing(model, tmp_path, monkeypatch):
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
def test_fault_of_any_call_is_told_and_leaves_nothing(
    model, tmp_path, monkeypatch, fault, call, shards
):
    code, error = FAULTS[fault]
    owner = Path if call == "replace" else os
    real = getattr(owner, call)
    calls = []

    def failing(*arguments, **named):
        if call == "open" and not arguments[1] & os.O_CREAT:
            return real(*arguments, **named)
        calls.append(arguments)
        if len(calls) > (1 if shards else 0):
            raise OSError(code, os.strerror(code))
        return real(*arguments, **named)

    monkeypatch.setattr(owner, call, failing)
    monkeypatch.setattr(store, "copy_file_range", None)
    (tmp_path / "out.gguf").write_bytes(b"old")
    with pytest.raises(error, match=os.strerror(code)) as caught:
        ggufkit.write(model, tmp_path / "out.gguf", **shards)
    assert "Nothing was left behind" in caught.value.remedy
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


def test_disk_that_fills_up_meanwhile_is_told_and_left_empty(small_disk, monkeypatch):
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


def test_output_needs_its_folder(model, tmp_path):
    for folder in (tmp_path / "missing", tmp_path / "missing" / "more"):
        with pytest.raises(OutputError, match="does not exist"):
            ggufkit.write(model, folder / "out.gguf")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OutputError, match="does not exist"):
        ggufkit.write(model, tmp_path / "file" / "out.gguf")


@posix
def test_output_that_is_no_file_is_refused_before_writing(model, tmp_path):
    (tmp_path / "folder.gguf").mkdir()
    os.mkfifo(tmp_path / "pipe.gguf")
    for path in (tmp_path / "folder.gguf", tmp_path / "pipe.gguf", tmp_path, "/", ".."):
        with pytest.raises(OutputError, match="no regular file"):
            ggufkit.write(model, path)
    assert names(tmp_path) == ["folder.gguf", "pipe.gguf"]
    with pytest.raises(OutputError, match="no regular file"):
        ggufkit.write(model, os.devnull)
    with pytest.raises(FileNotFoundError):
        ggufkit.write(model, "")


@pytest.mark.parametrize("name", ["x" * 250 + ".gguf", "ä" * 125 + ".gguf"])
def test_longest_names_are_written(model, tmp_path, name):
    ggufkit.write(model, tmp_path / name)
    assert names(tmp_path) == [name]
    with pytest.raises(OutputError):
        ggufkit.write(model, tmp_path / ("x" * 256))


@pytest.mark.parametrize("threads", [0, -1])
def test_no_threads_do_no_work(model, tmp_path, threads):
    for path in (tmp_path / "out.gguf", io.BytesIO()):
        with pytest.raises(ValueTypeError, match="threads cannot work"):
            ggufkit.write(model, path, threads=threads)
    assert names(tmp_path) == []


# Shards are published last to first.


@pytest.fixture
def moves(monkeypatch):
    """The names in the order in which files were removed (-) and put in place (+)."""
    moves = []
    replace, unlink = Path.replace, Path.unlink

    def replacing(source, target):
        moves.append(f"+{target.name[4:9]}")
        replace(source, target)

    def unlinking(path, **named):
        if not path.name.startswith("."):
            moves.append(f"-{path.name[4:9]}")
        unlink(path, **named)

    monkeypatch.setattr(Path, "replace", replacing)
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
    replace = Path.replace

    def failing(source, target):
        if "00001-of" in target.name:
            raise OSError(errno.EIO, "fault")
        replace(source, target)

    monkeypatch.setattr(Path, "replace", failing)
    tensors = {f"t{n}": np.zeros(4, "f4") for n in range(3)}
    with pytest.raises(OutputError, match="fault"):
        ggufkit.save(tmp_path / "out.gguf", tensors, shard_tensors=1)
    assert names(tmp_path) == []


# Progress.


@pytest.mark.parametrize("form", [*FORMS, {"threads": 1}], ids=str)
def test_progress_grows_to_the_total(model, tmp_path, monkeypatch, form):
    monkeypatch.setattr(executing, "HERE", Sizes(5000, 5000))
    seen = []
    paths = ggufkit.write(
        model, tmp_path / "out.gguf", progress=lambda *numbers: seen.append(numbers), **form
    )
    total = sum(path.stat().st_size for path in paths)
    done = [numbers[0] for numbers in seen]
    assert {numbers[1] for numbers in seen} == {total}
    assert done == sorted(done)
    assert done[-1] == total
    assert len(done) > 5


def test_progress_of_nothing_ends_too(tmp_path):
    for target in (tmp_path / "out.gguf", io.BytesIO()):
        seen = []
        model = Model(Metadata(), Tensors())
        ggufkit.write(model, target, progress=lambda *numbers, seen=seen: seen.append(numbers))
        assert seen[-1] == (32, 32)


def test_progress_that_fails_stops_the_work(model, tmp_path):
    def failing(_done, _total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ggufkit.write(model, tmp_path / "out.gguf", progress=failing)
    assert names(tmp_path) == []


# Streams.


@pytest.mark.parametrize("form", [form for form in FORMS if "shard" not in str(form)], ids=str)
def test_stream_gets_the_bytes_of_the_file(model, tmp_path, form):
    ggufkit.write(model, tmp_path / "out.gguf", **form)
    seen = []
    stream = io.BytesIO()
    assert ggufkit.write(model, stream, progress=lambda *n: seen.append(n), **form) == []
    content = (tmp_path / "out.gguf").read_bytes()
    assert stream.getvalue() == content
    assert seen == sorted(seen)
    assert seen[-1] == (len(content), len(content))


def test_pipe_takes_the_file_however_slowly_it_is_read(model):
    reading, writing_end = os.pipe()
    parts = []

    def drain():
        while part := os.read(reading, 333):
            parts.append(part)

    reader = threading.Thread(target=drain)
    reader.start()
    with os.fdopen(writing_end, "wb", buffering=0) as pipe:
        ggufkit.write(model, pipe)
    reader.join()
    os.close(reading)
    assert b"".join(parts) == example()


def test_unbuffered_stream_is_written_to_its_end(model):
    class Reluctant(io.RawIOBase):
        content = b""

        def write(self, data):
            taken = bytes(data[:777])
            self.content += taken
            return len(taken)

    stream = Reluctant()
    ggufkit.write(model, stream)
    assert stream.content == example()


@posix
def test_stream_that_does_not_wait_is_refused():
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    large = Model(Metadata(), Tensors([from_array("t", np.zeros(1 << 22, "f4"))]))
    with ours, theirs, ours.makefile("wb", buffering=0) as stream, pytest.raises(OutputError):
        ggufkit.write(large, stream)


@posix
def test_reader_that_goes_away_is_a_broken_pipe(model):
    reading, writing_end = os.pipe()
    os.close(reading)
    with pytest.raises(BrokenPipeError), os.fdopen(writing_end, "wb", buffering=0) as pipe:
        ggufkit.write(model, pipe)


def test_stream_cannot_hold_shards(model):
    stream = io.BytesIO()
    with pytest.raises(OutputError, match="several shards"):
        ggufkit.write(model, stream, shard_tensors=1)
    assert stream.getvalue() == b""


def test_save_writes_to_a_stream_too():
    stream = io.BytesIO()
    ggufkit.save(stream, {"t": np.zeros(2, "f4")}, {"a": 1})
    expected = Spelling().file([("a", ("uint32", 1))], [Info("t", (2,), 0, bytes(8))])
    assert stream.getvalue() == expected


# Memory.

MEASURE = """
import resource, sys
import ggufkit
model = ggufkit.open(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
if sys.argv[3] == "stream":
    with open(sys.argv[2], "wb") as out:
        ggufkit.write(model, out, threads=2)
else:
    options = {"byte_order": "big"} if sys.argv[3] == "made" else {}
    if sys.argv[3] == "quantized":
        from ggufkit.sources import retyped
        model = model.replace(tensors=[retyped(t, "F16") for t in model.tensors.values()])
    ggufkit.write(model, sys.argv[2], threads=2, **options)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="measures as Linux does")
@pytest.mark.parametrize("how", ["copied", "made", "quantized", "stream"])
@pytest.mark.parametrize("dims", [(4096, 1 << 14), (1 << 26,)], ids=["matrix", "one row"])
def test_memory_does_not_grow_with_the_model(tmp_path, how, dims):
    head = Spelling().file([], [Info("t", dims, 0, b"")])
    (tmp_path / "in.gguf").write_bytes(head)
    os.truncate(tmp_path / "in.gguf", len(head) + (1 << 28))
    command = [sys.executable, "-c", MEASURE, *(str(tmp_path / n) for n in ("in.gguf", "out.gguf"))]
    done = subprocess.run([*command, how], check=True, capture_output=True, text=True)
    assert (tmp_path / "out.gguf").stat().st_size >= 1 << 27
    assert int(done.stdout) < 80
