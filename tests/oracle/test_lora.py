"""Converted adapters are byte-identical to llama.cpp's, and merging equals what it computes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import digests
import lora_digests
import running
from departures import ADAPTERS

import ggufkit
import tensors_file
from ggufkit.conversion.checkpoint.folder import open_checkpoint
from ggufkit.conversion.checkpoint.safetensors import open_safetensors
from ggufkit.errors import AdapterError
from ggufkit.models.sources import from_array

pytestmark = pytest.mark.oracle

FOLDER = Path(os.environ.get("GGUFKIT_ORACLE", ""))
RECORDED = json.loads(lora_digests.RECORD.read_text())
TOLERANCE = 1e-3  # of the largest number
RNG = np.random.default_rng(2)
SCALE = 0.01  # small: random weights and random changes magnify rounding
COMPUTED = ("llama", "gemma2", "qwen2", "qwen3moe", "phi2", "falcon", "gpt-oss")
# llama.cpp leaves out the adapter of attn_k_b and attn_v_b; the merged file has it.
CHANGED = (*COMPUTED[:4], "deepseek2", "deepseek3", "gpt2", "gptneox", "bloom", "mpt", "glm4")


def test_there_are_cases():
    assert len(RECORDED) > 250
    assert sum(bool(rows) for rows in RECORDED.values()) > 200


def of_adapter(checkpoint, folder, job):
    """Return the digest of what ggufkit makes of an adapter, "refused" without a file."""
    _, dtype, kind, whole = job
    source = lora_digests.adapter_for(checkpoint, folder, dtype, whole=whole)
    try:
        with ggufkit.convert_lora(source, base=checkpoint, outtype=kind) as model:
            ggufkit.write(model, folder / "ours.gguf")
    except AdapterError:
        return "refused"
    return lora_digests.digest(folder / "ours.gguf")


@pytest.mark.parametrize("case", RECORDED)
def test_converted_adapter_is_byte_identical_or_departs(case, tmp_path):
    outcomes = {}
    for job in lora_digests.jobs(case):
        if job[0] in RECORDED[case]:
            outcomes[job[0]] = of_adapter(FOLDER / "checkpoints" / case, tmp_path / job[0], job)
    assert (outcomes == RECORDED[case]) == (case not in ADAPTERS)


@pytest.mark.parametrize("case", COMPUTED)
def test_llama_cpp_computes_the_same_with_the_adapter_and_with_the_merged_model(case, tmp_path):
    checkpoint = FOLDER / "checkpoints" / case
    folder = lora_digests.adapter_for(checkpoint, tmp_path, "<f4")
    paths = [tmp_path / name for name in ("base.gguf", "adapter.gguf", "merged.gguf")]
    with (
        ggufkit.convert(checkpoint, outtype="f32", pre="gpt-2") as base,
        ggufkit.convert_lora(folder, base=checkpoint) as adapter,
    ):
        ggufkit.write_many(
            [(base, paths[0]), (adapter, paths[1]),
             (ggufkit.merge_lora(base, [adapter], scales=[SCALE]), paths[2])]
        )  # fmt: skip
    job = {"do": "logits", "prompt": list(range(3, 40))}
    plain = running.run(paths[0], tmp_path / "plain.npy", **job)
    adapted = running.run(
        paths[0], tmp_path / "adapted.npy", **job, adapter=str(paths[1]), scale=SCALE
    )
    merged = running.run(paths[2], tmp_path / "merged.npy", **job)
    assert np.abs(adapted - plain).max() > TOLERANCE * np.abs(plain).max()
    assert np.abs(adapted - merged).max() < TOLERANCE * np.abs(merged).max()


def test_llama_cpp_computes_the_same_with_an_adapter_of_the_embeddings(tmp_path):
    paths = [tmp_path / name for name in ("base.gguf", "adapter.gguf", "merged.gguf")]
    with ggufkit.convert(FOLDER / "checkpoints" / "llama", outtype="f32", pre="gpt-2") as base:
        ggufkit.write(base, paths[0])
        name = "token_embd.weight"
        changed = base.tensors[name].numpy() + RNG.standard_normal((1, 64)).astype("f4")
        tensors = {**base.tensors, name: from_array(name, changed)}
        tuned = base.replace(tensors=tensors.values())
        extracted = ggufkit.extract_lora(base, tuned, rank=1)
        ggufkit.write_many([(extracted.model, paths[1]), (tuned, paths[2])])
    job = {"do": "logits", "prompt": list(range(3, 40))}
    adapted = running.run(
        paths[0], tmp_path / "adapted.npy", **job, adapter=str(paths[1]), scale=1.0
    )
    merged = running.run(paths[2], tmp_path / "merged.npy", **job)
    assert np.abs(adapted - merged).max() < TOLERANCE * np.abs(merged).max()


def test_adapters_for_tasks_are_byte_identical(tmp_path):
    case = "jina-bert-v3"
    record = {}
    for task, model in ggufkit.task_adapters(FOLDER / "checkpoints" / case).items():
        ggufkit.write(model, tmp_path / "ours.gguf")
        record[task] = digests.of_whole(tmp_path / "ours.gguf")
    assert record == digests.recorded()[case]["adapters"]


@pytest.mark.parametrize("case", CHANGED)
def test_merged_model_equals_the_converted_sum(case, tmp_path):
    checkpoint = FOLDER / "checkpoints" / case
    folder = lora_digests.adapter_for(checkpoint, tmp_path, "<f4")
    changed = tmp_path / case
    shutil.copytree(checkpoint, changed)
    with contextlib.closing(open_checkpoint(checkpoint)) as source:
        weights = {name: tensor.numpy() for name, tensor in source.tensors.items()}
        factors = open_safetensors(folder / "adapter_model.safetensors")[1]
        arrays = {tensor.name: tensor.numpy() for tensor in factors}
        for name, weight in list(weights.items()):
            stem = f"base_model.model.{name.removesuffix('.weight')}"
            if f"{stem}.lora_A.weight" in arrays:
                a, b = (arrays[f"{stem}.lora_{letter}.weight"] for letter in "AB")
                weights[name] = weight + np.float32(2 * SCALE) * (b @ a)
        for path in changed.glob("*.safetensors*"):
            path.unlink()
        plain = {name: np.asarray(array, np.float32) for name, array in weights.items()}
        (changed / "model.safetensors").write_bytes(tensors_file.safetensors_bytes(plain))
    with (
        ggufkit.convert(checkpoint, outtype="f32", pre="gpt-2") as base,
        ggufkit.convert_lora(folder, base=checkpoint) as adapter,
        ggufkit.convert(changed, outtype="f32", pre="gpt-2") as expected,
    ):
        merged = ggufkit.merge_lora(base, [adapter], scales=[SCALE])
        for name, tensor in expected.tensors.items():
            np.testing.assert_allclose(
                merged.tensors[name].numpy(), tensor.numpy(), rtol=1e-3, atol=1e-5
            )
