"""Commands on models at a URL: they print and write what they do for a file on this disk."""

from __future__ import annotations

import os

import numpy as np
import pytest

import ggufkit as api
from ggufkit.remote import limits
from ggufkit.remote.connections import POOL
from ranged_server import Served
from shell import done, ggufkit

WEIGHTS = np.random.default_rng(3).standard_normal((64, 256), "f4")
KEYS = {
    "general.architecture": "llama",
    "general.name": "Tiny",
    "general.size_label": "1M",
    "general.file_type": 0,
    "llama.block_count": 1,
    "llama.context_length": 64,
    "llama.embedding_length": 256,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 4,
    "llama.feed_forward_length": 64,
}
READING = (
    ["inspect"],
    ["inspect", "--json"],
    ["check", "--data"],
    ["estimate"],
    ["plan"],
    ["hash"],
    ["hash", "--sha256", "--sha1"],
    ["name"],
    ["diff", "MODEL"],
)


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "tiny-v1.0-F32.gguf"
    names = ("token_embd.weight", "blk.0.attn_q.weight", "blk.0.ffn_up.weight", "output.weight")
    api.save(path, dict.fromkeys(names, WEIGHTS), KEYS)
    return path


@pytest.fixture
def server(model):
    with Served({f"/m/{model.name}": model.read_bytes()}) as served:
        yield served


@pytest.fixture
def url(server, model):
    return server.url(f"/m/{model.name}")


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_a_command_reads_a_url_as_it_reads_a_file(command, model, url):
    def printed(name):
        verb, *rest = (name if word == "MODEL" else word for word in command)
        result = ggufkit(verb, name, *rest)
        return result.code, result.out.replace(name, "MODEL"), result.err

    near, far = printed(str(model)), printed(url)
    assert far == near
    assert near[0] == 0


def test_copy_downloads_the_same_bytes(model, url, tmp_path):
    done("copy", url, tmp_path / "out.gguf")
    assert (tmp_path / "out.gguf").read_bytes() == model.read_bytes()
    done("copy", url, tmp_path / "again.gguf", "--resume")
    assert (tmp_path / "again.gguf").read_bytes() == model.read_bytes()


def test_a_copy_of_many_tensors_takes_few_requests(tmp_path):
    path = tmp_path / "many.gguf"
    tensors = {f"t{n}": np.full((1 << 12,), n, "f4") for n in range(500)}
    api.save(path, tensors, {"general.architecture": "llama"})
    with Served({"/many.gguf": path.read_bytes()}) as server:
        api.write(api.open(server.url("/many.gguf")), tmp_path / "out.gguf")
        assert (tmp_path / "out.gguf").read_bytes() == path.read_bytes()
        assert len(server.requests) == 2
        assert server.sent < path.stat().st_size + limits.FIRST_BYTES
        server.forget()
        few = api.select(api.open(server.url("/many.gguf")), keep=["t400", "t401", "t450"])
        api.write(few, tmp_path / "few.gguf")
        assert len(server.requests) == 3
        assert {request.sent for request in server.requests[1:]} <= {1 << 14, 2 << 14}


def test_quantize_and_select_write_the_same_bytes(model, url, tmp_path):
    for verb, options in (("quantize", ["Q8_0"]), ("select", ["--drop", "blk.*"])):
        for name, source in (("near", model), ("far", url)):
            done(verb, source, tmp_path / f"{name}.gguf", *options)
        assert (tmp_path / "near.gguf").read_bytes() == (tmp_path / "far.gguf").read_bytes()


def test_a_server_without_ranges_is_downloaded_by_copy(model, tmp_path):
    data = model.read_bytes() + bytes(limits.FIRST_BYTES)
    out = tmp_path / "out.gguf"
    with Served({"/m.gguf": data, "/page": b"<html>" + data}, ranges=False) as server:
        refused = ggufkit("inspect", server.url("/m.gguf"))
        assert refused.code == 1
        assert f"ggufkit copy {server.url('/m.gguf')} m.gguf" in refused.err
        done("copy", server.url("/m.gguf"), out)
        assert out.read_bytes() == data
        page = ggufkit("copy", server.url("/page"), tmp_path / "page.gguf")
        assert page.code == 1
        assert "HTML" in page.err
    assert {file.name for file in tmp_path.iterdir()} == {model.name, "out.gguf"}


def test_a_copy_goes_on_after_the_server_was_gone(tmp_path):
    path, out = tmp_path / "big.gguf", tmp_path / "out.gguf"
    tensors = {f"t{n}": np.full((1 << 20,), n, "f4") for n in range(16)}
    api.save(path, tensors, {"general.architecture": "llama"})
    data = path.read_bytes()

    def unavailable(handler, number):
        if number <= 6:
            return False
        handler.close_connection = True
        return True

    with Served({"/big.gguf": data}, fault=unavailable) as server:
        model = api.open(server.url("/big.gguf"))
        with pytest.raises(OSError, match="cannot be read"):
            api.write(model, out, resume=True, threads=1)
        assert not out.exists()
        server.fault = None
        server.forget()
        api.write(model, out, resume=True, threads=1)
        assert out.read_bytes() == data
        assert server.sent < len(data) * 3 // 4


def test_what_needs_this_disk_says_so(url, tmp_path):
    for command in (
        ["edit", url, "--set", "general.name=x"],
        ["edit", url, "--undo"],
        ["recover", url],
        ["copy", tmp_path / "m.gguf", url],
        ["name", url, "--rename"],
    ):
        refused = ggufkit(*command)
        assert refused.code == 1, command
        assert "Traceback" not in refused.err


def test_shards_are_fetched_at_the_same_time(model, tmp_path):
    (tmp_path / "set").mkdir()
    api.write(api.open(model), tmp_path / "set" / "m.gguf", shard_tensors=1)
    files = {f"/{path.name}": path.read_bytes() for path in (tmp_path / "set").iterdir()}
    names = sorted(files)
    with Served(files) as server:
        with api.open(server.url(names[2])) as far, api.open(model) as near:
            assert far.metadata == near.metadata
            assert list(far.tensors) == list(near.tensors)
            assert len(server.requests) == len(files)
            assert (far.tensors["output.weight"].numpy() == WEIGHTS).all()
        assert len(api.open(server.url(names[1]), shards=False).tensors) == 1
        near = {
            (finding.rule, finding.offset) for finding in api.check(tmp_path / "set" / names[0][1:])
        }
        assert {
            (finding.rule, finding.offset) for finding in api.check(server.url(names[0]))
        } == near
        lost = files.pop(names[1])
        assert lost
        with pytest.raises(api.errors.ShardError, match="1 of the 4 shards"):
            api.open(server.url(names[0]))
        part = api.open(server.url(names[0]), partial=True)
        assert (len(part.tensors), len(part.missing)) == (3, 1)


def test_proxies_and_their_exceptions_are_those_of_the_environment(model, monkeypatch):
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    with Served({}) as proxy:
        proxy.files["http://models.example/m.gguf"] = model.read_bytes()
        monkeypatch.setenv("http_proxy", proxy.url("").replace("//", "//me:hush@"))
        assert len(api.open("http://models.example/m.gguf").tensors) == 4
        headers = proxy.requests[0].headers
        assert headers["host"] == "models.example"
        assert headers["proxy-authorization"].startswith("Basic ")
        monkeypatch.setenv("no_proxy", "models.example")
        POOL.close()
        with pytest.raises(api.errors.RemoteError, match="unknown"):
            api.open("http://models.example/m.gguf")
