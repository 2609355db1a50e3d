"""With PyTorch, `exactly` makes the exponentials of llama.cpp's converter, made on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import ggufkit

pytestmark = pytest.mark.torch

FOLDER = Path(os.environ.get("GGUFKIT_ORACLE", ""))


@pytest.mark.parametrize("case", ["mamba", "jamba"])
def test_exactly_gives_the_whole_file_of_the_converter(case, tmp_path):
    out = tmp_path / "ours.gguf"
    with ggufkit.convert(FOLDER / "checkpoints" / case, pre="gpt-2", exactly=True) as model:
        ggufkit.write(model, out)
    assert out.read_bytes() == (FOLDER / "references" / f"{case}-auto.gguf").read_bytes()
