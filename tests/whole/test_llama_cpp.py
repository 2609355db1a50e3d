"""llama.cpp reads what ggufkit writes: whole models, from opening to the next word."""

from __future__ import annotations

import numpy as np
import pytest

import ggufkit
import llama_memory
import oracle
from ggufkit.edits.conventional_name import rename
from ggufkit.edits.in_place import apply
from ggufkit.edits.repair import plan_repair
from speaking import speak

TYPES = ("Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0", "BF16", "F16", "F32")


def as_ggml_does(tensor, target):
    """Return the bytes that ggml makes of a tensor, decoded to float32 first."""
    rows = tensor.raw().reshape(-1, tensor.row_bytes)
    if tensor.type.name == "F32":
        return oracle.encode("llama.cpp", np.ascontiguousarray(rows).view(np.float32), target)
    return oracle.encode("llama.cpp", oracle.decode("llama.cpp", rows, tensor.type), target)


@pytest.mark.parametrize("type", TYPES)
def test_quantized_model_has_the_bytes_of_ggml_and_generates_text(smollm2, tmp_path, type):
    model = ggufkit.open(smollm2)
    path = tmp_path / "quantized.gguf"
    ggufkit.write(ggufkit.quantize(model, type, pure=True, allow_requantize=True), path)
    changed = 0
    for tensor in ggufkit.open(path).tensors.values():
        before = model.tensors[tensor.name]
        if tensor.type == before.type:
            np.testing.assert_array_equal(tensor.raw(), before.raw())
            continue
        changed += 1
        expected = as_ggml_does(before, tensor.type)
        np.testing.assert_array_equal(tensor.raw().reshape(expected.shape), expected)
    assert changed
    assert speak(path).startswith("The capital of France is ")


@pytest.mark.parametrize(
    "options",
    [{"alignment": 64}, {"version": 2}, {"shard_size": 40_000_000}],
    ids=["aligned-to-64", "version-2", "shards"],
)
def test_copied_model_knows_the_capital_of_france(smollm2, tmp_path, options):
    first, *_ = ggufkit.write(ggufkit.open(smollm2), tmp_path / "copy.gguf", **options)
    assert speak(first) == "The capital of France is Paris."


# Tools that change existing files.


def renamed(path):
    """Give all shards other names."""
    with ggufkit.open(path) as model:
        return rename(model, ggufkit.conventional_name(model))[0]


def edited(path):
    """Change a text, and move the data by a longer one."""
    ggufkit.edit_in_place(path, set={"general.name": "Another" * 2000})
    return path


def repaired(path):
    """Repair a number whose type llama.cpp would refuse."""
    length = np.uint64(ggufkit.open(path).metadata["llama.context_length"])
    types = {"llama.context_length": "uint64"}
    ggufkit.edit_in_place(path, set={"llama.context_length": length}, types=types, force=True)
    assert "key-type" in {finding.rule for finding in ggufkit.check(path)}
    apply(plan_repair(path))
    return path


def test_shard_set_edited_in_place_knows_the_capital_of_france_too(smollm2, tmp_path):
    with ggufkit.open(smollm2) as model:
        first, *_ = ggufkit.write(model, tmp_path / "set.gguf", shard_size=40_000_000)
    assert speak(renamed(edited(repaired(first)))) == "The capital of France is Paris."


def test_llama_cpp_loads_a_vocabulary_only_file(smollm2, tmp_path):
    with ggufkit.open(smollm2) as model:
        ggufkit.write(ggufkit.select(model, vocab_only=True), tmp_path / "vocabulary.gguf")
    memory = llama_memory.report(tmp_path / "vocabulary.gguf", vocab_only=True)
    assert "n_vocab" in memory["log"]
