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
from ggufkit.remote.object_file import ObjectFile, signed_url
from ranged_server import Served
from shell import done, ggufkit

obstore = pytest.importorskip("obstore", reason="the wheel is tested without the extra")
pytest.importorskip("moto", reason="the wheel is tested without a server of S3")

DATA = np.random.default_rng(5).integers(0, 256, 3 << 20, np.uint8).tobytes()
FAR = (2 << 20) + 5
FLOOD = 128 << 20  # bytes, of which a client should take few
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
    with pytest.raises(RemoteMissingError, match="models/none does not exist"):
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


def test_a_refusal_of_any_length_costs_little(store):
    server, file = store(lambda handler, _: handler.send(403, bytes(FLOOD)) or True)
    with pytest.raises(RemoteDeniedError, match="answers 403 Forbidden") as caught:
        file.load(1)
    assert "AWS_SECRET_ACCESS_KEY" in caught.value.remedy
    assert server.sent < FLOOD // 2


def test_the_limits_of_servers_hold_for_stores(store):
    def flooded(handler, _):
        place = f"bytes 0-{(2 << 20) - 1}/{len(DATA)}"
        return handler.send(206, bytes(FLOOD), {"Content-Range": place}) or True

    server, file = store(flooded)
    assert file.nbytes == len(DATA)
    assert len(file.data) == 2 << 20
    assert server.sent < FLOOD // 2


def test_redirects_of_a_store_lead_to_servers_only(store):
    location = {"Location": "file:///etc/passwd"}
    _, file = store(lambda handler, _: handler.send(307, b"", location) or True)
    with pytest.raises(RemoteError, match=r"not http\(s\)"):
        file.load(1)


def test_a_redirect_of_a_store_takes_no_keys_along(store):
    with Served({"/models/f": DATA}) as other:
        location = {"Location": other.url("/models/f")}
        server, file = store(lambda handler, _: handler.send(307, b"", location) or True)
        assert file.nbytes == len(DATA)
        assert "X-Amz-Signature" in server.requests[0].path
        assert other.requests[0].path == "/models/f"


def test_a_signature_whose_time_is_up_is_made_again(store):
    paths = []

    def expiring(handler, number):
        paths.append(handler.path)
        return number == 2 and (handler.send(403, b"expired") or True)

    _, file = store(expiring)
    file.url = file.url._replace(target=f"{file.url.target}&old=1")
    file._target = (file.url, file._target[1])
    assert bytes(file.read(FAR, 1000)) == DATA[FAR:][:1000]
    assert ["old=1" in path for path in paths] == [True, True, False]


def test_no_message_shows_a_signature(store):
    _, file = store(lambda handler, _: handler.send(400, b"") or True)
    with pytest.raises(RemoteError) as caught:
        file.load(1)
    for text in (str(caught.value), str(file.path), repr(file.url)):
        assert "Signature" not in text


@pytest.mark.parametrize(
    ("name", "settings", "url"),
    [
        ("s3://b/a b/f", {"AWS_SKIP_SIGNATURE": "true"}, "https://s3.us-east-1.amazonaws.com/b/a%20b/f"),
        ("GS://b/f+", {"GOOGLE_SKIP_SIGNATURE": "1"}, "https://storage.googleapis.com/b/f+"),
        (
            "az://c/f",
            {"AZURE_SKIP_SIGNATURE": "True", "AZURE_STORAGE_ACCOUNT_NAME": "me"},
            "https://me.blob.core.windows.net/c/f",
        ),
    ],
)  # fmt: skip
def test_public_objects_need_no_keys(name, settings, url, monkeypatch):
    for setting, value in settings.items():
        monkeypatch.setenv(setting, value)
    assert signed_url(name).full == url


def test_a_token_of_google_goes_to_google_alone(monkeypatch):
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", "hush")
    file = ObjectFile("gs://b/f")
    assert file.login.header == "Bearer hush"
    assert file.login.origin == file.url.origin == ("https", "storage.googleapis.com", 443)
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    assert ObjectFile("s3://b/f").login is None


def test_an_account_is_signed_for_without_a_request(monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "me")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "aHVzaA==")
    url = signed_url("az://c/f")
    assert url.full.startswith("https://me.blob.core.windows.net/c/f?")
    assert str(url) == "https://me.blob.core.windows.net/c/f"


def test_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(MissingExtraError) as caught:
        ObjectFile("s3://models/f")
    assert caught.value.remedy == "pip install 'ggufkit[remote]'"


def test_release_publishes_its_files_in_a_bucket(bucket, tmp_path):
    from ggufkit.inspection.file_digest import file_digest
    from ggufkit.release.publish import is_same, publisher

    place = publisher("s3://models/release", public=False)
    paths = [tmp_path / "a.gguf", tmp_path / "README.md"]
    paths[0].write_bytes(DATA)
    paths[1].write_text("card")
    names = [path.name for path in paths]
    assert place.digests(names) == {}
    place.put(paths, "Add files")
    assert bytes(obstore.get(bucket, "release/a.gguf").bytes()) == DATA
    digests = place.digests([*names, "absent"])
    assert digests == {path.name: file_digest(path) for path in paths}
    assert all(is_same(digests[path.name], path, file_digest(path)) for path in paths)
