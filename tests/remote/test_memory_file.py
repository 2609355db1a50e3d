"""Models from bytes in memory and from file objects."""

from __future__ import annotations

import io
import mmap
import os
import pickle
import zipfile

import fsspec
import numpy as np
import pytest

import ggufkit
from ggufkit.errors import ClosedError, FormatError, NotGGUFError, ShardError, ValueTypeError
from small_llama import keys, tensors


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    return ggufkit.save(folder / "model.gguf", tensors(), keys())[0]


@pytest.fixture
def content(path):
    return path.read_bytes()


def in_fsspec(data):
    files = fsspec.filesystem("memory")
    files.pipe("/hub-test/model.gguf", data)
    return files.open("/hub-test/model.gguf", "rb")


def in_zip(data):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("model.gguf", data)
    return zipfile.ZipFile(stream).open("model.gguf")


def mapped(data):
    memory = mmap.mmap(-1, len(data))
    memory[:] = data
    return memory


FORMS = {
    "bytes": bytes,
    "bytearray": bytearray,
    "memoryview": memoryview,
    "slice": lambda data: memoryview(b"x" + data)[1:],
    "array": lambda data: np.frombuffer(data, np.uint8),
    "mmap": mapped,
    "BytesIO": io.BytesIO,
    "buffered": lambda data: io.BufferedReader(io.BytesIO(data)),
    "fsspec": in_fsspec,
    "zip": in_zip,
}


@pytest.mark.parametrize("form", FORMS)
def test_content_opens_as_its_file_does(form, path, content, tmp_path):
    with ggufkit.open(path) as expected, ggufkit.open(FORMS[form](content)) as model:
        assert dict(model.metadata).keys() == dict(expected.metadata).keys()
        assert list(model.tensors) == list(expected.tensors)
        for name, tensor in model.tensors.items():
            np.testing.assert_array_equal(tensor.numpy(), expected.tensors[name].numpy())
            assert tensor.offset == expected.tensors[name].offset
        (written,) = ggufkit.write(model, tmp_path / "out.gguf")
    assert written.read_bytes() == content


def test_a_file_on_disk_opens_as_a_file_object_and_stays_open(path, content):
    with path.open("rb") as file:
        file.seek(100)
        with ggufkit.open(file) as model:
            assert str(model.files[0].path) == f"<{path}>"
            last = list(model.tensors.values())[-1]
            last.numpy()
            assert file.tell() == 100
        assert not file.closed
        assert file.read(4) == content[100:104]


def test_bytes_are_not_copied(content):
    with ggufkit.open(content) as model:
        array = list(model.tensors.values())[-1].raw()
        assert np.shares_memory(array, np.frombuffer(content, np.uint8))
        assert not array.flags.writeable


def test_only_ranges_of_a_file_object_are_read(content):
    counted = Counted(content + bytes(50 << 20))
    with ggufkit.open(counted) as model:
        first = next(iter(model.tensors.values()))
        first.numpy()
    assert counted.nbytes < 4 << 20


class Counted(io.BytesIO):
    nbytes = 0

    def read(self, size=-1):
        data = super().read(size)
        self.nbytes += len(data)
        return data


def test_a_path_of_bytes_is_a_path(path, content, tmp_path, monkeypatch):
    with ggufkit.open(os.fsencode(path)) as model:
        assert model.files[0].path == path
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError):
        ggufkit.open(b"missing.gguf")
    with pytest.raises(FileNotFoundError):
        ggufkit.open(b"")
    (tmp_path / "GGUF").write_bytes(content)
    with ggufkit.open(b"GGUF") as model:
        assert model.tensors


def test_a_cut_beginning_in_memory_opens_partially(content):
    with ggufkit.open(content[:1000], partial=True) as model:
        assert model.metadata["general.architecture"] == "llama"
        assert model.missing
    with pytest.raises(FormatError, match="<bytes>"):
        ggufkit.open(content[:1000])


def test_content_that_is_no_model_is_named(content):
    with pytest.raises(NotGGUFError, match="web page"):
        ggufkit.open(bytearray(b"<!doctype html><html></html>"))
    with pytest.raises(NotGGUFError, match="zeros"):
        ggufkit.open(bytes(100))
    with pytest.raises(NotGGUFError, match="empty"):
        ggufkit.open(io.BytesIO())


def test_one_shard_in_memory_is_a_shard_alone(path, tmp_path):
    with ggufkit.open(path) as model:
        first, *_ = ggufkit.write(model, tmp_path / "s.gguf", shard_tensors=6)
    with pytest.raises(ShardError):
        ggufkit.open(first.read_bytes())
    with ggufkit.open(first.read_bytes(), shards=False) as model:
        assert len(model.tensors) == 6


def closed_file():
    stream = io.BytesIO(b"GGUF")
    stream.close()
    return stream


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (lambda: io.StringIO("GGUF"), "not binary and seekable"),
        (lambda: os.fdopen(os.pipe()[0], "rb"), "not binary and seekable"),
        (closed_file, "cannot be read"),
        (lambda: memoryview(bytes(8))[::2], "not contiguous"),
    ],
)
def test_objects_that_cannot_be_read_anywhere_are_refused(form, message):
    source = form()
    with pytest.raises(ValueTypeError, match=message):
        ggufkit.open(source)
    if hasattr(source, "close"):
        source.close()


def test_a_file_object_that_changes_is_noticed(content):
    file = io.BytesIO(content + bytes(2 << 20))
    with ggufkit.open(file) as model:
        last = list(model.tensors.values())[-1]
        file.truncate(len(content) + 100)
        model.inputs[0].data = model.inputs[0].data[:1000]
        with pytest.raises(FormatError, match="changed while it was in use"):
            last.numpy()


def test_after_close_nothing_is_read(content):
    with ggufkit.open(bytearray(content)) as model:
        tensor = next(iter(model.tensors.values()))
        array = tensor.numpy().copy()
        values = tensor.numpy()
    with pytest.raises(ClosedError):
        tensor.numpy()
    np.testing.assert_array_equal(values, array)


def test_a_model_of_bytes_travels_to_other_processes(content):
    with ggufkit.open(content) as model:
        tensor = next(iter(model.tensors.values()))
        source = pickle.loads(pickle.dumps(tensor.source))
        np.testing.assert_array_equal(source.read(0, 1), tensor.source.read(0, 1))
