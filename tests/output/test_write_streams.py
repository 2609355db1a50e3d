"""Progress grows to the total, and a stream gets the bytes of the file in order."""

from __future__ import annotations

import io
import os
import socket
import threading

import numpy as np
import pytest

import ggufkit
from ggufkit.errors import (
    OutputError,
)
from ggufkit.format.metadata import Metadata
from ggufkit.models.model import Model, Tensors
from ggufkit.models.sources import from_array
from ggufkit.output import execute
from ggufkit.output.chunks import Sizes
from spelled import SpelledTensor, Spelling
from written import (
    FORMS,
    example,
    names,
    posix,
    write_example,
)


@pytest.fixture
def model(tmp_path_factory):
    with ggufkit.open(write_example(tmp_path_factory.mktemp("input"))) as model:
        yield model


# Progress.


@pytest.mark.parametrize("form", [*FORMS, {"threads": 1}], ids=str)
def test_progress_grows_to_the_total(model, tmp_path, monkeypatch, form):
    monkeypatch.setattr(execute, "HERE", Sizes(5000, 5000))
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


def test_progress_of_an_empty_model_ends_too(tmp_path):
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


def test_writes_the_whole_file_to_a_slowly_read_pipe(model):
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


def test_writes_all_bytes_to_an_unbuffered_stream(model):
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
def test_refuses_a_nonblocking_stream():
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    large = Model(Metadata(), Tensors([from_array("t", np.zeros(1 << 22, "f4"))]))
    with ours, theirs, ours.makefile("wb", buffering=0) as stream, pytest.raises(OutputError):
        ggufkit.write(large, stream)


@posix
def test_closed_reader_gives_a_broken_pipe_error(model):
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
    expected = Spelling().file([("a", ("uint32", 1))], [SpelledTensor("t", (2,), 0, bytes(8))])
    assert stream.getvalue() == expected
