"""Image models on servers: the same bytes as from the disk, and only the headers are read first."""

from __future__ import annotations

import numpy as np
import pytest

import diffusion_checkpoints
import ggufkit
from ggufkit.errors import CheckpointError
from hub_server import HubServer, Repo, at_home
from ranged_server import Served
from shell import ggufkit as run
from tensors_file import safetensors_bytes


def checkpoint(*models: str) -> bytes:
    """Return a file with the tensors of models."""
    tensors = {}
    for model in models:
        tensors |= diffusion_checkpoints.arrays(model, "BF16")
    return safetensors_bytes(tensors)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    halves = [
        dict(sorted(diffusion_checkpoints.arrays("flux", "BF16").items())[i::2]) for i in (0, 1)
    ]
    files = {f"m-0000{i + 1}-of-00002.safetensors": safetensors_bytes(halves[i]) for i in (0, 1)}
    files |= {"a/flux.safetensors": checkpoint("flux"), "sd1.safetensors": checkpoint("sd1")}
    language = {"model.layers.0.self_attn.q_proj.weight": np.ones((8, 8), np.float32)}
    files["model.safetensors"] = safetensors_bytes(language)
    with HubServer({"org/pictures": Repo(files)}) as server:
        at_home(monkeypatch, tmp_path, server.endpoint)
        yield server


@pytest.mark.parametrize("name", ["a/flux.safetensors", "m-00001-of-00002.safetensors"])
def test_a_file_on_the_hub_becomes_the_same_file(tmp_path, hub, name):
    source = tmp_path / "flux.safetensors"
    source.write_bytes(checkpoint("flux"))
    done = run("convert", f"hf://org/pictures/{name}", "remote.gguf", "--quantize", "Q4_K_M")
    assert done.code == 0, done.err
    assert run("convert", source, "local.gguf", "--quantize", "Q4_K_M").code == 0
    with ggufkit.open("local.gguf") as local, ggufkit.open("remote.gguf") as remote:
        assert dict(local.metadata) == dict(remote.metadata)
        for tensor in local.tensors.values():
            assert remote[tensor.name].type == tensor.type
            assert np.array_equal(remote[tensor.name].numpy(), tensor.numpy())


def test_a_part_of_a_file_on_the_hub_is_read_alone(tmp_path, hub):
    options = ("--for", "sd.cpp", "--part", "vae")
    assert run("convert", "hf://org/pictures/sd1.safetensors", f"{tmp_path}/", *options).code == 0
    with ggufkit.open(tmp_path / "sd1-vae-BF16.gguf") as model:
        assert list(model.tensors) == ["encoder.weight"]


def test_a_file_at_a_url_is_converted_and_headers_come_first(tmp_path):
    data = checkpoint("flux")
    with Served({"/flux.safetensors": data}) as served:
        with ggufkit.convert(served.url("/flux.safetensors")) as model:
            assert served.sent < len(data) / 4
            ggufkit.write(model, tmp_path / "out.gguf")
        assert ggufkit.check(tmp_path / "out.gguf") == []


def test_other_remote_names_are_refused(tmp_path, hub):
    done = run("convert", "hf://org/pictures", tmp_path / "o.gguf", "--part", "vae")
    assert (done.code, "hf://ORG/REPO/FILE" in done.err) == (2, True)
    with pytest.raises(CheckpointError, match="a language model"):
        ggufkit.convert("hf://org/pictures/model.safetensors")
