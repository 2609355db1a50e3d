"""Several outputs from one pass, and work in other processes, give identical bytes."""

from __future__ import annotations

import errno
import itertools
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

import ggufkit
from ggufkit.errors import FormatError, OutputError
from ggufkit.models.model import Tensor
from ggufkit.models.sources import retyped
from ggufkit.output import chunks, execute
from ggufkit.output.chunks import PlacedExtent, Sizes, run, whole
from ggufkit.output.layout import layout
from ggufkit.system.mapped_file import MappedFile
from ggufkit.system.staging import Output

KINDS = ["Q8_0", "Q4_0", "F16", "Q6_K"]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def source(tmp_path):
    """The path of a model with matrices of several types and widths."""
    random = np.random.default_rng(5)
    tensors = {
        "wide": random.standard_normal((3, 512 * 1024), np.float32).astype("f2"),
        "tall": random.standard_normal((3000, 256), np.float32),
        "stack": random.standard_normal((4, 50, 768), np.float32).astype("f2"),
        "packed": (random.standard_normal((200, 1024), np.float32), "Q5_0"),
        "norm": random.standard_normal(64, np.float32),
        "nothing": np.zeros((0, 256), np.float32),
    }
    (tmp_path / "in").mkdir()
    (path,) = ggufkit.save(tmp_path / "in" / "model.gguf", tensors, {"general.name": "example"})
    return path


def as_type(model, kind):
    """Return the model with every matrix as `kind`."""
    return model.replace(
        tensors=[
            retyped(tensor, kind) if len(tensor.shape) > 1 else tensor
            for tensor in model.tensors.values()
        ]
    )


@pytest.fixture
def model(source):
    with ggufkit.open(source) as model:
        yield model


@pytest.fixture
def expected(model, tmp_path):
    """The bytes of each kind, written one by one by threads."""
    (tmp_path / "expected").mkdir()
    paths = {
        kind: ggufkit.write(as_type(model, kind), tmp_path / "expected" / kind)[0] for kind in KINDS
    }
    return {kind: path.read_bytes() for kind, path in paths.items()}


@pytest.fixture
def out(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.fixture
def processes():
    # A forked copy of a process with threads may hang: the children begin afresh.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        yield pool


# Several outputs.


def test_outputs_written_together_match_those_written_alone(model, expected, out):
    paths = ggufkit.write_many([(as_type(model, kind), out / kind) for kind in KINDS])
    assert paths == [[out / kind] for kind in KINDS]
    assert {kind: (out / kind).read_bytes() for kind in KINDS} == expected


def test_source_is_read_once_for_all_outputs(model, out, monkeypatch):
    read = []
    real = MappedFile.read

    def reading(file, offset, nbytes):
        read.append((offset, offset + nbytes))
        return real(file, offset, nbytes)

    monkeypatch.setattr(MappedFile, "read", reading)
    ggufkit.write_many([(as_type(model, kind), out / kind) for kind in KINDS])
    matrices = [t for t in model.tensors.values() if len(t.shape) > 1 and t.nbytes]
    assert sum(stop - start for start, stop in read) == sum(t.nbytes for t in matrices)
    read.sort()
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(read))


@pytest.mark.parametrize("piece", [1, 1 << 11, 1 << 15])
def test_rows_written_in_pieces_give_the_same_bytes(model, expected, out, monkeypatch, piece):
    with ggufkit.open(ggufkit.write(model, out / "big", byte_order="big")[0]) as big:
        whole = ggufkit.write(as_type(big, "F32"), out / "whole")[0].read_bytes()
        monkeypatch.setattr(chunks, "PIECE", piece)
        ggufkit.write_many([(as_type(model, kind), out / kind) for kind in KINDS])
        cut = ggufkit.write(as_type(big, "F32"), out / "cut")[0].read_bytes()
    assert {kind: (out / kind).read_bytes() for kind in KINDS} == expected
    assert cut == whole


def test_progress_counts_all_outputs(model, out):
    seen = []
    pairs = [(as_type(model, kind), out / kind) for kind in KINDS]
    ggufkit.write_many(pairs, progress=lambda *numbers: seen.append(numbers))
    total = sum((out / kind).stat().st_size for kind in KINDS)
    assert seen == sorted(seen)
    assert seen[-1] == (total, total)


def test_writes_shards_of_several_outputs_together(model, expected, out):
    pairs = [(as_type(model, kind), out / f"{kind}.gguf") for kind in KINDS[:2]]
    for kind, paths in zip(KINDS, ggufkit.write_many(pairs, shard_tensors=2), strict=False):
        assert len(paths) == 3
        with ggufkit.open(paths[0]) as shards:
            ggufkit.write(shards.replace(), out / "merged.gguf")  # as if never split
        assert (out / "merged.gguf").read_bytes() == expected[kind]


def test_failure_of_one_output_removes_the_others(model, out, monkeypatch):
    replace = os.replace

    def failing(name, target, **folders):
        if str(target).endswith("Q4_0"):
            raise OSError(errno.EIO, "fault")
        return replace(name, target, **folders)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(OutputError, match="fault"):
        ggufkit.write_many([(as_type(model, kind), out / kind) for kind in KINDS])
    assert names(out) == []


def test_refuses_two_outputs_of_one_name(model, out):
    with pytest.raises(OutputError, match="two outputs are called"):
        ggufkit.write_many([(model, out / "same"), (as_type(model, "Q8_0"), out / "same")])
    assert names(out) == []


def test_refuses_an_output_that_is_the_input_of_another(model, source, out):
    paths = ggufkit.save(out / "other.gguf", {"t": np.zeros(4, "f4")})
    with ggufkit.open(paths[0]) as other, pytest.raises(OutputError, match="is also an input"):
        ggufkit.write_many([(other, out / "new.gguf"), (other, source), (model, paths[0])])
    assert names(out) == ["other.gguf"]


def test_empty_list_of_outputs_writes_nothing():
    assert ggufkit.write_many([]) == []


# Other executors.


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(execute, "AWAY", Sizes(1 << 18, 1 << 18))


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("options", [{}, {"byte_order": "big"}, {"shard_tensors": 2}], ids=str)
def test_worker_processes_write_the_same_file(model, expected, out, processes, options):
    paths = ggufkit.write(as_type(model, "Q6_K"), out / "a.gguf", executor=processes, **options)
    with ggufkit.open(paths[0]) as written:
        plain = {"byte_order": "little"}
        ggufkit.write(written.replace(), out / "b.gguf", executor=processes, **plain)
    assert (out / "b.gguf").read_bytes() == expected["Q6_K"]


@pytest.mark.usefixtures("small_chunks")
def test_worker_processes_copy_unchanged_tensors(model, source, out, processes):
    ggufkit.write(model, out / "copy.gguf", executor=processes)
    assert (out / "copy.gguf").read_bytes() == source.read_bytes()


def test_a_pool_of_threads_can_be_the_executor(model, expected, out):
    with ThreadPoolExecutor(3) as pool:
        ggufkit.write(as_type(model, "Q4_0"), out / "a.gguf", executor=pool)
    assert (out / "a.gguf").read_bytes() == expected["Q4_0"]


class Unpicklable:
    """A source that cannot leave its process."""

    byte_order = "little"
    span = None

    def __reduce__(self):
        raise TypeError("stays")

    def read(self, start, stop):
        return np.full((stop - start, 4), 7, np.uint8)


def test_work_that_cannot_be_pickled_is_done_locally(out, processes, monkeypatch):
    monkeypatch.setattr(execute, "TRAVEL_BYTES", 1 << 16)
    stays = Tensor.over("stays", ggufkit.quants.encodable("I8"), (9, 4), Unpicklable())
    arrays = {"large": np.arange(1 << 17, dtype="f4"), "small": np.arange(8, dtype="f4")}
    for name, options in (("here", {}), ("away", {"executor": processes})):
        ggufkit.save(out / name, {**arrays, "stays": stays}, **options)
    assert (out / "here").read_bytes() == (out / "away").read_bytes()


def test_refuses_an_input_that_differs_on_the_worker(model, source, out, processes):
    content = bytearray(source.read_bytes())
    content[-100] ^= 1
    quantized = as_type(model, "Q8_0")
    source.unlink()  # what is open here stays as it was, what the path names does not
    source.write_bytes(content)
    with pytest.raises(FormatError, match="replaced since the start"):
        ggufkit.write(quantized, out / "a.gguf", executor=processes)
    source.unlink()
    with pytest.raises(FormatError, match="cannot be opened on the machine"):
        ggufkit.write(quantized, out / "a.gguf", executor=processes)
    assert names(out) == []


def test_late_worker_does_not_write_into_a_later_attempt(model, out):
    """A chunk that outlives its job finds another output under the name and does not change it."""
    target = out / "a"
    target.write_bytes(b"first")
    late = Output(target, target.stat().st_ino)
    target.with_name("b").write_bytes(b"second")
    target.with_name("b").replace(target)
    extent = layout(model, "a").files[0].extents[0]
    with pytest.raises(OSError, match="the output was replaced"):
        run(whole((PlacedExtent(0, 0, late, extent),)))
    assert target.read_bytes() == b"second"
