"""llama.cpp tokenizes with converted vocabularies of their own as the models' code does."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import own_vocabularies
import running

import ggufkit

pytestmark = pytest.mark.oracle

FOLDER = Path(os.environ.get("GGUFKIT_ORACLE", ""))
TEXT = "The quick brown fox 日本語 é \n\n don't \\n\" 🦙"


def longest_tokens(data):
    """Return the ids of the longest tokens, one after the other; the first token has the id 1."""
    numbers = {token: number for number, token in enumerate(own_vocabularies.pieces(), 1)}
    ids = []
    while data:
        size = max(n for n in range(1, len(data) + 1) if data[:n] in numbers)
        ids.append(numbers[data[:size]])
        data = data[size:]
    return ids


def test_llama_cpp_takes_rwkvs_longest_tokens(tmp_path):
    out = tmp_path / "tiny.gguf"
    with ggufkit.convert(FOLDER / "checkpoints" / "rwkv7") as model:
        ggufkit.write(model, out)
    found = running.run(out, tmp_path / "found.npy", do="tokens", texts=[TEXT])
    assert found.tolist() == [*longest_tokens(TEXT.encode()), running.END]
