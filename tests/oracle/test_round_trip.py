"""Files of llama.cpp's converter, exported and converted again, are the same files.

Vocabularies have tests of their own: what a tokenizer leaves open, the exported one may say.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import ggufkit
from ggufkit.coerce import plain
from ggufkit.converting.checkpoint import open_checkpoint

pytestmark = pytest.mark.oracle

FOLDER = Path(os.environ.get("GGUFKIT_ORACLE", ""))
PRE_TOKENIZER = "gpt-2"
WITHOUT = {"gpt-oss-mxfp4", "stablelm2"}  # decoded on the way; has no reference
CASES = sorted({path.name for path in (FOLDER / "checkpoints").glob("[a-z]*")} - WITHOUT)
# What the reference computes from a checkpoint's name for a layer and no file can give back.
TOLERANCE = 1e-3  # of the largest number
# A model that looked at pictures is another class now, a classifier has lost its base's prefix, and
# no file of llama.cpp keeps Mistral's sliding window.
CLASSIFIERS = {"bert-classifier", "bert-two-labels", "roberta-classifier"}
OTHERWISE = CLASSIFIERS | WITHOUT | {"gemma3-pictures", "mistral"}
LOADED = sorted({path.stem for path in (FOLDER / "computed").glob("*.npz")} - OTHERWISE)
TEXT_MODEL = "language_model."
PARTIAL = {"embeddings.position_embeddings.weight"}  # RoBERTa's first rows


@pytest.fixture
def exported(case, tmp_path):
    """Return the reference and the folder that it was exported to."""
    reference = FOLDER / "references" / f"{case}-{kind_of(case)}.gguf"
    with ggufkit.open(reference) as model:
        ggufkit.export(model, tmp_path / case)
    return reference, tmp_path / case


def kind_of(case):
    return "f32" if case == "llama-f32" else "auto"


def parameters(model):
    values = model.metadata
    return {key: (values.type_name(key), plain(values[key])) for key in values
            if not key.startswith("tokenizer.")}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_converting_what_was_exported_gives_the_same_file(case, exported, tmp_path):
    reference, folder = exported
    out = tmp_path / "again.gguf"
    with ggufkit.convert(folder, outtype=kind_of(case), pre=PRE_TOKENIZER) as model:
        ggufkit.write(model, out)
    with ggufkit.open(out) as again, ggufkit.open(reference) as before:
        assert parameters(again) == parameters(before)
        assert set(again.tensors) == set(before.tensors)
        keeps_order = list(again.tensors) == list(before.tensors)
        # PyTorch's files hold tensors in the order of modules, which would take a file for each.
        assert keeps_order or case.startswith("llama-bin")
        tensors = before.tensors
        differing = [
            n for n, t in again.tensors.items() if not np.array_equal(t.raw(), tensors[n].raw())
        ]
        assert differing == []
        is_said = {k: plain(v) for k, v in again.metadata.items()} == {
            k: plain(v) for k, v in before.metadata.items()
        }
        is_ordered = list(again.metadata) == list(before.metadata)
    is_same = is_said and is_ordered and keeps_order
    assert not is_same or out.read_bytes() == reference.read_bytes()


@pytest.mark.parametrize("case", CASES)
def test_tensors_of_the_checkpoint_come_back_bit_for_bit(case, exported):
    tensors = open_checkpoint(FOLDER / "checkpoints" / case).tensors
    # Of a model that looks at pictures too, the model of texts comes back.
    before = {name.removeprefix(TEXT_MODEL): tensor for name, tensor in tensors.items()}
    after = open_checkpoint(exported[1]).tensors
    kept = [name for name, t in after.items() if name in before and before[name].type == t.type]
    assert kept
    different = [n for n in kept if not np.array_equal(before[n].raw(), after[n].raw())]
    assert set(different) <= PARTIAL


def test_exported_checkpoints_compute_and_split_texts_as_the_first_ones(tmp_path):
    for case in LOADED:
        with ggufkit.open(FOLDER / "references" / f"{case}-f32.gguf") as model:
            ggufkit.export(model, tmp_path / case)
    script = Path(__file__).with_name("computing.py")
    command = [FOLDER / "venv" / "bin" / "python", script, tmp_path, tmp_path / "out", *LOADED]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    differing = {case: found for case in LOADED if (found := _compared(case, tmp_path / "out"))}
    assert differing == {}


def _compared(case, out):
    """Return how the logits of a checkpoint differ from the first one's, and its ids."""
    with np.load(FOLDER / "computed" / f"{case}.npz") as one, np.load(out / f"{case}.npz") as two:
        before, after = one["values"], two["values"]
        assert before.shape == after.shape
        error = float(np.abs(after - before).max() / np.abs(before).max())
        is_same = json.loads(str(one["ids"])) == json.loads(str(two["ids"]))
    return () if error < TOLERANCE and is_same else (error, is_same)
