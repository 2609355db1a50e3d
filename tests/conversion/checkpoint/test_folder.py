from __future__ import annotations

import contextlib
import json

import numpy as np
import pytest

import ggufkit
from ggufkit.conversion.checkpoint.folder import (
    MAX_CONFIG_BYTES,
    MAX_FILE_BYTES,
    CheckpointFolder,
    open_checkpoint,
)
from ggufkit.errors import CheckpointError
from tensors_file import safetensors_bytes, write_checkpoint

ONE = {"one": np.ones((2, 2), np.float32)}
TWO = {"two": np.zeros(3, np.float16)}
INDEX = "model.safetensors.index.json"


def sharded(folder, weight_map):
    write_checkpoint(folder, {}, **{"model-1": ONE, "model-2": TWO})
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    return folder


def refusal(folder):
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(folder)
    return str(caught.value)


def test_opens_config_and_tensors(tmp_path):
    checkpoint = open_checkpoint(write_checkpoint(tmp_path, {"a": 1}, model=ONE | TWO))
    assert checkpoint.config == {"a": 1}
    assert list(checkpoint.tensors) == ["one", "two"]


def test_tensors_are_sorted_by_file_and_then_by_name(tmp_path):
    files = {"model-00002-of-00002": {"a": ONE["one"]}, "model-00001-of-00002": {"z": ONE["one"]}}
    checkpoint = open_checkpoint(write_checkpoint(tmp_path, {}, **files))
    assert list(checkpoint.tensors) == ["z", "a"]


def test_index_may_name_files_in_subfolders(tmp_path):
    write_checkpoint(tmp_path, {})
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "part.safetensors").write_bytes(safetensors_bytes(ONE))
    (tmp_path / INDEX).write_text('{"weight_map": {"one": "weights/part.safetensors"}}')
    assert list(open_checkpoint(tmp_path).tensors) == ["one"]


def test_reads_a_folder_of_the_hugging_face_cache_in_place(tmp_path):
    blobs = tmp_path / "models--x--y" / "blobs"
    snapshot = tmp_path / "models--x--y" / "snapshots" / "0123"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for name, content in {
        "config.json": b"{}", "model.safetensors": safetensors_bytes(ONE)
    }.items():  # fmt: skip
        (blobs / f"blob-{name}").write_bytes(content)
        (snapshot / name).symlink_to(f"../../blobs/blob-{name}")
    assert list(open_checkpoint(snapshot).tensors) == ["one"]


def test_refuses_a_link_out_of_the_folder(tmp_path):
    folder = write_checkpoint(tmp_path / "checkpoint", {})
    (tmp_path / "elsewhere").write_bytes(safetensors_bytes(ONE))
    (folder / "model.safetensors").symlink_to("../elsewhere")
    assert "leads out of the folder" in refusal(folder)


@pytest.mark.parametrize("name", ["../config.json", "/etc/hostname", "a/../../b", "a\\b", "a\0b"])
def test_refuses_an_index_that_leads_out_of_the_folder(tmp_path, name):
    assert "leads out of the folder" in refusal(sharded(tmp_path, {"one": name}))


def test_names_a_missing_file(tmp_path):
    folder = sharded(tmp_path, {"one": "model-1.safetensors", "two": "model-9.safetensors"})
    assert "model-9.safetensors is missing" in refusal(folder)


def test_index_and_files_must_name_the_same_tensors(tmp_path):
    both = {"one": "model-1.safetensors", "two": "model-2.safetensors"}
    assert "three" in refusal(sharded(tmp_path, both | {"three": "model-1.safetensors"}))
    assert "two" in refusal(sharded(tmp_path, {"one": "model-1.safetensors", "x": both["two"]}))


def test_refuses_a_tensor_in_two_files(tmp_path):
    folder = write_checkpoint(tmp_path, {}, **{"model-1": ONE, "model-2": ONE})
    assert "'one' is in two files" in refusal(folder)


def test_lists_all_broken_files_at_once(tmp_path):
    folder = write_checkpoint(tmp_path, {}, **{"model-1": ONE, "model-2": TWO})
    for path in folder.glob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:-1])
    message = refusal(folder)
    assert "model-1.safetensors" in message
    assert "model-2.safetensors" in message


@pytest.mark.parametrize("content", ["", "[]", "{", "[" * 100_000])
def test_refuses_a_config_that_is_not_an_object(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    assert "config.json" in refusal(tmp_path)


@pytest.mark.parametrize("content", ["[]", "{}", '{"weight_map": [1]}', '{"weight_map": {"a": 1}}'])
def test_refuses_an_index_without_a_map(tmp_path, content):
    write_checkpoint(tmp_path, {}, model=ONE)
    (tmp_path / INDEX).write_text(content)
    assert refusal(tmp_path)


def test_refuses_a_folder_without_tensors_or_config(tmp_path):
    assert "config.json" in refusal(tmp_path)
    write_checkpoint(tmp_path, {})
    assert "safetensors" in refusal(tmp_path)
    assert "not a folder" in refusal(tmp_path / "config.json")


def test_reads_files_only_from_the_folder(tmp_path):
    checkpoint = open_checkpoint(write_checkpoint(tmp_path, {}, model=ONE))
    (tmp_path / "some.json").write_text('{"x": 1}')
    (tmp_path / "bytes").write_bytes(b"\xff")
    assert checkpoint.json("some.json") == {"x": 1}
    assert checkpoint.text("some.json") == '{"x": 1}'
    assert checkpoint.json("absent.json") is None
    with pytest.raises(CheckpointError, match="UTF-8"):
        checkpoint.text("bytes")
    with pytest.raises(CheckpointError, match="leads out"):
        checkpoint.text("../x")


@pytest.mark.parametrize(
    ("name", "limit"), [("config.json", MAX_CONFIG_BYTES), ("tokenizer.model", MAX_FILE_BYTES)]
)
def test_refuses_an_oversized_file_without_reading_it(tmp_path, name, limit):
    with (tmp_path / name).open("wb") as file:
        file.truncate(100 * limit)
    with pytest.raises(CheckpointError, match="which no such file needs"):
        CheckpointFolder(tmp_path).content(name)


def test_message_about_a_huge_name_is_short(tmp_path):
    config = {"architectures": ["x" * 1_000_000]}
    with pytest.raises(CheckpointError) as caught:
        ggufkit.convert(write_checkpoint(tmp_path, config, model=ONE))
    assert len(str(caught.value)) < 1000
    with pytest.raises(CheckpointError) as caught:
        raise CheckpointError("m" * 1_000_000, ["p" * 1_000_000] * 1000)
    assert len(str(caught.value)) < 20_000
    assert "(1,000,000 characters)" in str(caught.value)


def test_follows_links_out_of_the_folder_if_asked_to(tmp_path):
    store = write_checkpoint(tmp_path / "store", {"x": 1}, model=(ONE | TWO))
    folder = tmp_path / "folder"
    folder.mkdir()
    for path in store.iterdir():
        (folder / path.name).symlink_to(path)
    with pytest.raises(CheckpointError, match="--follow-links"):
        open_checkpoint(folder)
    with contextlib.closing(open_checkpoint(folder, follow_links=True)) as checkpoint:
        assert checkpoint.config == {"x": 1}
        assert checkpoint.tensors.keys() == (ONE | TWO).keys()


def test_path_in_an_index_that_leads_out_is_refused_even_then(tmp_path):
    write_checkpoint(tmp_path / "store", {}, model=(ONE | TWO))
    folder = write_checkpoint(tmp_path / "folder", {})
    homes = dict.fromkeys((ONE | TWO), "../store/model.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": homes}))
    with pytest.raises(CheckpointError, match="leads out of the folder"):
        open_checkpoint(folder, follow_links=True)
