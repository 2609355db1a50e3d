"""Real models converted and exported give the same results in transformers and llama.cpp."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ggufkit
import real

sys.path.insert(0, str(Path(__file__).resolve().parent))
import running

pytestmark = pytest.mark.oracle

FOLDER = Path(os.environ.get("GGUFKIT_ORACLE", ""))
TEXTS = (
    "A man is eating food.",
    "Ein Mann isst etwas; 一个人在吃东西。",
    "def eat(food: str) -> None:  # 3.14\n\treturn",
    "The quick brown fox jumps over the lazy dog, again and again. " * 9,
)
# llama.cpp rounds activations to eight bits for quantized matrices, transformers does not.
ROUNDING = 0.1


def with_transformers(work, folder, out, *texts):
    python, script = FOLDER / "venv" / "bin" / "python", Path(__file__).with_name("answering.py")
    command = [python, script, work, folder, out, *texts]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    with np.load(out) as arrays:
        return dict(arrays)


def test_embeddings_of_minilm_match_transformers(tmp_path):
    checkpoint, out = real.minilm(), tmp_path / "minilm.gguf"
    with ggufkit.convert(checkpoint, outtype="f32") as model:
        ggufkit.write(model, out)
    expected = with_transformers("embed", checkpoint, tmp_path / "wanted.npz", *TEXTS)
    for ids, theirs in zip(json.loads(str(expected["ids"])), expected["means"], strict=True):
        job = {"do": "embeddings", "pooling": "the model's", "prompt": ids}
        ours = running.run(out, tmp_path / "found.npy", **job)[0]
        cosine = ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs)
        assert cosine > 0.9999


@pytest.mark.parametrize(("name", "word"), [("smollm2", "Paris"), ("gemma3", "city in France")])
def test_exported_model_gives_the_same_answers_in_transformers_and_llama_cpp(
    name, word, tmp_path, request
):
    original, folder = request.getfixturevalue(name), tmp_path / "checkpoint"
    with ggufkit.open(original) as model:
        ggufkit.export(model, folder)
    question = "The capital of France is"
    theirs = with_transformers("answer", folder, tmp_path / "answer.npz", question)
    assert word in str(theirs["said"])
    ids, logits = theirs["ids"].tolist(), theirs["logits"]
    actual = running.run(original, tmp_path / "found.npy", do="logits", prompt=ids)
    difference = np.abs(actual - logits[:, : actual.shape[1]]).max(axis=1)
    assert np.linalg.norm(actual - logits) < ROUNDING * np.linalg.norm(logits)
    # Both choose the same token where the best one leads by more than the two differ.
    best = np.sort(actual, axis=1)
    is_clear = best[:, -1] - best[:, -2] > 2 * difference
    assert is_clear.any()
    assert np.array_equal(actual.argmax(1)[is_clear], logits.argmax(1)[is_clear])
