"""ggufkit's output is byte-identical to that of llama.cpp's converter for each checkpoint.

The checkpoints and their references are made in an environment with PyTorch by `make test-oracle`,
which names their folder in GGUFKIT_ORACLE.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import digests
import known
from departures import KEYS
from digests import ROUNDED, TYPES

import ggufkit
from ggufkit.errors import CheckpointError
from ggufkit.format.coerce import plain

pytestmark = pytest.mark.oracle

FOLDER = Path(os.environ.get("GGUFKIT_ORACLE", ""))
PRE_TOKENIZER = "gpt-2"  # given to the reference, which knows only hashes


def keys(model, case):
    """Return all metadata: keys, types and values, but for the keys that depart in this case."""
    values = model.metadata
    keys_to_compare = [key for key in values if key not in KEYS.get(case, ())]
    return [(key, values.type_name(key), plain(values[key])) for key in keys_to_compare]


def outlines(model):
    return [(tensor.name, tensor.type.name, tensor.shape) for tensor in model.tensors.values()]


def differing(ours, theirs):
    """Return the tensors whose bytes differ by more than the last bit of a rounding."""
    pairs = zip(ours.tensors.values(), theirs.tensors.values(), strict=True)
    return [a.name for a, b in pairs if not _same(a, b)]


def _same(ours, theirs):
    if not ours.name.endswith(ROUNDED):
        return np.array_equal(ours.raw(), theirs.raw())
    steps = ours.numpy().view(np.int32).astype(np.int64) - theirs.numpy().view(np.int32)
    return bool(np.abs(steps).max() <= 1)


def test_there_are_cases():
    assert known.checkpoints(FOLDER), (
        "make test-oracle makes the checkpoints and sets GGUFKIT_ORACLE"
    )


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("case", known.converted(FOLDER))
def test_file_matches_the_reference_byte_for_byte(case, kind, tmp_path):
    checkpoint = FOLDER / "checkpoints" / case
    reference = FOLDER / "references" / f"{case}-{kind}.gguf"
    error = reference.with_suffix(".error")
    out = tmp_path / "out.gguf"
    exactly = kind == "f32"  # changes nothing where nothing departs
    with ggufkit.convert(checkpoint, outtype=kind, pre=PRE_TOKENIZER, exactly=exactly) as model:
        ggufkit.write(model, out)
    if not reference.exists() and digests.is_recorded(case, FOLDER / "checkpoints"):
        assert digests.of_file(out, case) == digests.recorded()[case][kind]
        return
    assert reference.exists(), error.read_text() if error.exists() else "no reference was made"
    with ggufkit.open(out) as ours, ggufkit.open(reference) as theirs:
        assert keys(ours, case) == keys(theirs, case)
        assert outlines(ours) == outlines(theirs)
        assert differing(ours, theirs) == []
        is_rounded = any(name.endswith(ROUNDED) for name in ours.tensors)
    assert is_rounded or case in KEYS or out.read_bytes() == reference.read_bytes()


@pytest.mark.parametrize("case", sorted(known.UNLOADABLE))
def test_refuses_what_llama_cpp_would_not_load(case):
    with pytest.raises(CheckpointError, match=r"cls\.weight"):
        ggufkit.convert(FOLDER / "checkpoints" / case, pre=PRE_TOKENIZER)
