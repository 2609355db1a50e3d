"""Files of llama.cpp's converter are unchanged after export and conversion."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import digests
import known

import ggufkit
from ggufkit.conversion.checkpoint.folder import open_checkpoint
from ggufkit.format.encoding import CANONICAL

pytestmark = pytest.mark.oracle

PRE_TOKENIZER = "gpt-2"  # given to the reference, which knows only hashes
FOLDER = Path(os.environ.get("GGUFKIT_ORACLE", ""))
CASES = known.exported(FOLDER)
TOLERANCE = 1e-3  # of the largest number
# A model that looked at pictures is another class now, no file of llama.cpp keeps Mistral's sliding
# window, and none the pooler between BERT and the head of its classifiers. Of a reranker's output
# matrix a file keeps two rows, so that an export is a classifier.
CLASSIFIERS = {"bert-classifier", "bert-two-labels", "qwen3-reranker"}
OTHERWISE = CLASSIFIERS | known.WITHOUT_EXPORT | known.seeing() | {"gemma3-pictures", "mistral"}
LOADED = sorted({path.stem for path in (FOLDER / "computed").glob("*.npz")} - OTHERWISE)
# Jina 3 wraps its model and its matrices for adapters; an export has none of these.
TEXT_MODEL = re.compile(
    r"^thinker\.|^language_model\.|(?<=^model\.)language_model\."
    r"|^roberta\.(?=e.*layers|emb)|\.parametrizations(?=\.weight)|\.original$"
)
# RoBERTa's first rows; rows of zeros after those of Gemma 3n; of Qwen 4, the first part of many.
PARTIAL = {
    "embeddings.position_embeddings.weight", "model.embed_tokens_per_layer.weight",
    "model.layers.1.ple.ple_embedding.ngram_embedding.shard_0.weight",
}  # fmt: skip


@pytest.fixture
def exported(case, tmp_path):
    """Return the reference and the folder that it was exported to."""
    reference = reference_of(case, kind_of(case), tmp_path)
    with ggufkit.open(reference) as model:
        ggufkit.export(model, tmp_path / case)
    return reference, tmp_path / case


def reference_of(case, kind, folder):
    """Return the converter's file; if only its digests are recorded, ours, which has the same."""
    reference = FOLDER / "references" / f"{case}-{kind}.gguf"
    if reference.exists():
        return reference
    out = folder / reference.name
    checkpoint = FOLDER / "checkpoints" / case
    with ggufkit.convert(checkpoint, outtype=kind, pre=PRE_TOKENIZER) as model:
        ggufkit.write(model, out)
    assert digests.is_recorded(case, FOLDER / "checkpoints")
    assert digests.of_file(out, case) == digests.recorded()[case][kind]
    return out


def kind_of(case):
    return "f32" if case == "llama-f32" else "auto"


def difference(one, other):
    """Return the names of keys and tensors that differ, which help more than bytes."""
    with ggufkit.open(one) as before, ggufkit.open(other) as after:
        keys = {*before.metadata, *after.metadata}
        names = {*before.tensors, *after.tensors}
        return [
            *(k for k in keys if content(before.metadata, k) != content(after.metadata, k)),
            *(n for n in names if raw(before.tensors, n) != raw(after.tensors, n)),
        ]


def is_rounding(name, one, other):
    """Whether an exponential differs as PyTorch's results do between processors."""
    if not name.endswith((".ssm_a", ".ssm_a.weight")):
        return False
    with ggufkit.open(one) as before, ggufkit.open(other) as after:
        numbers = before.tensors[name].numpy()
        return np.abs(numbers - after.tensors[name].numpy()).max() <= 2 * np.spacing(
            np.abs(numbers).max()
        )


def content(metadata, key):
    return metadata.arranged([key]).encode(CANONICAL) if key in metadata else None


def raw(tensors, name):
    return bytes(tensors[name].raw()) if name in tensors else None


@pytest.mark.parametrize("case", CASES)
def test_converting_an_exported_model_gives_the_same_file(case, exported, tmp_path):
    reference, folder = exported
    out = tmp_path / "again.gguf"
    with ggufkit.convert(folder, outtype=kind_of(case)) as model:
        ggufkit.write(model, out)
    different = [
        name for name in difference(reference, out) if not is_rounding(name, reference, out)
    ]
    assert different == []
    if not difference(reference, out):
        assert out.read_bytes() == reference.read_bytes()


@pytest.mark.parametrize("case", sorted({*CASES} - known.SCALED))
def test_round_trip_restores_checkpoint_tensors_bit_for_bit(case, exported):
    tensors = open_checkpoint(FOLDER / "checkpoints" / case).tensors
    # Of a model that looks at pictures too, the model of texts comes back.
    before = {TEXT_MODEL.sub("", name): tensor for name, tensor in tensors.items()}
    after = open_checkpoint(exported[1]).tensors
    names = [name for name, t in after.items() if name in before and before[name].type == t.type]
    assert names
    different = [n for n in names if not np.array_equal(before[n].raw(), after[n].raw())]
    assert set(different) <= PARTIAL


def test_exported_checkpoints_compute_and_tokenize_like_the_originals(tmp_path):
    cases = [case for case in LOADED if case not in known.UNLOADED]
    for case in cases:
        with ggufkit.open(reference_of(case, "f32", tmp_path)) as model:
            ggufkit.export(model, tmp_path / case)
    script = Path(__file__).with_name("computing.py")
    for environment in ("venv", "venv5"):
        python = FOLDER / environment / "bin" / "python"
        command = [python, script, tmp_path, tmp_path / "out", *cases]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-6000:]
    differing = {
        case: difference for case in cases if (difference := _compared(case, tmp_path / "out"))
    }
    assert differing == {}


@pytest.mark.parametrize("case", ["gpt-oss-mxfp4"])
def test_transformers_loads_the_same_experts_of_mxfp4(case, exported):
    script = Path(__file__).with_name("same_weights.py")
    command = [FOLDER / "venv" / "bin" / "python", script, FOLDER / "checkpoints" / case]
    done = subprocess.run([*command, exported[1]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-6000:]


def _compared(case, out):
    """Return how the logits of a checkpoint differ from the first one's, and its ids."""
    with np.load(FOLDER / "computed" / f"{case}.npz") as one, np.load(out / f"{case}.npz") as two:
        before, after = one["values"], two["values"]
        assert before.shape == after.shape
        error = float(np.abs(after - before).max() / np.abs(before).max())
        is_same = json.loads(str(one["ids"])) == json.loads(str(two["ids"]))
    return () if error < TOLERANCE and is_same else (error, is_same)
