"""What ggufkit converts is byte for byte what llama.cpp's converter makes of the same checkpoint.

The checkpoints and their references are made in an environment with PyTorch by `make test-oracle`,
which names their folder in GGUFKIT_ORACLE.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import ggufkit
from ggufkit.coerce import plain

pytestmark = pytest.mark.oracle

FOLDER = Path(os.environ.get("GGUFKIT_ORACLE", ""))
PRE_TOKENIZER = "gpt-2"  # what the reference is told, for it knows no rules but hashes
TYPES = ("auto", "f32", "q8_0")
CASES = sorted(path.name for path in (FOLDER / "checkpoints").glob("[a-z]*"))


def facts(model):
    """Return everything that a difference can be read from."""
    keys = [
        (key, model.metadata.type_name(key), plain(model.metadata[key])) for key in model.metadata
    ]
    tensors = [(t.name, t.type.name, t.shape, bytes(t.raw())) for t in model.tensors.values()]
    return keys, tensors


def test_there_are_cases():
    assert CASES, "make test-oracle makes the checkpoints and sets GGUFKIT_ORACLE"


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("case", CASES)
def test_file_is_the_references_byte_for_byte(case, kind, tmp_path):
    checkpoint = FOLDER / "checkpoints" / case
    reference = FOLDER / "references" / f"{case}-{kind}.gguf"
    error = reference.with_suffix(".error")
    assert reference.exists(), error.read_text() if error.exists() else "no reference was made"
    out = tmp_path / "out.gguf"
    with ggufkit.convert(checkpoint, outtype=kind, pre=PRE_TOKENIZER) as model:
        ggufkit.write(model, out)
    with ggufkit.open(out) as ours, ggufkit.open(reference) as theirs:
        assert facts(ours) == facts(theirs)
    assert out.read_bytes() == reference.read_bytes()
