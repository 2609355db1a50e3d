"""Programs that users of gguf-py, safetensors, transformers and diffusers write, with ggufkit."""

from __future__ import annotations

import csv
import json
import pickle
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
import yaml

import ggufkit
from small_llama import TOKENS, keys, tensors

ARCHITECTURE = "llama"


@pytest.fixture
def path(tmp_path):
    """Return the path of a small model."""
    ggufkit.save(tmp_path / "m.gguf", tensors(), keys())
    return tmp_path / "m.gguf"


# As with gguf-py: look into a file.


def test_dump_keys_and_tensors(path, capsys):
    with ggufkit.open(path) as model:
        for key, value in model.metadata.items():
            print(model.metadata.type_name(key), key, value)  # noqa: T201 (the program's purpose)
        for tensor in model.tensors.values():
            print(tensor.name, tensor.type, tensor.shape)  # noqa: T201
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > len(keys()) + len(tensors())  # a template has several lines


def test_memory_of_the_cache_from_hyperparameters(path):
    with ggufkit.open(path) as model:
        get = model.metadata.integer
        layers = get("llama.block_count", 0)
        heads, width = get("llama.attention.head_count", 0), get("llama.embedding_length", 0)
        assert 2 * 2 * 2**31 * layers * heads * width > 2**32


def test_save_the_header_as_json_and_yaml(path):
    document = ggufkit.open(path).metadata.to_dict()
    assert json.loads(json.dumps(document)) == document == yaml.safe_load(yaml.safe_dump(document))


def test_write_a_table_of_tensors(path, tmp_path):
    rows = ggufkit.open(path).tensors.to_dicts()
    with (tmp_path / "tensors.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    assert len((tmp_path / "tensors.csv").read_text().splitlines()) == len(tensors()) + 1


def test_count_the_parameters_of_each_layer(path):
    counts = {}
    model = ggufkit.open(path)
    for name, tensor in model.tensors.items():
        layer = name.split(".")[1] if name.startswith("blk.") else "other"
        counts[layer] = counts.get(layer, 0) + tensor.size
    assert sum(counts.values()) == model.parameters


def test_look_up_a_token(path):
    tokens = ggufkit.open(path).metadata.texts("tokenizer.ggml.tokens")
    assert tokens.index(TOKENS[3]) == 3


def test_print_the_chat_template(path):
    template = ggufkit.open(path).metadata.text("tokenizer.chat_template", None)
    assert template is None or isinstance(template, str)


# As with gguf-py: write and change files.


def test_write_a_new_file(tmp_path):
    weights = np.ones((4, 64), np.float32)
    metadata = {"general.architecture": ARCHITECTURE, "llama.block_count": 1}
    ggufkit.save(
        tmp_path / "new.gguf", {"a.weight": weights, "b.weight": (weights, "Q8_0")}, metadata
    )
    assert ggufkit.open(tmp_path / "new.gguf")["b.weight"].type.name == "Q8_0"


def test_change_a_key_in_place(path):
    ggufkit.edit_in_place(path, set={"general.name": "Renamed"})
    assert ggufkit.open(path).metadata["general.name"] == "Renamed"


def test_add_a_tag_and_undo_it(path):
    before = path.read_bytes()
    ggufkit.edit_in_place(path, add_tags="mine", force=True)
    assert "mine" in ggufkit.open(path).metadata.texts("general.tags")
    ggufkit.undo(path)
    assert ggufkit.open(path).metadata == ggufkit.open(path).metadata
    assert len(path.read_bytes()) >= len(before) - 64


def test_copy_with_new_metadata(path, tmp_path):
    with ggufkit.open(path) as model:
        changed = model.metadata.updated({"general.name": "Copy"})
        model.replace(metadata=changed).write(tmp_path / "copy.gguf")
    difference = ggufkit.diff(path, tmp_path / "copy.gguf")
    assert [change.key for change in difference.keys] == ["general.name"]


def test_split_and_merge(path, tmp_path):
    shards = ggufkit.write(path, tmp_path / "split.gguf", shard_tensors=5)
    assert len(shards) > 1
    ggufkit.write(shards[0], tmp_path / "merged.gguf")
    assert not ggufkit.diff(path, tmp_path / "merged.gguf")


def test_convert_to_big_endian(path, tmp_path):
    ggufkit.write(path, tmp_path / "big.gguf", byte_order="big")
    assert ggufkit.digest(path, "content") == ggufkit.digest(tmp_path / "big.gguf", "content")


def test_quantize_in_a_chain(path, tmp_path):
    quantized = ggufkit.open(path).quantize("Q8_0").edit(set={"general.name": "Small"})
    quantized.write(tmp_path / "q8.gguf")
    assert ggufkit.open(tmp_path / "q8.gguf").nbytes < ggufkit.open(path).nbytes


def test_drop_a_tensor_and_rename_the_rest(path):
    selected = ggufkit.select(path, drop="output_norm.weight", rename="blk.*=layer.*")
    assert "output_norm.weight" not in selected
    assert any(name.startswith("layer.") for name in selected)


# As with safetensors: arrays by name.


def test_load_all_arrays(path):
    arrays = {name: tensor.numpy() for name, tensor in ggufkit.open(path).tensors.items()}
    assert {name: array.shape for name, array in arrays.items()} == {
        name: tensor.shape for name, tensor in ggufkit.open(path).tensors.items()
    }


def test_load_some_rows_of_the_embedding(path):
    with ggufkit.open(path) as model:
        rows = model["token_embd.weight"][[1, 5, 1]].numpy()
        assert np.array_equal(rows, model["token_embd.weight"].numpy()[[1, 5, 1]])


def test_load_into_arrays_made_before(path):
    with ggufkit.open(path) as model:
        arrays = {
            name: np.empty(tensor.shape, np.float16) for name, tensor in model.tensors.items()
        }
        for name, array in arrays.items():
            model[name].numpy(out=array)
        first = next(iter(arrays))
        assert np.array_equal(arrays[first], model[first].numpy(np.float16))


def test_do_arithmetic_with_a_tensor(path):
    with ggufkit.open(path) as model:
        assert np.linalg.norm(model["output_norm.weight"]) >= 0
        assert np.add(model["output_norm.weight"], 1).shape == model["output_norm.weight"].shape


def test_load_in_threads(path):
    with ggufkit.open(path) as model, ThreadPoolExecutor(4) as pool:
        sums = list(pool.map(lambda name: model[name].numpy().sum(), model))
    assert len(sums) == len(tensors())


def sum_of(tensor):
    """Return the sum of a tensor's elements: runs in another process."""
    return float(tensor.numpy().sum())


def test_load_in_processes(path):
    with ggufkit.open(path) as model:
        tensors = list(model.tensors.values())[:3]
        with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
            assert list(pool.map(pickle.dumps, tensors))
        assert [sum_of(pickle.loads(pickle.dumps(tensor))) for tensor in tensors] == [
            sum_of(tensor) for tensor in tensors
        ]


# As with transformers and diffusers: from one form to another.


def test_merge_a_difference_into_weights(path, tmp_path):
    with ggufkit.open(path) as model:
        name = "blk.0.ffn_up.weight"
        added = model[name].numpy(np.float32) + np.float32(0.5)
        ggufkit.save(tmp_path / "merged.gguf", {**dict(model), name: added}, model.metadata)
    changed = ggufkit.diff(path, tmp_path / "merged.gguf").tensors
    assert [change.name for change in changed] == [name]


def test_make_a_large_file_row_by_row(tmp_path):
    def rows(start, stop):
        return np.random.default_rng(start).normal(size=(stop - start, 256))

    model = ggufkit.model({"big.weight": ((1000, 256), "Q4_K", rows)}, {"general.name": "Rows"})
    model.write(tmp_path / "rows.gguf")
    assert np.isfinite(ggufkit.open(tmp_path / "rows.gguf")["big.weight"].numpy()).all()


def test_choose_the_largest_recipe_that_fits(path):
    sizes = ggufkit.plan(path, ["F16", "Q8_0", "Q4_0"])
    fitting = [one.recipe for one in sizes if one.nbytes <= sizes[1].nbytes]
    assert fitting == ["Q8_0", "Q4_0"]


def test_check_before_loading(path):
    errors = [finding for finding in ggufkit.check(path) if finding.severity == "error"]
    assert not errors


def test_verify_a_download(path):
    digest = ggufkit.digest(path, "sha256").model["sha256"]
    assert len(digest) == 64
