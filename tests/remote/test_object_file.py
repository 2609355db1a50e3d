"""Files in object stores, with moto's server as S3."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import ggufkit as api
from ggufkit.errors import FormatError, MissingExtraError, RemoteError, RemoteMissingError
from ggufkit.remote.object_file import ObjectFile
from shell import done, ggufkit

obstore = pytest.importorskip("obstore", reason="the wheel is tested without the extra")
pytest.importorskip("moto", reason="the wheel is tested without a server of S3")

DATA = np.random.default_rng(5).integers(0, 256, 3 << 20, np.uint8).tobytes()
FAR = (2 << 20) + 5
SERVE = """
import sys, time
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
server.stop()
"""


@pytest.fixture(scope="module")
def port():
    """The port of an S3 server that ends with the tests of this module."""
    command = [sys.executable, "-W", "ignore", "-c", SERVE]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        yield int(process.stdout.readline())
        process.stdin.close()


@pytest.fixture
def bucket(port, monkeypatch):
    """A bucket that the environment gives access to."""
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "me",
        "AWS_SECRET_ACCESS_KEY": "hush",
        "AWS_REGION": "us-east-1",
        "NO_PROXY": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    import urllib.request

    url = f"http://127.0.0.1:{port}/models"
    request = urllib.request.Request(url, method="PUT")
    with urllib.request.urlopen(request):  # noqa: S310 (loopback)
        yield obstore.store.from_url("s3://models", client_options={"allow_http": True})


def test_reads_ranges_of_an_object(bucket):
    bucket.put("folder/f", DATA)
    file = ObjectFile("s3://models/folder/f")
    assert file.nbytes == len(DATA)
    assert file.data == DATA[: 2 << 20]
    assert bytes(file.read(FAR, 1000)) == DATA[FAR:][:1000]
    assert str(file.path) == "s3://models/folder/f"


def test_commands_open_objects(bucket, tmp_path):
    path = tmp_path / "m.gguf"
    tensors = {f"t{n}": np.full((64,), n, "f4") for n in range(4)}
    api.save(path, tensors, {"general.architecture": "llama"})
    bucket.put("m.gguf", path.read_bytes())
    assert "llama" in done("inspect", "s3://models/m.gguf").out
    done("copy", "s3://models/m.gguf", tmp_path / "out.gguf")
    assert (tmp_path / "out.gguf").read_bytes() == path.read_bytes()
    api.write(api.open(path), tmp_path / "set.gguf", shard_tensors=2)
    for each in tmp_path.glob("set-*"):
        bucket.put(each.name, each.read_bytes())
    assert len(api.open("s3://models/set-00002-of-00002.gguf").tensors) == 4


def test_an_object_that_changes_is_noticed(bucket):
    bucket.put("f", DATA)
    file = ObjectFile("s3://models/f")
    assert file.nbytes == len(DATA)
    bucket.put("f", DATA[::-1])
    with pytest.raises(FormatError, match="changed while it was in use"):
        file.read(FAR, 10)


def test_says_what_is_wrong(bucket):
    bucket.put("empty", b"")
    assert ObjectFile("s3://models/empty").nbytes == 0
    with pytest.raises(RemoteMissingError, match="s3://models/none does not exist"):
        ObjectFile("s3://models/none").load(1)
    with pytest.raises(RemoteMissingError):
        ObjectFile("s3://nowhere/none").load(1)
    for name in ("s3://", "s3:///x", "s3://models/"):
        with pytest.raises(RemoteError):
            ObjectFile(name).load(1)
    assert ggufkit("inspect", "s3://models/none").code == 1


def test_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(MissingExtraError) as caught:
        ObjectFile("s3://models/f")
    assert caught.value.remedy == "pip install 'ggufkit[remote]'"
