"""Releases of a mixture of experts, of a checkpoint with a projector, and of one on the Hub."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import pytest

import ggufkit as library
import hub_server
import measured_llama
import projector_folders
import real  # noqa: F401 (marks these tests: one runs llama.cpp)
import small_llama
from ggufkit.conversion.convert import convert
from ggufkit.release import source
from plain_checkpoint import ARCH, CONFIG, whole
from shell import done, ggufkit
from tensors_file import write_checkpoint

EXPERTS = 4
OPTIONS = ("-o", "out", "--threads", "1", "--config", "release.toml")


@pytest.fixture
def work(tmp_path, monkeypatch):
    """Return the current folder, where checkpoints of an unknown class are known."""
    monkeypatch.chdir(tmp_path)
    Path("arch").mkdir()
    Path("arch/plain.toml").write_text(ARCH)
    Path("release.toml").write_text('rungs = ["Q8_0", "F16"]\nrun = false\n')
    known = functools.partial(convert, arch_path=(tmp_path / "arch",))
    monkeypatch.setattr(source, "convert", known)
    return tmp_path


def save_experts(path: Path) -> None:
    """Write the small Llama as a mixture of experts, of which the last one is never chosen."""
    random = np.random.default_rng(6)
    tensors = small_llama.tensors()
    for name in [name for name in tensors if "ffn_" in name and "norm" not in name]:
        width = tensors.pop(name).shape
        stacked = random.standard_normal((EXPERTS, *width), np.float32)
        tensors[name.replace(".weight", "_exps.weight")] = stacked
    for block in range(small_llama.BLOCKS):
        router = np.abs(random.standard_normal((EXPERTS, small_llama.WIDTH), np.float32))
        tensors[f"blk.{block}.ffn_gate_inp.weight"] = router * 0.01
    tensors["token_embd.weight"] *= measured_llama.SCALE
    counts = {"llama__expert_count": np.uint32(EXPERTS), "llama__expert_used_count": np.uint32(2)}
    library.save(path, tensors, small_llama.keys(**counts))


def test_mixture_of_experts_is_released_with_what_the_text_reached(work):
    save_experts(Path("moe.gguf"))
    measured_llama.text(Path("text.txt"), 1500)
    measured_llama.text(Path("other.txt"), 500)
    Path("release.toml").write_text('rungs = ["Q8_0", "Q4_0"]\ncontext = 32\n')
    words = ("--calibration", "text.txt", "--text", "other.txt")
    done("release", "moe.gguf", *OPTIONS, *words)
    journal = json.loads(Path("out/release.json").read_text())
    facts = journal["steps"]["importance data"]["facts"]
    matrix = library.Imatrix.open("out/moe.imatrix.gguf")
    counts = [entry.counts for entry in matrix.entries.values()]
    assert facts["matrices"] == sum(map(len, counts)) == 2 * (5 + 3 * EXPERTS)
    assert facts["unseen"] == sum(int((count == 0).sum()) for count in counts)
    assert facts["cosine"] is None or 0 < facts["cosine"] <= 1
    with library.open("out/moe-Q4_0.gguf") as model:
        assert model.tensors["blk.0.ffn_up_exps.weight"].shape[0] == EXPERTS
    card = Path("out/README.md").read_text()
    reached = f"{facts['matrices'] - facts['unseen']:,} of {facts['matrices']:,} matrices"
    assert f"they reached {reached}" in card


def test_checkpoint_is_converted_and_its_projector_published_too(work):
    case = projector_folders.cases()["gemma3"]
    own = {name: shape for name, shape in case["tensors"].items() if "language" not in name}
    folder = projector_folders.make({**case, "tensors": own}, work / "Tiny-Eyes")
    config = json.loads((folder / "config.json").read_text())
    eyes = {**config["vision_config"], "architectures": config["architectures"]}
    write_checkpoint(folder, CONFIG | {"vision_config": eyes}, model_text=whole())
    done("release", "Tiny-Eyes", *OPTIONS, "--upload", "./public")
    names = {path.name for path in Path("public").iterdir()}
    assert {"mmproj-Tiny-Eyes-BF16.gguf", "Tiny-Eyes-F16.gguf", "Tiny-Eyes-Q8_0.gguf"} <= names
    with library.open("public/mmproj-Tiny-Eyes-BF16.gguf") as projector:
        assert projector.metadata["general.type"] == "mmproj"
    with (
        library.open("public/Tiny-Eyes-Q8_0.gguf") as model,
        convert(folder, arch_path=(work / "arch",)) as expected,
    ):
        assert set(model.tensors) == set(expected.tensors)


def test_base_that_is_not_published_and_files_in_shards(work):
    folder = work / "Plain"
    write_checkpoint(folder, CONFIG, model=whole())
    settings = 'rungs = ["F32"]\nrun = false\nkeep_base = false\nshard_bytes = 2000\n'
    Path("release.toml").write_text(settings)
    done("release", "Plain", *OPTIONS, "--upload", "./public")
    shards = sorted(path.name for path in Path("public").glob("Plain-F32-*.gguf"))
    assert len(shards) > 1
    assert not list(Path("public").glob("Plain-F16*"))
    with library.open(Path("public") / shards[0]) as model:
        assert len(model.tensors) == 20
    sums = Path("public/SHA256SUMS").read_text().splitlines()
    assert [line.partition("  ")[2] for line in sums] == shards


def test_checkpoint_on_the_hub_names_its_base_model(work, monkeypatch):
    write_checkpoint(work / "Plain-1B", CONFIG, model=whole())
    files = {path.name: path.read_bytes() for path in (work / "Plain-1B").iterdir()}
    with hub_server.HubServer({"org/Plain-1B": hub_server.Repo(files)}) as hub:
        hub_server.at_home(monkeypatch, work, hub.endpoint)
        done("release", "hf://org/Plain-1B", *OPTIONS)
        card = Path("out/README.md").read_text()
        assert 'base_model: "org/Plain-1B"' in card
        hub.forget()
        done("release", "hf://org/Plain-1B", *OPTIONS)
        assert not [request for request in hub.requests if "safetensors" in request.path]


def test_file_that_is_quantized_already_is_a_problem(work):
    measured_llama.save(Path("tiny.gguf"))
    done("quantize", "tiny.gguf", "small.gguf", "Q4_0")
    result = ggufkit("release", "small.gguf", *OPTIONS)
    assert result.code == 1
    assert "quantizing again loses quality" in result.err
    assert (
        "quantizing again loses quality" in done("release", "small.gguf", *OPTIONS, "--dry-run").err
    )
