from __future__ import annotations

import numpy as np
import pytest

import ggufkit as api
from shell import done, ggufkit

KEYS = {"general.basename": "Llama-3", "general.size_label": "8B", "general.file_type": 15}


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    api.save("my.gguf", {"x": np.zeros(4, "f4"), "y": np.zeros(4, "f4")}, KEYS)
    return tmp_path / "my.gguf"


def test_parses_the_name_of_a_file_that_does_not_exist(tmp_path):
    lines = done("name", "Mixtral-8x7B-v0.1-KQ2.gguf").lines
    assert lines[2].split() == ["basename", "Mixtral", "Mixtral"]
    assert "the file name follows the convention exactly" in lines
    wild = done("name", "/none/tinyllama-1.1b-chat.q4_k_m.gguf").lines
    assert "the file name does not follow the convention exactly" in wild
    assert wild[-1] == "conventional name: tinyllama-1.1B-chat-v1.0-Q4_K_M.gguf"


def test_header_comes_before_the_file_name(model):
    lines = done("name", "my.gguf").lines
    assert lines[2].split() == ["basename", "my", "Llama-3"]
    assert lines[-1] == "conventional name: Llama-3-8B-v1.0-Q4_K_M.gguf"
    assert list(model.parent.iterdir()) == [model]


def test_options_come_before_all(model):
    options = ("--basename", "A", "--size-label", "1B", "--finetune", "Chat", "--version", "v2")
    options += ("--encoding", "q8_0", "--type", "LoRA", "--sidecar", "mtp")
    expected = "conventional name: mtp-A-1B-Chat-v2-Q8_0-LoRA.gguf"
    assert done("name", "my.gguf", *options).lines[-1] == expected
    assert done("name", "none-1B.gguf", *options).lines[-1] == expected


def test_notes_that_the_named_file_does_not_exist(model):
    result = done("name", "mx.gguf")
    assert result.err == "note: mx.gguf does not exist; only its name is read\n"
    assert done("name", "my.gguf").err == ""


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("--encoding", "NONSENSE"),
        ("--version", "beta"),
        ("--size-label", "L6"),
        ("--type", "adapter"),
        ("--sidecar", "vision"),
        ("--basename", ""),
        ("--finetune", "a_b*"),
    ],
)
def test_part_that_the_convention_lacks_is_wrong_usage(model, option, text):
    for name in ("my.gguf", "none.gguf"):
        result = ggufkit("name", name, option, text, "--rename", "--dry-run")
        assert result.code == 2
        assert f"Invalid value for {option}: {text!r} is not" in result.err


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("phi-4-Q4_K_M.gguf", "phi-v4-Q4_K_M.gguf"),
        ("Mistral-24B-Instruct-2501-Q8_0.gguf", "Mistral-24B-Instruct-v2501-Q8_0.gguf"),
        ("mmproj-model-f16.gguf", "mmproj-ggml-model-v1.0-F16.gguf"),
        ("Llama-3.2-1B-v1.0-F32.gguf", "Llama-3.2-1B-v1.0-F32.gguf"),
        ("gemma 3-1b-v2.gguf", "gemma-3-1b-v2.gguf"),
    ],
)
def test_shown_parts_match_the_proposed_name(name, expected):
    document = done("name", name, "--json").json()
    assert document["conventional_name"] == expected
    parts = document["conventional"]
    order = ("sidecar", "basename", "size_label", "finetune", "version", "encoding", "type")
    assert "-".join(parts[part] for part in order if parts[part]) + ".gguf" == expected
    # The convention's expression wants a size.
    file_name = done("name", expected, "--json").json()["file_name"]
    assert file_name["conventional"] == bool(parts["size_label"])


def test_version_that_is_only_a_number_gets_its_letter(model):
    lines = done("name", "my.gguf", "--version", "2").lines
    assert lines[-1] == "conventional name: Llama-3-8B-v2-Q4_K_M.gguf"


def test_renames_the_file_except_in_a_dry_run(model):
    expected = "my.gguf -> Llama-3-8B-v1.0-Q4_K_M.gguf\n"
    assert done("name", "my.gguf", "--rename", "--dry-run").out == expected
    assert model.exists()
    assert done("name", "my.gguf", "--rename").out == expected
    assert [path.name for path in model.parent.iterdir()] == ["Llama-3-8B-v1.0-Q4_K_M.gguf"]
    stays = done("name", "Llama-3-8B-v1.0-Q4_K_M.gguf", "--rename").out
    assert stays == "Llama-3-8B-v1.0-Q4_K_M.gguf stays\n"


def test_renamed_file_keeps_its_last_edit_undoable(model):
    before = model.read_bytes()
    done("edit", "my.gguf", "--set", "general.author=me")
    done("name", "my.gguf", "--rename")
    renamed = "Llama-3-8B-v1.0-Q4_K_M.gguf"
    names = {path.name for path in model.parent.iterdir()}
    assert names == {renamed, f".{renamed}.ggufkit-undo"}
    done("edit", renamed, "--undo")
    assert model.with_name(renamed).read_bytes() == before


def test_shards_are_renamed_together(model):
    done("copy", "my.gguf", "s.gguf", "--shard-tensors", 1)
    done("name", "s-00002-of-00002.gguf", "--rename")
    assert sorted(path.name for path in model.parent.iterdir()) == [
        "Llama-3-8B-v1.0-Q4_K_M-00001-of-00002.gguf",
        "Llama-3-8B-v1.0-Q4_K_M-00002-of-00002.gguf",
        "my.gguf",
    ]


def test_existing_name_is_an_error(model):
    model.with_name("Llama-3-8B-v1.0-Q4_K_M.gguf").touch()
    result = ggufkit("name", "my.gguf", "--rename")
    assert result.code == 1
    assert "already exists" in result.err
    assert model.exists()


def test_json_holds_parts_and_names(model):
    done("copy", "my.gguf", "s.gguf", "--shard-tensors", 1)
    document = done("name", "s-00001-of-00002.gguf", "--json").json()
    assert document["file_name"]["shard"] == [1, 2]
    assert document["conventional"]["size_label"] == "8B"
    assert document["conventional_name"] == "Llama-3-8B-v1.0-Q4_K_M-00001-of-00002.gguf"
    assert [file["before"] for file in document["files"]] == [
        "s-00001-of-00002.gguf",
        "s-00002-of-00002.gguf",
    ]
    assert document["files"][1]["after"] == "Llama-3-8B-v1.0-Q4_K_M-00002-of-00002.gguf"


def test_missing_file_cannot_be_renamed(model):
    result = ggufkit("name", "none.gguf", "--rename")
    assert result.code == 1
    assert "No such file" in result.err


def test_dry_run_without_rename_is_wrong_usage(model):
    result = ggufkit("name", model, "--dry-run")
    assert result.code == 2
    assert "--dry-run needs --rename" in result.err


def test_check_and_name_agree_that_a_name_is_outside_the_convention(model):
    keys = KEYS | {"general.architecture": "llama"}
    api.save(model, {"token_embd.weight": np.zeros((4, 32), "f4")}, keys)
    assert "does not follow" in done("name", model).out
    assert "file-name" in ggufkit("check", model, "--names").out
