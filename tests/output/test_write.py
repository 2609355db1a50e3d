"""Every way of writing a model gives the same bytes and keeps the inputs unchanged."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys

import numpy as np
import pytest

import ggufkit
from ggufkit.errors import (
    ClosedError,
    FormatError,
    OutputError,
    ShapeError,
    TensorTypeError,
    ValueTypeError,
)
from ggufkit.format.metadata import Metadata
from ggufkit.format.types import SPLIT_KEYS
from ggufkit.models.model import Model, Tensors, as_ggml_counts
from ggufkit.output import chunks, execute
from ggufkit.output import write as writing
from ggufkit.output.chunks import Sizes
from ggufkit.system import descriptors
from spelled import SpelledTensor, Spelling
from written import (
    FORMS,
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
def test_every_way_of_writing_gives_the_same_bytes(
    model, tmp_path, monkeypatch, way, threads, chunk
):
    for name, value in WAYS[way].items():
        monkeypatch.setattr(descriptors, name, value)
    if chunk:
        monkeypatch.setattr(execute, "HERE", Sizes(chunk, 2 * chunk))
        monkeypatch.setattr(chunks, "PIECE", chunk)
    ggufkit.write(model, tmp_path / "out.gguf", threads=threads)
    assert (tmp_path / "out.gguf").read_bytes() == example()
    ggufkit.write(model, tmp_path / "big.gguf", threads=threads, byte_order="big")
    with ggufkit.open(tmp_path / "big.gguf") as swapped:
        ggufkit.write(swapped, tmp_path / "out.gguf", threads=threads, byte_order="little")
    assert (tmp_path / "out.gguf").read_bytes() == example()
    assert names(tmp_path) == ["big.gguf", "out.gguf"]


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_round_trip_gives_the_same_bytes(tmp_path, form, seed):
    (tmp_path / "in.gguf").write_bytes(example(seed))
    with ggufkit.open(tmp_path / "in.gguf") as model:
        paths = ggufkit.write(model, tmp_path / "there.gguf", **form)
        again = ggufkit.write(model, tmp_path / "again.gguf", **form)
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in again]
    with ggufkit.open(paths[-1]) as there:
        back = there.replace(metadata=there.metadata.without("general.alignment", missing_ok=True))
        ggufkit.write(back, tmp_path / "back.gguf", version=3, byte_order="little")
    if len(paths) == 1:
        assert (tmp_path / "back.gguf").read_bytes() == example(seed)
        return
    # As llama-gguf-split does, merging leaves the keys of shards, and drops leading axes of 1.
    with (
        ggufkit.open(tmp_path / "in.gguf") as model,
        ggufkit.open(tmp_path / "back.gguf") as merged,
    ):
        whole = merged.replace(metadata=merged.metadata.without(*SPLIT_KEYS, missing_ok=True))
        expected = model.replace(
            tensors=[as_ggml_counts(tensor) for tensor in model.tensors.values()]
        )
        ggufkit.write(whole, tmp_path / "whole.gguf")
        ggufkit.write(expected, tmp_path / "wanted.gguf")
    assert (tmp_path / "whole.gguf").read_bytes() == (tmp_path / "wanted.gguf").read_bytes()


@pytest.mark.parametrize("end", [b"", b"\0" * 4])
def test_rewrites_a_file_without_end_padding_unchanged(tmp_path, end):
    whole = Spelling().file([("a", ("uint8", 1))], [SpelledTensor("t", (3,), 0, b"\x07" * 12)])
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
    pairs, infos = [("a", ("string", "x"))], [SpelledTensor("t", (3,), 0, bytes(12))]
    (tmp_path / "in.gguf").write_bytes(Spelling(1, "little").file(pairs, infos))
    with ggufkit.open(tmp_path / "in.gguf") as model:
        ggufkit.write(model, tmp_path / "out.gguf")
    assert (tmp_path / "out.gguf").read_bytes() == Spelling(3, "little").file(pairs, infos)


def test_does_not_copy_gaps_and_order_of_the_input(tmp_path):
    """Input tensors may have gaps and any order; the output is packed in order."""
    infos = [SpelledTensor("a", (3,), 0, b"\x01" * 12), SpelledTensor("b", (3,), 0, b"\x02" * 12)]
    content = bytearray(Spelling().file([], infos) + b"\x03" * 64)
    first, second = (content.index(info.name.encode()) + 17 for info in infos)
    content[first : first + 8] = (96).to_bytes(8, "little")
    assert content[second : second + 8] == (32).to_bytes(8, "little")
    (tmp_path / "in.gguf").write_bytes(content)
    with ggufkit.open(tmp_path / "in.gguf") as model:
        ggufkit.write(model, tmp_path / "out.gguf")
        data = [tensor.raw().tobytes() for tensor in model.tensors.values()]
    expected = [info._replace(data=data) for info, data in zip(infos, data, strict=True)]
    assert data == [b"\x03" * 12, b"\x02" * 12]
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


def test_writes_a_relative_path_in_the_current_folder(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ggufkit.write(model, "out.gguf")
    assert names(tmp_path) == ["out.gguf"]


# Save.


def test_saved_arrays_are_read_back(tmp_path):
    big = np.random.default_rng(0).standard_normal((300, 64)).astype("f4")
    tensors = {
        "plain": big,
        "transposed": big.T,
        "Fortran": np.asfortranarray(big),
        "big": big.astype(">f8"),
        "pair": (big, "Q8_0"),
        "packed": ggufkit.packed(ggufkit.quants.quantize(big, "Q4_0"), "Q4_0"),
        "nothing": np.zeros((0, 4), np.int8),
        "scalar": np.float64(2.5),
        "list": [[1.0, 2.0], [3.0, 4.0]],
    }
    ggufkit.save(tmp_path / "out.gguf", tensors)
    with ggufkit.open(tmp_path / "out.gguf") as model:
        assert list(model.tensors) == list(tensors)
        arrays = {name: tensor.numpy() for name, tensor in model.tensors.items()}
        types = {name: str(tensor.type) for name, tensor in model.tensors.items()}
        ggufkit.save(tmp_path / "again.gguf", {"renamed": model.tensors["pair"]})
    for name in ("plain", "transposed", "Fortran", "big", "nothing", "scalar", "list"):
        np.testing.assert_array_equal(arrays[name], tensors[name])
    assert types["pair"] == "Q8_0"
    assert types["list"] == "F64"
    np.testing.assert_array_equal(
        arrays["packed"], ggufkit.quants.dequantize(tensors["packed"].raw(), "Q4_0")
    )
    with ggufkit.open(tmp_path / "again.gguf") as model:
        np.testing.assert_array_equal(model.tensors["renamed"].numpy(), arrays["pair"])


def test_writes_an_empty_model(tmp_path):
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
        (np.zeros((1, 1, 1, 1, 2), np.float32), ShapeError),
    ],
    ids=str,
)
def test_refuses_a_value_that_is_not_a_tensor(tmp_path, value, error):
    with pytest.raises(error, match=r"tensor|type"):
        ggufkit.save(tmp_path / "out.gguf", {"t": value})
    assert names(tmp_path) == []


def test_number_that_does_not_fit_leaves_no_file(tmp_path):
    with pytest.raises(ValueTypeError, match="does not hold 300"):
        ggufkit.save(tmp_path / "out.gguf", {"t": (np.array([300]), "I8")})
    assert names(tmp_path) == []


# Replacing.


def test_existing_file_is_replaced_atomically(model, tmp_path):
    path = tmp_path / "out.gguf"
    ggufkit.save(path, {"old": np.zeros(4, "f4")})
    with ggufkit.open(path) as old:
        tensor = old.tensors["old"]
        ggufkit.write(model, path)
        assert tensor.numpy().tolist() == [0, 0, 0, 0]
        assert tensor.source.read(0, 1).tobytes() == bytes(16)
    assert path.read_bytes() == example()


def test_reader_never_sees_a_partial_file(tmp_path):
    path = tmp_path / "out.gguf"
    path.write_bytes(example())
    running = Writing(path)
    assert path.read_bytes() == example()
    assert names(tmp_path) == [LEFTOVER, "out.gguf"]
    assert running.finish() is None
    assert path.read_bytes() != example()
    assert {finding.rule for finding in ggufkit.check(path)} == {"architecture-missing"}
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
def test_replaces_a_link_and_keeps_its_target(model, tmp_path, there):
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


def own_name(path, kind):
    """Return a name of a file; make the link if it is one."""
    if kind == "its own":
        return path
    link = path.with_name("link.gguf")
    if kind == "a link":
        link.symlink_to(path)
    else:
        os.link(path, link)
    return link


@posix
@pytest.mark.parametrize("name", ["its own", "a link", "a hard link"])
def test_refuses_an_output_that_is_an_input(model, name):
    source = model.files[0].path
    target = own_name(source, name)
    second = Model(Metadata(), Tensors([model.tensors["t0"]]))
    for changed in (model, model.replace(tensors=[]), second):
        with pytest.raises(OutputError, match="is also an input"):
            ggufkit.write(changed, target)
    with pytest.raises(OutputError, match="is also an input"):
        ggufkit.save(target, {"t": model.tensors["t0"]})
    assert source.read_bytes() == example()


def test_refuses_a_shard_that_is_an_input(tmp_path):
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
def test_notices_an_input_that_changes(model, tmp_path, monkeypatch, change, options, way):
    for name, value in WAYS[way].items():
        monkeypatch.setattr(descriptors, name, value)
    plan = writing.layout(model, "out.gguf", **options)
    CHANGES[change](model.files[0].path)
    for write in (
        lambda: execute.execute_all([execute.Order(plan, tmp_path)]),
        lambda: writing.stream(plan, io.BytesIO()),
    ):
        with pytest.raises(FormatError, match="changed while it was in use"):
            write()
    assert names(tmp_path) == []


@posix
def test_writes_a_replaced_input_as_it_was_opened(model, tmp_path):
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
        from ggufkit.models.sources import retyped
        model = model.replace(tensors=[retyped(t, "F16") for t in model.tensors.values()])
    ggufkit.write(model, sys.argv[2], threads=2, **options)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="measures as Linux does")
@pytest.mark.parametrize("how", ["copied", "made", "quantized", "stream"])
@pytest.mark.parametrize("dims", [(4096, 1 << 14), (1 << 26,)], ids=["matrix", "one row"])
def test_memory_does_not_grow_with_the_model(tmp_path, how, dims):
    head = Spelling().file([], [SpelledTensor("t", dims, 0, b"")])
    (tmp_path / "in.gguf").write_bytes(head)
    os.truncate(tmp_path / "in.gguf", len(head) + (1 << 28))
    command = [sys.executable, "-c", MEASURE, *(str(tmp_path / n) for n in ("in.gguf", "out.gguf"))]
    done = subprocess.run([*command, how], check=True, capture_output=True, text=True)
    assert (tmp_path / "out.gguf").stat().st_size >= 1 << 27
    assert int(done.stdout) < 80
