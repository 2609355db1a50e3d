from __future__ import annotations

import numpy as np
import pytest
from gguf import utility

import ggufkit
from ggufkit.edits.conventional_name import new_paths, rename
from ggufkit.errors import OutputError
from ggufkit.format.file_name import FileName, build_name, parse_name
from ggufkit.models.model import Model, Tensors
from ggufkit.models.tensors.in_memory import as_tensor
from ggufkit.system import rename_files

TOLD = {
    "general.architecture": "llama",
    "general.name": "Something Else 70B",
    "general.basename": "Llama-3",
    "general.size_label": "8B",
    "general.finetune": "Instruct",
    "general.version": "v1.1",
    "general.file_type": 15,
}


def model(metadata, tensors=("x.weight",)):
    listed = Tensors(as_tensor(name, np.zeros((32, 32), np.float32)) for name in tensors)
    return Model(ggufkit.Metadata(metadata), listed)


def saved(path, metadata=TOLD, **options):
    arrays = {f"{i}.weight": np.zeros((32, 32), np.float32) for i in range(3)}
    ggufkit.save(path, arrays, metadata, **options)
    return path


def conventional(metadata, **options):
    return build_name(ggufkit.conventional_name(model(metadata, **options)))


# What the name should be.


def test_header_gives_every_part_of_the_name():
    name = conventional(TOLD)
    assert name == "Llama-3-8B-Instruct-v1.1-Q4_K_M.gguf"
    assert parse_name(name).conventional
    assert (
        name
        == utility.naming_convention(
            TOLD["general.name"], "Llama-3", "Instruct", "v1.1", "8B", "Q4_K_M"
        )
        + ".gguf"
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"general.version": ""}, "Llama-3-8B-Instruct-v1.0-Q4_K_M.gguf"),
        ({"general.version": "2.5"}, "Llama-3-8B-Instruct-v2.5-Q4_K_M.gguf"),
        ({"general.basename": ""}, "Something-Else-8B-Instruct-v1.1-Q4_K_M.gguf"),
        ({"general.size_label": ""}, "Llama-3-70B-Instruct-v1.1-Q4_K_M.gguf"),
        ({"general.file_type": 1024 + 7}, "Llama-3-8B-Instruct-v1.1-Q8_0.gguf"),
        ({"general.file_type": 999}, "Llama-3-8B-Instruct-v1.1.gguf"),
        ({"general.file_type": "F16"}, "Llama-3-8B-Instruct-v1.1.gguf"),
        ({"general.architecture": "clip"}, "mmproj-Llama-3-8B-Instruct-v1.1-Q4_K_M.gguf"),
        ({"general.type": "mmproj"}, "mmproj-Llama-3-8B-Instruct-v1.1-Q4_K_M.gguf"),
        ({"adapter.type": "lora"}, "Llama-3-8B-Instruct-v1.1-Q4_K_M-LoRA.gguf"),
        ({"general.basename": "a/b c"}, "a-b-c-8B-Instruct-v1.1-Q4_K_M.gguf"),
        ({"general.basename": "evil\x1b[2J"}, "Something-Else-8B-Instruct-v1.1-Q4_K_M.gguf"),
        ({"general.finetune": 5}, "Llama-3-8B-v1.1-Q4_K_M.gguf"),
    ],
)
def test_parts_follow_the_header(changes, expected):
    assert conventional(TOLD | changes) == expected


def test_vocabulary_only_file_has_that_type_in_its_name():
    keys = TOLD | {"tokenizer.ggml.model": "gpt2"}
    assert conventional(keys, tensors=()).endswith("-v1.1-Q4_K_M-vocab.gguf")


def test_counts_a_size_that_no_key_gives():
    assert conventional({"general.basename": "Tiny"}) == "Tiny-1.0K-v1.0.gguf"
    keys = {"general.basename": "Tiny", "llama.expert_count": 8}
    assert conventional(keys) == "Tiny-v1.0.gguf"


def test_parts_that_the_header_lacks_come_from_the_file_name(tmp_path):
    path = saved(tmp_path / "mtp-qwen3-4b-chat.q4_k_m.gguf", {})
    with ggufkit.open(path) as opened:
        assert build_name(ggufkit.conventional_name(opened)) == "mtp-qwen3-4B-chat-v1.0-Q4_K_M.gguf"


def test_real_models_get_conventional_names(smollm2, gemma3, vocabularies):
    for path in (smollm2, gemma3, *vocabularies):
        with ggufkit.open(path) as opened:
            name = build_name(ggufkit.conventional_name(opened))
        assert parse_name(name).version.startswith("v")
        assert name.endswith("-vocab.gguf") == (path in vocabularies)


# Giving files that name.


def renamed(path, parts=None):
    with ggufkit.open(path) as opened:
        return rename(opened, parts or ggufkit.conventional_name(opened))


@pytest.fixture(params=["with hard links", "without hard links"])
def links(request, monkeypatch):
    if request.param == "without hard links":
        monkeypatch.setattr(rename_files, "hard_link", rename_files._no_link)


def test_renames_a_file_and_keeps_its_content(links, tmp_path):
    path = saved(tmp_path / "model.gguf")
    before = path.read_bytes()
    (new,) = renamed(path)
    assert list(tmp_path.iterdir()) == [new]
    assert new.name == "Llama-3-8B-Instruct-v1.1-Q4_K_M.gguf"
    assert new.read_bytes() == before


def test_renames_a_whole_shard_set(links, tmp_path):
    saved(tmp_path / "s.gguf", shard_tensors=1)
    new = renamed(tmp_path / "s-00002-of-00003.gguf")
    assert [path.name for path in new] == [
        f"Llama-3-8B-Instruct-v1.1-Q4_K_M-0000{i}-of-00003.gguf" for i in (1, 2, 3)
    ]
    assert sorted(tmp_path.iterdir()) == new
    with ggufkit.open(new[1]) as opened:
        assert len(opened.tensors) == 3


def test_keeps_a_correct_name(links, tmp_path):
    (new,) = renamed(saved(tmp_path / "model.gguf"))
    assert renamed(new) == [new]
    assert list(tmp_path.iterdir()) == [new]


def test_refuses_an_existing_name_and_renames_nothing(links, tmp_path):
    saved(tmp_path / "s.gguf", shard_tensors=1)
    taken = tmp_path / "Llama-3-8B-Instruct-v1.1-Q4_K_M-00002-of-00003.gguf"
    taken.write_text("mine")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(OutputError, match="already exists"):
        renamed(tmp_path / "s-00001-of-00003.gguf")
    assert sorted(tmp_path.iterdir()) == before
    assert taken.read_text() == "mine"


def test_refuses_a_name_that_appears_meanwhile_and_renames_nothing(tmp_path, monkeypatch):
    saved(tmp_path / "s.gguf", shard_tensors=1)
    link = rename_files.hard_link

    def raced(old, new):
        if new.name.startswith("Llama") and "00001-of" in new.name:
            new.write_text("mine")
        link(old, new)

    monkeypatch.setattr(rename_files, "hard_link", raced)
    with pytest.raises(OutputError, match="exists"):
        renamed(tmp_path / "s-00001-of-00003.gguf")
    names = sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("s-"))
    assert len(names) == 3
    assert [p.read_text() for p in tmp_path.iterdir() if p.name.startswith("Llama")] == ["mine"]


def test_refuses_links_of_a_cache(tmp_path):
    blob = saved(tmp_path / "blob")
    link = tmp_path / "model.gguf"
    link.symlink_to(blob)
    with pytest.raises(OutputError, match="is a link"):
        renamed(link)
    assert link.is_symlink()


def test_too_long_name_is_an_error_and_nothing_is_renamed(links, tmp_path):
    path = saved(tmp_path / "model.gguf")
    with pytest.raises(OutputError, match="File name too long"):
        renamed(path, FileName("x" * 300))
    assert list(tmp_path.iterdir()) == [path]


def test_model_without_a_file_cannot_be_renamed():
    with pytest.raises(OutputError, match="not opened from a file"):
        rename(model(TOLD), FileName("x"))


def test_new_paths_stay_in_the_same_folder(tmp_path):
    with ggufkit.open(saved(tmp_path / "model.gguf")) as opened:
        assert new_paths(opened, FileName("x")) == [tmp_path / "x.gguf"]
