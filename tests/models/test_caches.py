from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import ggufkit
from ggufkit.edits.conventional_name import rename
from ggufkit.errors import MissingModelError, OutputError
from ggufkit.models.caches import is_name, resolve
from shell import done
from shell import ggufkit as run

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPO = "hub/models--bartowski--Llama-3.2-1B-GGUF"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder without models, isolated from the real one."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "LLAMA_CACHE", "OLLAMA_MODELS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / ".cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    return tmp_path


def saved(path, name="", **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {"x": np.zeros(4, "f4"), "y": np.zeros(4, "f4")}
    return ggufkit.save(path, arrays, {"general.name": name or path.name}, **options)


def hub(home, *names, repo=REPO, commit=COMMIT, **options):
    """Put files into Hugging Face's cache as its library does: links to blobs."""
    folder = home / "hf" / repo
    snapshot = folder / "snapshots" / commit
    (folder / "refs").mkdir(parents=True, exist_ok=True)
    (folder / "refs" / "main").write_text(commit)
    for name in names:
        for path in saved(snapshot / name, **options):
            blob = folder / "blobs" / f"{len(path.name):064x}{path.name}"
            blob.parent.mkdir(exist_ok=True)
            path.rename(blob)
            path.symlink_to(blob)
    return snapshot


def ollama(home, *parts, digest="a" * 64, manifest=None):
    """Put a model under its manifest and its blob."""
    models = home / ".ollama" / "models"
    path = models.joinpath("manifests", *parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = "application/vnd.ollama.image.model"
    layers = [{"mediaType": "x", "digest": "y"}, {"mediaType": kind, "digest": f"sha256:{digest}"}]
    path.write_text(json.dumps({"layers": layers}) if manifest is None else manifest)
    saved(models / "blobs" / f"sha256-{'a' * 64}")


def names(pattern=""):
    return [model.name for model in ggufkit.find_models(pattern)]


def opened(name):
    with ggufkit.open(name) as model:
        return model.metadata["general.name"]


def test_lists_nothing_in_empty_caches(home):
    assert names() == []
    assert done("list").out == ""


# Each program's place.


def test_hugging_face_files_are_named_by_encoding(home):
    hub(home, "Llama-3.2-1B-Q4_K_M.gguf", "sub/Llama-3.2-1B-Q8_0.gguf", "README.md.gguf.txt")
    repo = "hf:bartowski/Llama-3.2-1B-GGUF"
    assert names() == [f"{repo}:Q4_K_M", f"{repo}:Q8_0"]
    assert opened(f"{repo}:q8_0") == "Llama-3.2-1B-Q8_0.gguf"
    assert opened(repo) == "Llama-3.2-1B-Q4_K_M.gguf"


def test_hugging_face_files_of_one_encoding_are_named_by_path(home):
    hub(home, "a-Q4_0.gguf", "b-Q4_0.gguf", "plain.gguf")
    repo = "hf:bartowski/Llama-3.2-1B-GGUF"
    assert names() == [f"{repo}/{name}.gguf" for name in ("a-Q4_0", "b-Q4_0", "plain")]
    assert opened(f"{repo}/b-Q4_0.gguf") == "b-Q4_0.gguf"
    assert opened(f"{repo}/plain") == "plain.gguf"


def test_shard_set_is_listed_as_one_model_with_its_total_size(home):
    snapshot = hub(home, "big-Q4_0.gguf", shard_tensors=1)
    (model,) = ggufkit.find_models()
    assert model.name == "hf:bartowski/Llama-3.2-1B-GGUF:Q4_0"
    assert model.nbytes == sum(path.stat().st_size for path in snapshot.iterdir())
    with ggufkit.open(model.name) as set_:
        assert len(set_.tensors) == 2


def test_lists_only_the_main_branch_and_no_broken_links(home):
    hub(home, "old-Q4_0.gguf", commit="f" * 40)
    snapshot = hub(home, "new-Q4_0.gguf")
    (snapshot / "gone-Q8_0.gguf").symlink_to("nowhere")
    assert [model.path.name for model in ggufkit.find_models()] == ["new-Q4_0.gguf"]


@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "LLAMA_CACHE"])
def test_finds_other_places_of_the_cache(home, monkeypatch, variable):
    hub(home, "x-Q4_0.gguf")
    monkeypatch.setenv(variable, str(home / "hf" / "hub"))
    monkeypatch.setenv("HF_HOME", str(home / "none"))
    assert names() == ["hf:bartowski/Llama-3.2-1B-GGUF:Q4_0"]


def test_lists_the_cache_of_llama_cpp(home):
    saved(home / ".cache" / "llama.cpp" / "user_repo_model-Q4_0.gguf")
    assert names() == ["llama.cpp:user_repo_model-Q4_0.gguf"]
    assert opened("llama.cpp:user_repo_model-Q4_0") == "user_repo_model-Q4_0.gguf"


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("registry.ollama.ai", "library", "llama3.2", "latest"), "ollama:llama3.2"),
        (("registry.ollama.ai", "library", "llama3.2", "1b"), "ollama:llama3.2:1b"),
        (("registry.ollama.ai", "me", "tuned", "latest"), "ollama:me/tuned"),
        (("hf.co", "user", "repo", "Q4_K_M"), "ollama:hf.co/user/repo:Q4_K_M"),
    ],
)
def test_ollama_blobs_are_named_by_their_manifests(home, parts, name):
    ollama(home, *parts)
    assert names() == [name]
    assert opened(name) == opened(name.upper().replace("OLLAMA", "ollama")) == f"sha256-{'a' * 64}"
    if parts[-1] == "latest":
        assert opened(f"{name}:latest") == f"sha256-{'a' * 64}"


@pytest.mark.parametrize(
    "manifest",
    [
        "",
        "not JSON",
        "\xff",
        "[" * 100_000,
        "[]",
        "null",
        '{"layers": 5}',
        '{"layers": [5, {}, {"mediaType": "application/vnd.ollama.image.model"}]}',
        '{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": ["x"]}]}',
        '{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "../../x"}]}',
        " " * (1 << 21),
    ],
)
def test_leaves_out_damaged_manifests(home, manifest):
    ollama(home, "registry.ollama.ai", "library", "bad", "latest", manifest=manifest)
    ollama(home, "registry.ollama.ai", "library", "good", "latest")
    assert names() == ["ollama:good"]


def test_leaves_out_a_manifest_of_a_missing_blob(home):
    ollama(home, "registry.ollama.ai", "library", "gone", "latest", digest="b" * 64)
    assert names() == []


def test_finds_lm_studio_in_any_home(home):
    saved(home / ".lmstudio" / "models" / "user" / "repo" / "a-Q4_0.gguf")
    saved(home / ".cache" / "lm-studio" / "models" / "user" / "old" / "b.gguf")
    assert names() == ["lmstudio:user/old/b.gguf", "lmstudio:user/repo:Q4_0"]
    (home / ".lmstudio-home-pointer").write_text(f"{home / 'elsewhere'}\n")
    saved(home / "elsewhere" / "models" / "user" / "new" / "c-Q8_0.gguf")
    assert names("repo") == []
    assert opened("lmstudio:user/new") == "c-Q8_0.gguf"
    (home / ".lmstudio-home-pointer").write_text("a\0b")
    assert names("lmstudio") == ["lmstudio:user/old/b.gguf"]


# Names.


def test_projector_is_listed_but_the_repository_name_does_not_open_it(home):
    hub(home, "model-Q4_0.gguf", "mmproj-model-f16.gguf")
    repo = "hf:bartowski/Llama-3.2-1B-GGUF"
    assert names() == [f"{repo}:F16", f"{repo}:Q4_0"]
    assert opened(repo) == "model-Q4_0.gguf"
    assert opened(f"{repo}:F16") == "mmproj-model-f16.gguf"


def test_refuses_an_ambiguous_name_and_lists_the_choices(home):
    hub(home, "model-Q4_0.gguf", "model-Q5_0.gguf")
    with pytest.raises(MissingModelError, match=r"Did you mean .*Q4_0, .*Q5_0"):
        ggufkit.open("hf:bartowski/Llama-3.2-1B-GGUF")


@pytest.mark.parametrize(
    "name", ["hf:none", "ollama:../../etc/passwd", "hf:../../x:Q4_0", "lmstudio:a", "llama.cpp:x"]
)
def test_unknown_name_has_its_own_error(home, name):
    with pytest.raises(FileNotFoundError, match="no cached model is called") as caught:
        ggufkit.open(name)
    assert isinstance(caught.value, ggufkit.GGUFError)
    assert caught.value.remedy


def test_paths_are_not_names(home, monkeypatch):
    monkeypatch.chdir(home)
    saved(home / "hf:mine")
    assert not is_name("hf:mine")
    assert not is_name("other:x")
    assert not is_name("hf:")
    assert resolve(Path("hf:mine")) == Path("hf:mine")
    assert opened("hf:mine") == "hf:mine"


# Commands.


def test_list_shows_names_sizes_and_paths(home):
    snapshot = hub(home, "model-Q4_0.gguf")
    ollama(home, "registry.ollama.ai", "library", "llama3.2", "latest")
    lines = done("list").lines
    assert lines[0].split() == ["NAME", "SIZE", "PATH"]
    assert lines[1].startswith("hf:bartowski/Llama-3.2-1B-GGUF:Q4_0  ")
    assert lines[1].endswith(str(snapshot / "model-Q4_0.gguf"))
    assert len(done("list", "LLAMA3").lines) == 2
    (row,) = done("list", "ollama", "--json").json()
    assert row["name"] == "ollama:llama3.2"
    assert row["nbytes"] == Path(row["path"]).stat().st_size


@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect",),
        ("inspect", "--bytes"),
        ("check",),
        ("hash",),
        ("name",),
        ("plan",),
        ("recover",),
        ("diff", "ollama:llama3.2"),
    ],
)
def test_every_command_accepts_a_cached_name(home, arguments):
    ollama(home, "registry.ollama.ai", "library", "llama3.2", "latest")
    command, *options = arguments
    assert done(command, *options, "ollama:llama3.2").out
    result = run(command, *options, "ollama:none")
    assert result.code in (1, 2)
    assert "no cached model is called ollama:none" in result.out + result.err


def test_commands_that_write_accept_a_cached_name(home):
    ollama(home, "registry.ollama.ai", "library", "llama3.2", "latest")
    done("copy", "ollama:llama3.2", home / "out.gguf")
    assert opened(home / "out.gguf") == f"sha256-{'a' * 64}"


@pytest.mark.parametrize("pattern", ["x", "re:^x:?$"])
def test_tensors_can_be_grafted_from_a_cached_name(home, pattern):
    ollama(home, "registry.ollama.ai", "library", "llama3.2", "1b")
    graft = f"ollama:llama3.2:1b:{pattern}"
    result = done("select", "ollama:llama3.2:1b", home / "out.gguf", "--graft", graft, "--json")
    assert result.json()["tensors"]["replaced"] == ["x"]


def test_model_of_another_program_can_only_be_edited_into_a_new_file(home):
    ollama(home, "registry.ollama.ai", "library", "llama3.2", "latest")
    edit = ("edit", "ollama:llama3.2", "--set", "general.name=mine")
    assert "Write a copy with `ggufkit edit IN --output OUT`" in run(*edit).err
    done(*edit, "--output", home / "out.gguf")
    assert opened(home / "out.gguf") == "mine"


def test_models_of_other_programs_are_not_renamed(home):
    ollama(home, "registry.ollama.ai", "library", "llama3.2", "latest")
    hub(home, "model-Q4_0.gguf")
    for name in names():
        with ggufkit.open(name) as model, pytest.raises(OutputError):
            rename(model, ggufkit.conventional_name(model))
