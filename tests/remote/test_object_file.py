"""Files in object stores, with moto's server as S3."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import numpy as np
import pytest

import ggufkit as api
from ggufkit.errors import (
    FormatError,
    MissingExtraError,
    RemoteDeniedError,
    RemoteError,
    RemoteMissingError,
)
from ggufkit.remote import limits
from ggufkit.remote.object_file import ObjectFile
from ranged_server import Served
from shell import done, ggufkit

obstore = pytest.importorskip("obstore", reason="the wheel is tested without the extra")
pytest.importorskip("moto", reason="the wheel is tested without a server of S3")

DATA = np.random.default_rng(5).integers(0, 256, 3 << 20, np.uint8).tobytes()
FAR = (2 << 20) + 5
FLOOD = 128 << 20  # bytes, of which a client should take few
STATE = {"ETag": '"x"', "Last-Modified": "Tue, 24 Nov 2020 00:00:00 GMT"}
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
    for part in tmp_path.glob("set-*"):
        bucket.put(part.name, part.read_bytes())
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


@pytest.fixture
def store(monkeypatch):
    """Let a server on loopback be the store of S3, which answers as `fault` does."""

    def start(fault):
        server = opened.enter_context(Served({"/models/f": DATA}, fault=fault))
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url(""))
        return server, ObjectFile("s3://models/f")

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "me")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with contextlib.ExitStack() as opened:
        yield start


def ranged(body, *, length=None):
    """Return an answer to a request for a range: `body` in its place."""

    def answer(handler, _):
        start, stop = map(int, handler.headers["Range"].removeprefix("bytes=").split("-"))
        place = f"bytes {start}-{min(stop, len(DATA) - 1)}/{len(DATA)}"
        handler.send(206, body(start, stop + 1), {**STATE, "Content-Range": place}, length=length)
        return True

    return answer


def test_a_store_that_sends_more_than_requested_is_an_error(store):
    server, file = store(ranged(lambda _start, _stop: bytes(FLOOD)))
    with pytest.raises(RemoteError, match="other bytes than those asked for"):
        file.load(1)
    assert server.sent < FLOOD // 2


def test_a_store_that_sends_more_than_requested_later_is_an_error(store):
    server, file = store(ranged(lambda start, stop: DATA[:stop] if not start else bytes(FLOOD)))
    assert file.nbytes == len(DATA)
    with pytest.raises(RemoteError, match="other bytes than those asked for"):
        file.read(FAR, 1000)
    assert server.sent < FLOOD // 2 + len(DATA)


def test_a_store_that_sends_less_than_requested_is_an_error(store):
    _, file = store(ranged(lambda start, stop: DATA[start : stop - 5]))
    with pytest.raises(RemoteError, match="too little"):
        file.load(1)


def test_a_body_that_breaks_off_is_an_error(store, monkeypatch):
    monkeypatch.setattr(limits, "TRIES", 1)
    _, file = store(ranged(lambda start, _stop: DATA[start : start + 9], length=len(DATA)))
    with pytest.raises(RemoteError, match="cannot be read"):
        file.load(1)


def test_a_store_that_denies_the_ranges_of_a_file_is_not_read_whole(store):
    def denied(handler, _):
        if "Range" in handler.headers:
            return handler.send(416, b"<Code>InvalidRange</Code>") or True
        return handler.send(200, bytes(FLOOD), STATE) or True

    server, file = store(denied)
    with pytest.raises(RemoteError, match="other bytes than those asked for"):
        file.load(1)
    assert server.sent < 1000


def test_the_error_for_a_long_refusal_is_short(store):
    _, file = store(lambda handler, _: handler.send(403, b"x" * (1 << 20)) or True)
    with pytest.raises(RemoteDeniedError) as caught:
        file.load(1)
    assert len(str(caught.value)) < 3000


def test_a_redirect_of_a_store_takes_no_keys_along(store):
    with Served({"/models/f": DATA}, fault=ranged(lambda start, stop: DATA[start:stop])) as other:
        location = {"Location": other.url("/models/f")}
        server, file = store(lambda handler, _: handler.send(307, b"", location) or True)
        assert file.nbytes == len(DATA)
        assert "authorization" in server.requests[0].headers
        assert "authorization" not in other.requests[0].headers


def test_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(MissingExtraError) as caught:
        ObjectFile("s3://models/f")
    assert caught.value.remedy == "pip install 'ggufkit[remote]'"
