"""Conversion of a checkpoint on the Hub: the same bytes as from a folder, and little is fetched."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path

import numpy as np
import pytest

import ggufkit
import mistral_folders
from ggufkit.errors import CheckpointError, RemoteError, RemoteMissingError
from ggufkit.remote import limits
from hub_server import COMMIT, HubServer, Repo, at_home
from plain_checkpoint import ARCH, CONFIG, layer, whole
from shell import done
from shell import ggufkit as run
from tensors_file import safetensors_bytes

CARD = b"---\nlicense: mit\n---\n"
PICTURE = bytes(100_000)


@functools.cache  # both conversions get the same numbers
def checkpoint():
    """Files of a repository in two files of tensors, with an index."""
    tensors = whole()
    parts = [dict(list(tensors.items())[:9]), dict(list(tensors.items())[9:])]
    names = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    homes = {key: name for name, part in zip(names, parts, strict=True) for key in part}
    files = {name: safetensors_bytes(part) for name, part in zip(names, parts, strict=True)}
    small = {
        "config.json": json.dumps(CONFIG).encode(),
        "model.safetensors.index.json": json.dumps({"weight_map": homes}).encode(),
        "README.md": CARD,
    }
    return small | files | {"picture.png": PICTURE, "onnx/model.bin": PICTURE}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    files = checkpoint()
    monkeypatch.setattr(limits, "FIRST_WAIT", 0.001)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    (tmp_path / "temporary").mkdir()
    (tmp_path / "arch").mkdir()
    (tmp_path / "arch" / "plain.toml").write_text(ARCH)
    cut = dict(files)
    cut["model-00002-of-00002.safetensors"] = files["model-00002-of-00002.safetensors"][:-8]
    repos = {
        "org/Plain-1B": Repo(files),
        "org/below": Repo({f"base/{path}": data for path, data in files.items()}),
        "org/pickled": Repo({"config.json": b"{}", "pytorch_model.bin": PICTURE}),
        "org/broken": Repo(files | {"config.json": b"[1]"}),
        "org/cut": Repo(cut),
    }
    with HubServer(repos) as server:
        at_home(monkeypatch, tmp_path, server.endpoint)
        yield server
    assert not list((tmp_path / "temporary").iterdir())


@pytest.fixture
def local(tmp_path):
    """The bytes of the model converted from a folder of the cache."""
    folder = tmp_path / "models--org--Plain-1B" / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    for path, data in checkpoint().items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(data)
    with ggufkit.convert(folder, arch_path=[tmp_path / "arch"]) as model:
        (path,) = ggufkit.write(model, tmp_path / "local.gguf")
    return path.read_bytes()


def converted(name, out, tmp_path, **options):
    with ggufkit.convert(name, arch_path=[tmp_path / "arch"]) as model:
        (path,) = ggufkit.write(model, out, **options)
    return path.read_bytes()


def test_the_bytes_are_those_from_a_folder(hub, local, tmp_path):
    assert converted("hf://org/Plain-1B", tmp_path / "m.gguf", tmp_path) == local
    names = {request.path.partition("?name=")[2].partition("&")[0] for request in hub.cdn.requests}
    assert names == {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}
    assert hub.cdn.sent < 2 * sum(
        len(data) for path, data in checkpoint().items() if "safe" in path
    )


def test_a_folder_of_a_repository_can_be_converted(hub, local, tmp_path):
    assert converted("hf://org/below/base", tmp_path / "m.gguf", tmp_path) != local  # other name
    with (
        ggufkit.open(tmp_path / "m.gguf") as model,
        ggufkit.convert("hf://org/Plain-1B", arch_path=[tmp_path / "arch"]) as expected,
    ):
        for name, tensor in expected.tensors.items():
            np.testing.assert_array_equal(model.tensors[name].numpy(), tensor.numpy())


def test_the_command_converts_and_quantizes_in_one_pass(hub, tmp_path):
    words = ("hf://org/Plain-1B", "--arch-path", tmp_path / "arch")
    done("convert", *words, "m.gguf", "--quantize", "Q8_0")
    assert done("inspect", "m.gguf", "--json").json()["summary"]["architecture"] == "llama"


@pytest.mark.parametrize("case", ["tekken-v7", "spm-v7", "template"])
def test_mistrals_own_format_is_converted(monkeypatch, tmp_path, case):
    # Many of these repositories have the tensors a second time, for transformers.
    folder = tmp_path / "models--org--Mistral" / "snapshots" / COMMIT
    folder.parent.mkdir(parents=True)
    mistral_folders.make(mistral_folders.cases()[case], folder)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    both = files | {"model.safetensors": files["consolidated.safetensors"]}
    with HubServer({"org/Mistral": Repo(both)}) as server:
        at_home(monkeypatch, tmp_path, server.endpoint)
        outputs = []
        for source in (folder, "hf://org/Mistral"):
            with ggufkit.convert(source, mistral_format=True) as model:
                (path,) = ggufkit.write(model, tmp_path / "m.gguf")
                outputs.append(path.read_bytes())
        names = [request.path.partition("?name=")[2] for request in server.cdn.requests]
    assert outputs[0] == outputs[1]
    assert sum(name.startswith("consolidated") for name in names) > 0
    assert not any(name.startswith("model") for name in names)


def test_files_in_the_cache_are_not_fetched(hub, local, tmp_path):
    folder = tmp_path / "cache" / "huggingface" / "hub" / "models--org--Plain-1B"
    snapshot = folder / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(COMMIT)
    for path, data in checkpoint().items():
        if "00002-of" not in path and "/" not in path:
            (snapshot / path).write_bytes(data)
    assert converted("hf://org/Plain-1B", tmp_path / "m.gguf", tmp_path) == local
    assert all("00002-of-00002" in request.path for request in hub.cdn.requests)
    assert len([request for request in hub.hub.requests if "/resolve/" in request.path]) == 1


def test_a_broken_connection_goes_on_where_it_stopped(hub, local, tmp_path):
    signed, dropped = hub.cdn.fault, []

    def drop(handler, number):
        if len(dropped) < 3 and "Range" in handler.headers:
            dropped.append(number)
            start = int(handler.headers["Range"][6:].partition("-")[0])
            stop = int(handler.headers["Range"].rpartition("-")[2]) + 1
            data = hub.cdn.files[handler.path.partition("?")[0]]
            stop = min(stop, len(data))
            range_header = {"Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"}
            handler.send(206, data[start:stop], range_header, upto=(stop - start) // 2)
            return True
        return signed(handler, number)

    hub.cdn.fault = drop
    assert converted("hf://org/Plain-1B", tmp_path / "m.gguf", tmp_path) == local
    assert dropped


def test_resume_goes_on_after_the_server_went_away(hub, local, tmp_path):
    out = tmp_path / "m.gguf"
    signed = hub.cdn.fault
    with ggufkit.convert("hf://org/Plain-1B", arch_path=[tmp_path / "arch"]) as model:
        hub.cdn.fault = lambda handler, _: handler.send(503, b"") or True
        for file in model.inputs:
            file.data = file.data[:100]  # so that tensors must be fetched
        with pytest.raises(RemoteError):
            ggufkit.write(model, out, resume=True)
    assert not out.exists()
    hub.cdn.fault = signed
    assert converted("hf://org/Plain-1B", out, tmp_path, resume=True) == local


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("hf://org/pickled", CheckpointError, "has no safetensors files.*hf download org/pickled"),
        ("hf://org/none", RemoteMissingError, "no repository org/none"),
        ("hf://org/Plain-1B:Q4_K_M", CheckpointError, "names a quant.*hf://org/Plain-1B"),
        ("hf://org/broken", CheckpointError, "hf://org/broken/config.json does not contain"),
        ("hf://org/cut", CheckpointError, "hf://org/cut is incomplete.*truncated"),
    ],
)
def test_what_cannot_be_converted_is_said_in_the_names_of_the_hub(hub, name, error, message):
    with pytest.raises(error, match=message) as caught:
        ggufkit.convert(name)
    assert "ggufkit-" not in str(caught.value)


def test_a_small_file_with_another_digest_is_refused(hub, tmp_path):
    hub.repos["org/Plain-1B"].files["vocab.model"] = b"abc"
    hub.lfs = (".model",)
    hub.store()
    hub.digest = "0" * 64
    result = run("convert", "hf://org/Plain-1B", "m.gguf", "--arch-path", tmp_path / "arch")
    assert result.code == 1
    assert "vocab.model of org/Plain-1B has a different SHA-256" in result.err


def test_a_layer_of_numbers_stays_on_the_server_until_it_is_read(hub, tmp_path):
    big = whole() | layer(1) | {"model.embed_tokens.weight": np.ones((10, 8), np.float16)}
    data = safetensors_bytes(big | {"padding": np.zeros(1 << 20, np.float16)})
    hub.repos["org/Plain-1B"].files.clear()
    hub.repos["org/Plain-1B"].files.update(
        {"config.json": json.dumps(CONFIG).encode(), "model.safetensors": data}
    )
    hub.store()
    with pytest.raises(CheckpointError, match="padding"):
        ggufkit.convert("hf://org/Plain-1B", arch_path=[tmp_path / "arch"])
    assert hub.cdn.sent < len(data) // 4
    assert Path(tempfile.gettempdir()).exists()
