"""llama.cpp on converted files computes the same as transformers on the checkpoints.

`computing.py` keeps what transformers computes; llama.cpp runs here, on the F32 file.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import known
import running

import ggufkit
import llama_loads

pytestmark = pytest.mark.oracle

FOLDER = Path(os.environ.get("GGUFKIT_ORACLE", ""))
TOLERANCE = 1e-3  # of the largest number
WIDTH = 64  # of the cases' embeddings


@pytest.fixture
def converted(case, tmp_path):
    """Return the F32 file of a case."""
    out = tmp_path / "tiny.gguf"
    checkpoint = FOLDER / "checkpoints" / case
    with ggufkit.convert(checkpoint, outtype="f32", pre="gpt-2", name="tiny") as model:
        ggufkit.write(model, out)
    return out


def difference(ours, theirs):
    return np.abs(ours - theirs).max() / np.abs(theirs).max()


def test_there_are_cases():
    assert len(known.computed(FOLDER)) > 50, (
        "make test-oracle computes them and sets GGUFKIT_ORACLE"
    )


@pytest.mark.parametrize("case", known.computed(FOLDER))
def test_llama_cpp_computes_the_same_as_transformers(case, converted, tmp_path):
    with np.load(FOLDER / "computed" / f"{case}.npz") as record:
        prompt, expected = record["prompt"].tolist(), record["values"]
    if expected.shape[-1] == WIDTH:
        job = {"do": "embeddings", "pooling": "none", "prompt": prompt}
    elif case == "t5":  # llama.cpp leaves out the last factor, by which no order changes
        job = {"do": "logits", "encoded": prompt, "prompt": prompt[::-1]}
        expected = expected * WIDTH**0.5
    else:
        job = {"do": "logits", "prompt": prompt}
    actual = running.run(converted, tmp_path / "found.npy", **job)
    assert actual.shape == expected.shape
    assert difference(actual, expected) < TOLERANCE


def test_llama_cpp_computes_from_what_transformers_does_not_compute(tmp_path):
    paths = {}
    for case in known.uncomputed(FOLDER):
        paths[case] = tmp_path / f"{case}.gguf"
        checkpoint = FOLDER / "checkpoints" / case
        with ggufkit.convert(checkpoint, outtype="f32", pre="gpt-2", name="tiny") as model:
            ggufkit.write(model, paths[case])
    refused = llama_loads.refusals(paths.values(), computes=True)
    known_cases = known.FAILING | known.UNCOMPUTABLE
    assert {path.stem: why for path, why in refused.items() if path.stem not in known_cases} == {}
    assert {path.stem for path in refused} == known_cases


@pytest.mark.parametrize("case", ["mistral", "phi3-long"])
def test_sliding_layers_differ_only_beyond_the_window(case, converted, tmp_path):
    with np.load(FOLDER / "computed" / f"{case}.npz") as record:
        prompt, expected = record["prompt"].tolist(), record["values"]
    window = json.loads((FOLDER / "checkpoints" / case / "config.json").read_text())[
        "sliding_window"
    ]
    actual = running.run(converted, tmp_path / "found.npy", do="logits", prompt=prompt)
    assert difference(actual[:window], expected[:window]) < TOLERANCE
    assert difference(actual, expected) > TOLERANCE


@pytest.mark.parametrize("case", known.tokenized(FOLDER))
def test_llama_cpp_tokenizes_like_transformers(case, converted, tmp_path):
    with np.load(FOLDER / "computed" / f"{case}.npz") as record:
        texts, expected = json.loads(str(record["texts"])), json.loads(str(record["ids"]))
    actual = running.run(converted, tmp_path / "found.npy", do="tokens", texts=texts)
    ends = np.flatnonzero(actual == running.END)
    assert [ids[ids != running.END].tolist() for ids in np.split(actual, ends)[:-1]] == expected
