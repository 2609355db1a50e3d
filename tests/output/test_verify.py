"""Copies from a server are checked against the SHA-256 that it tells, before they appear."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

import ggufkit
from ggufkit.errors import RemoteError
from hub_server import HubServer, Repo, at_home
from ranged_server import Served
from shell import done
from shell import ggufkit as run

NAME = "hf://org/big/big-Q8_0.gguf"


def model(folder, **options):
    """Return a file beyond what the first request brings, with tensors that need padding."""
    numbers = np.random.default_rng(3)
    tensors = {f"t{i}": numbers.normal(size=(100 + i, 1001)).astype(np.float32) for i in range(4)}
    return [path.read_bytes() for path in ggufkit.save(folder / "m.gguf", tensors, **options)]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    (whole,) = model(tmp_path)
    shards = model(tmp_path, shard_tensors=2)
    odd = bytearray(whole)
    with ggufkit.open(whole) as opened:
        first = opened.tensors["t0"]
        odd[first.offset + first.nbytes] = 7  # of the padding after it
    files = {
        "big-Q8_0.gguf": whole,
        "odd-Q4_0.gguf": bytes(odd),
        **{f"set-BF16-0000{n}-of-00002.gguf": data for n, data in enumerate(shards, 1)},
    }
    with HubServer({"org/big": Repo(files)}) as server:
        at_home(monkeypatch, tmp_path, server.endpoint)
        yield server


def damage(server):
    """Let a byte of each file change on the way: one of a tensor."""
    for path, data in server.files.items():
        offset = len(data) * 3 // 4
        server.files[path] = data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :]


@pytest.mark.parametrize(
    "name", [NAME, "hf://org/big:Q8_0", "hf://org/big:BF16", "hf://org/big:Q4_0"]
)
@pytest.mark.parametrize(
    "options", [(), ("--shard-tensors", 1), ("--alignment", 64), ("--resume",)]
)
def test_sound_copies_in_any_layout_appear(hub, tmp_path, name, options):
    done("copy", name, "out.gguf", *options)
    output = next(tmp_path.glob("out*.gguf"))
    with ggufkit.open(output) as copied, ggufkit.open(name) as expected:
        for tensor, other in zip(copied.tensors.values(), expected.tensors.values(), strict=True):
            np.testing.assert_array_equal(tensor.raw(), other.raw())


@pytest.mark.parametrize(
    "name", [NAME, "hf://org/big:Q8_0", "hf://org/big:BF16", "hf://org/big:Q4_0"]
)
@pytest.mark.parametrize("options", [(), ("--shard-tensors", 1), ("--resume",)])
def test_of_a_damaged_copy_nothing_stays(hub, tmp_path, name, options):
    damage(hub.cdn)
    before = {path.name for path in tmp_path.iterdir()} | {"cache"}
    result = run("copy", name, "out.gguf", *options)
    assert result.code == 1
    assert "do not have the SHA-256 that the server states" in result.err
    assert {path.name for path in tmp_path.iterdir()} <= before


def test_a_file_that_is_replaced_stays_when_its_copy_is_damaged(hub, tmp_path):
    (tmp_path / "out.gguf").write_bytes(b"mine")
    damage(hub.cdn)
    assert run("copy", NAME, "out.gguf").code == 1
    assert (tmp_path / "out.gguf").read_bytes() == b"mine"


def test_what_leaves_tensors_out_is_not_compared(hub):
    damage(hub.cdn)
    done("select", NAME, "some.gguf", "--keep", "t0")


def test_a_digest_in_the_redirect_or_the_etag_counts(tmp_path, monkeypatch):
    (whole,) = model(tmp_path)
    right, wrong = hashlib.sha256(whole).hexdigest(), "0" * 64
    for digest, code in ((right, 0), (wrong, 1), (wrong[:32], 0), (f"W/{wrong}", 0)):

        def answer(handler, _, digest=digest):
            handler.answer(etag=f'"{digest}"')
            return True

        with Served({"/m.gguf": whole}, fault=answer) as server:
            result = run("copy", server.url("/m.gguf"), tmp_path / "out.gguf")
            assert result.code == code, result.err


def test_a_damaged_copy_is_a_remote_error_in_python(hub, tmp_path):
    hub.digest = "0" * 64
    with ggufkit.open("hf://org/big:Q8_0") as opened, pytest.raises(RemoteError, match="0" * 64):
        ggufkit.write(opened, tmp_path / "out.gguf")
