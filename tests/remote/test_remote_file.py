"""Files on http(s) servers, read by ranges."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import ggufkit
from ggufkit.errors import NoRangesError, RemoteError, RemoteMissingError
from ggufkit.remote import limits
from ggufkit.remote.remote_file import RemoteFile
from ranged_server import Served


@pytest.fixture
def model(tmp_path):
    """A small model, as bytes and as a file."""
    path = tmp_path / "model.gguf"
    tensors = {f"t{n}": np.arange(64, dtype="f4") + n for n in range(8)}
    ggufkit.save(path, tensors, {"general.architecture": "llama"})
    return path


def test_opens_a_model_in_one_request(model):
    with Served({"/model.gguf": model.read_bytes()}) as server:
        with ggufkit.open(server.url("/model.gguf")) as far, ggufkit.open(model) as near:
            assert far.metadata == near.metadata
            assert list(far.tensors) == list(near.tensors)
            assert far.files[0].nbytes == near.files[0].nbytes
            assert (far.tensors["t3"].numpy() == near.tensors["t3"].numpy()).all()
        assert len(server.requests) == 1


def test_reads_exactly_the_bytes_of_a_tensor():
    data = np.random.default_rng(1).integers(0, 256, 5 << 20, np.uint8).tobytes()
    with Served({"/f": data}) as server:
        file = RemoteFile(server.url("/f"))
        assert bytes(file.read(3 << 20, 1000)) == data[3 << 20 :][:1000]
        assert [request.sent for request in server.requests] == [limits.FIRST_BYTES, 1000]


def test_copies_bytes_to_a_descriptor(tmp_path):
    data = np.random.default_rng(1).integers(0, 256, 20 << 20, np.uint8).tobytes()
    with Served({"/f": data}) as server, (tmp_path / "f").open("wb") as target:
        RemoteFile(server.url("/f")).copy(1 << 20, 18 << 20, target.fileno(), 5)
    assert (tmp_path / "f").read_bytes() == bytes(5) + data[1 << 20 :][: 18 << 20]


def test_a_failure_to_write_is_not_taken_for_one_of_the_network(tmp_path):
    (tmp_path / "f").touch()
    with Served({"/f": bytes(3 << 20)}) as server, (tmp_path / "f").open("rb") as unwritable:
        file = RemoteFile(server.url("/f"))
        with pytest.raises(OSError, match="Bad file descriptor") as caught:
            file.copy(0, 3 << 20, unwritable.fileno(), 0)
        assert not isinstance(caught.value, RemoteError)
        assert len(server.requests) == 2


def test_says_what_a_server_lacks(model):
    files = {"/model.gguf": model.read_bytes()}
    with Served(files) as server, pytest.raises(RemoteMissingError, match="404"):
        ggufkit.open(server.url("/other.gguf"))
    with pytest.raises(RemoteError, match="cannot be read"):
        ggufkit.open(server.url("/model.gguf"))


def test_a_server_without_ranges_is_told_so():
    with (
        Served({"/f.gguf": bytes(64 << 20)}, ranges=False) as server,
        pytest.raises(NoRangesError, match="only whole files") as caught,
    ):
        ggufkit.open(server.url("/f.gguf"))
    assert "ggufkit copy http" in caught.value.remedy
    assert sum(request.sent for request in server.requests) < 32 << 20


def test_a_small_file_needs_no_ranges(model):
    with Served({"/m.gguf": model.read_bytes()}, ranges=False) as server:
        assert len(ggufkit.open(server.url("/m.gguf")).tensors) == 8


def test_a_file_can_go_to_another_process(model):
    with Served({"/m.gguf": model.read_bytes()}) as server:
        file = RemoteFile(server.url("/m.gguf"))
        again = pickle.loads(pickle.dumps(file))
        assert again.identity == file.identity
