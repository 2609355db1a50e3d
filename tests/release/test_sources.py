"""Releases of a mixture of experts, of checkpoints with what goes with them, and of Hub models."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import pytest

import adapters
import ggufkit as library
import hub_server
import measured_llama
import projector_folders
import real  # noqa: F401 (marks these tests: one runs llama.cpp)
import small_llama
from ggufkit.conversion.convert import convert
from ggufkit.errors import GGUFError
from ggufkit.lora.convert_lora import convert_lora
from ggufkit.release import run, sidecars, source, trial
from plain_checkpoint import ARCH, CONFIG, PREDICTING, layer, numbers, whole
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
    for module in (source, sidecars):
        monkeypatch.setattr(module, "convert", known)
    known = functools.partial(convert_lora, arch_path=(tmp_path / "arch",))
    monkeypatch.setattr(sidecars, "convert_lora", known)
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


def write_companions(work: Path) -> None:
    """Write a checkpoint, an adapter of it, and a smaller checkpoint."""
    write_checkpoint(work / "Plain", CONFIG, model=whole())
    shapes = {name: array.shape for name, array in whole().items()}
    adapters.write_adapter(work / "Style", adapters.factors(shapes))
    small = {name: array for name, array in whole().items() if "layers.1." not in name}
    write_checkpoint(work / "Small", CONFIG | {"num_hidden_layers": 1}, model=small)


SIDECARS = {"draft-Small.gguf", "lora-Style.gguf"}
NAMED = """
rungs = ["Q8_0", "F32"]
run = false
drafts = ["Small"]
adapters = ["{}/Style"]
"""


def test_drafts_and_adapters_are_planned_made_published_and_named(work):
    write_companions(work)
    Path("release.toml").write_text(NAMED.format(work))
    plan = done("release", "Plain", *OPTIONS, "--dry-run", "--json").json()
    assert not Path("out").exists()
    done("release", "Plain", *OPTIONS, "--upload", "./public")
    sizes = {path.name: path.stat().st_size for path in Path("public").iterdir()}
    assert {file["file"]: file["nbytes"] for file in plan["others"]} == {
        name: sizes[name] for name in SIDECARS | {"Plain-F16.gguf"}
    }
    assert plan["disk"] == sum(size for name, size in sizes.items() if name.endswith(".gguf"))
    sums = Path("public/SHA256SUMS").read_text().splitlines()
    assert {line.partition("  ")[2] for line in sums} >= SIDECARS
    card = Path("public/README.md").read_text()
    assert "| lora-Style.gguf | LoRA adapter |" in card
    assert "`llama-cli -m Plain-F32.gguf --lora lora-Style.gguf`" in card
    assert "-md draft-Small.gguf --spec-type draft-simple" in card
    assert str(work) not in Path("out/release.json").read_text()
    with convert_lora("Style", base="Plain", arch_path=[work / "arch"]) as adapter:
        library.write(adapter, "expected.gguf")
    assert Path("expected.gguf").read_bytes() == Path("public/lora-Style.gguf").read_bytes()
    with library.open("public/draft-Small.gguf") as draft:
        assert draft.metadata["llama.block_count"] == 1


def test_changed_adapter_is_made_again_alone(work):
    write_companions(work)
    Path("release.toml").write_text(NAMED.format(work))
    done("release", "Plain", *OPTIONS)
    config = Path("Style/adapter_config.json")
    config.write_text(config.read_text().replace('"lora_alpha": 8', '"lora_alpha": 16'))
    lines = map(json.loads, done("release", "Plain", *OPTIONS, "--json").lines)
    assert [line["step"] for line in lines if line["state"] == "begun"] == ["adapter Style"]
    with library.open("out/lora-Style.gguf") as adapter:
        assert adapter.metadata["adapter.lora.alpha"] == 16


def test_damaged_sidecar_is_a_problem_and_the_rest_is_made(work, monkeypatch):
    write_companions(work)
    Path("release.toml").write_text(NAMED.format(work))
    check = run.require_sound

    def damaged(path, threads):
        if path.name == "lora-Style.gguf":
            raise GGUFError("lora-Style.gguf: it is damaged")
        check(path, threads)

    monkeypatch.setattr(run, "require_sound", damaged)
    result = ggufkit("release", "Plain", *OPTIONS, "--upload", "./public")
    assert result.code == 1
    assert "adapter Style: lora-Style.gguf: it is damaged" in result.err
    names = {path.name for path in Path("public").iterdir()}
    assert {"Plain-Q8_0.gguf", "draft-Small.gguf"} <= names
    assert "lora-Style.gguf" not in names
    assert "lora-Style" not in Path("public/README.md").read_text()


def test_draft_model_is_run_in_llama_cpp_as_rungs_are(work, monkeypatch):
    write_companions(work)
    Path("release.toml").write_text(NAMED.format(work).replace("run = false", ""))
    tried = []

    def trying(path, _threads):
        tried.append(path.name)
        if path.name == "draft-Small.gguf":
            raise GGUFError("llama.cpp cannot run it: a fault")

    monkeypatch.setattr(trial, "require_runs", trying)
    result = ggufkit("release", "Plain", *OPTIONS)
    assert result.code == 1
    assert "draft Small: llama.cpp cannot run it: a fault" in result.err
    assert tried == ["draft-Small.gguf", "Plain-Q8_0.gguf", "Plain-F32.gguf"]
    assert "draft-Small" not in Path("out/README.md").read_text()


def test_layers_that_predict_are_split_off(work, monkeypatch):
    monkeypatch.setattr("ggufkit.conversion.problems.REFUSED", set())  # the architecture is another
    Path("arch/plain.toml").write_text(PREDICTING)
    head = layer(2) | {"model.layers.2.eh_proj.weight": numbers(8, 16)}
    config = CONFIG | {"num_nextn_predict_layers": 1}
    write_checkpoint(work / "Plain", config, model=whole() | head)
    Path("release.toml").write_text('rungs = ["F32"]\nrun = false\ndrafts = ["mtp"]\n')
    done("release", "Plain", *OPTIONS)
    with library.open("out/mtp-Plain-Q8_0.gguf") as mtp, library.open("out/Plain-F16.gguf") as base:
        assert {name for name in mtp.tensors if name.startswith("blk.")} > {
            "blk.2.nextn.eh_proj.weight"
        }
        assert not {name for name in base.tensors if name.startswith("blk.2.")}
        assert base.metadata["glm4moe.block_count"] == 2
    card = Path("out/README.md").read_text()
    assert "-md mtp-Plain-Q8_0.gguf --spec-type draft-mtp" in card


def test_adapters_on_the_hub_are_converted_for_a_model_on_the_hub(work, monkeypatch):
    write_companions(work)
    repos = {
        f"org/{folder}": hub_server.Repo(
            {path.name: path.read_bytes() for path in (work / folder).iterdir()}
        )
        for folder in ("Plain", "Style", "Small")
    }
    with hub_server.HubServer(repos) as hub:
        hub_server.at_home(monkeypatch, work, hub.endpoint)
        settings = NAMED.replace("{}/", "hf://org/").replace('"Small"', '"hf://org/Small"')
        Path("release.toml").write_text(settings)
        done("release", "hf://org/Plain", *OPTIONS)
        assert "| org/Style |" in Path("out/README.md").read_text()
        adapter = Path("out/lora-Style.gguf").read_bytes()
        with library.open("out/draft-Small.gguf") as draft:
            assert draft.metadata["llama.block_count"] == 1
    Path("release.toml").write_text(NAMED.format(work))
    done("release", "Plain", "-o", "own", *OPTIONS[2:])
    with library.open("own/lora-Style.gguf") as own, library.open("out/lora-Style.gguf") as other:
        assert not library.diff(own, other, data=True).tensors
    assert len(adapter) > 0


def test_gated_model_without_a_token_is_refused_before_work(work, monkeypatch):
    write_checkpoint(work / "Plain", CONFIG, model=whole())
    files = {path.name: path.read_bytes() for path in (work / "Plain").iterdir()}
    gated = {"org/Gated": hub_server.Repo(files, is_gated=True)}
    with hub_server.HubServer(gated) as hub:
        hub_server.at_home(monkeypatch, work, hub.endpoint)
        for words in ((), ("--dry-run",)):
            result = ggufkit("release", "hf://org/Gated", *OPTIONS, *words)
            assert result.code == 1
            assert "org/Gated is gated: its owner must give you access" in result.err
            assert "set HF_TOKEN" in result.err
        assert {path.name for path in Path("out").iterdir()} <= {"release.log", ".release"}
        monkeypatch.setenv("HF_TOKEN", hub_server.RIGHT)
        done("release", "hf://org/Gated", *OPTIONS)
        assert hub_server.RIGHT.encode() not in b"".join(
            path.read_bytes() for path in Path("out").iterdir() if path.is_file()
        )


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
    for words in (OPTIONS, (*OPTIONS, "--dry-run")):
        result = ggufkit("release", "small.gguf", *words)
        assert result.code == 1
        assert "quantizing again loses quality" in result.err
