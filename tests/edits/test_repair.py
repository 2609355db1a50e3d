"""A repair fixes its finding, keeps the value that llama.cpp reads, and changes nothing else."""

from __future__ import annotations

import numpy as np
import pytest

import ggufkit
from ggufkit import typed
from ggufkit.edits.in_place import apply
from ggufkit.edits.repair import plan_repair
from small_llama import CONTROL, keys, tensors

SAFE = {
    "llama__context_length": [np.int32(128), np.uint64(128), np.float32(128), np.float64(128)],
    "llama__rope__freq_base": [np.float64(10000), np.uint32(10000), np.int64(10000)],
    "llama__attention__head_count": [
        typed("array[int64]", [4, 4]),
        typed("array[float32]", [4.0, 4.0]),
    ],
    "general__file_type": [np.int32(0), np.uint8(0)],
    "tokenizer__ggml__add_bos_token": [np.uint8(1), np.int32(0)],
    "tokenizer__ggml__token_type": [typed("array[uint32]", CONTROL), typed("array[int8]", CONTROL)],
    "tokenizer__ggml__scores": [typed("array[float64]", [0.5] * 8)],
    "tokenizer__ggml__bos_token_id": [np.int32(1)],
}
UNSAFE = {
    "llama__context_length": [np.int32(-1), np.uint64(2**32), np.float32(0.5), "128"],
    "llama__rope__freq_base": [np.float64(0.1), np.uint64(2**53 + 1), np.float64(1e300)],
    "llama__attention__head_count": [typed("array[int64]", [4, -4])],
    "general__name": [np.uint32(3)],
    "tokenizer__ggml__add_bos_token": [np.uint8(2), "true"],
    "tokenizer__ggml__token_type": [typed("array[int64]", [2**31] * 8)],
}


def cases(table):
    return [(key, value) for key, values in table.items() for value in values]


def saved(path, **others):
    ggufkit.save(path, tensors(), keys(**others))
    return path


def rules(path):
    return [finding.rule for finding in ggufkit.check(path)]


@pytest.mark.parametrize(("key", "value"), cases(SAFE))
def test_number_gets_the_type_that_llama_cpp_reads(tmp_path, key, value):
    path = saved(tmp_path / "x.gguf", **{key: value})
    assert "key-type" in rules(path)
    apply(plan_repair(path))
    assert rules(path) == []
    with ggufkit.open(path) as model:
        repaired = model.metadata[key.replace("__", ".")]
        assert np.array_equal(np.asarray(repaired), np.asarray(value))


@pytest.mark.parametrize(("key", "value"), cases(UNSAFE))
def test_repair_never_changes_a_value(tmp_path, key, value):
    path = saved(tmp_path / "x.gguf", **{key: value})
    before = path.read_bytes()
    assert "key-kind" in rules(path)
    apply(plan_repair(path))
    assert path.read_bytes() == before


@pytest.mark.parametrize("number", [np.uint32(15), np.uint32(999), np.int32(15)])
def test_false_recipe_is_replaced_by_the_guess(tmp_path, number):
    path = saved(tmp_path / "x.gguf", general__file_type=number)
    assert {"file-type-mix", "file-type-value"} & {*rules(path)}
    apply(plan_repair(path))
    assert rules(path) == []
    with ggufkit.open(path) as model:
        assert model.metadata["general.file_type"] == np.uint32(0)  # F32, as all tensors are


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("split.count", np.uint32(1), "uint16"),
        ("split.no", np.int64(0), "uint16"),
        ("split.tensors.count", np.uint16(20), "int32"),
    ],
)
def test_split_keys_of_a_single_file_get_their_type(tmp_path, key, value, kind):
    whole = {"split.count": np.uint16(1), "split.no": np.uint16(0)}
    path = saved(tmp_path / "x.gguf", **whole | {key: value})
    assert rules(path) == ["split-type"]
    apply(plan_repair(path))
    assert rules(path) == []
    with ggufkit.open(path) as model:
        assert (model.metadata[key], model.metadata.type_name(key)) == (value, kind)


def test_repair_leaves_a_sound_file_unchanged(tmp_path):
    path = saved(tmp_path / "x.gguf")
    before = path.read_bytes()
    assert plan_repair(path).is_empty
    apply(plan_repair(path))
    assert path.read_bytes() == before


def test_recipe_is_guessed_from_matrices_and_not_from_vectors(tmp_path):
    path = tmp_path / "x.gguf"
    arrays = tensors()
    arrays |= {
        f"blk.{i}.attn_{part}.bias": np.ones(64 // (1 + (part != "q")), np.float32)
        for i in (0, 1)
        for part in "qkv"
    }
    packed = {
        name: ggufkit.packed(ggufkit.quants.quantize(data, "Q8_0"), "Q8_0")
        if data.ndim > 1
        else data
        for name, data in arrays.items()
    }
    packed |= {
        f"blk.{i}.ffn_{part}.bias": np.ones(64 if part == "down" else 96, np.float32)
        for i in (0, 1)
        for part in ("up", "down", "gate")
    }
    ggufkit.save(path, packed, keys(general__file_type=np.uint32(15)))
    assert "file-type-mix" in rules(path)
    apply(plan_repair(path))
    assert rules(path) == []
    with ggufkit.open(path) as model:
        assert model.metadata["general.file_type"] == np.uint32(7)  # Q8_0, as all matrices are


def test_recipe_of_several_types_is_marked_as_guessed(tmp_path):
    mixed = {
        name: data.astype(np.float16) if "attn" in name and data.ndim > 1 else data
        for name, data in tensors().items()
    }
    path = tmp_path / "x.gguf"
    ggufkit.save(path, mixed, keys(general__file_type=np.uint32(15)))
    apply(plan_repair(path))
    with ggufkit.open(path) as model:
        assert model.metadata["general.file_type"] & 1024


def test_remedy_does_not_offer_a_repair_that_fix_cannot_do(tmp_path):
    path = saved(tmp_path / "x.gguf", llama__block_count="six")
    findings = [finding for finding in ggufkit.check(path) if finding.rule.startswith("key-")]
    assert [finding.rule for finding in findings] == ["key-kind"]
    assert "--fix" not in findings[0].remedy
