"""With PyTorch, `exactly` makes the exponentials of llama.cpp's converter, made on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ggufkit
import projector_folders
import real

pytestmark = pytest.mark.torch

FOLDER = Path(os.environ.get("GGUFKIT_ORACLE", ""))


@pytest.mark.parametrize("case", ["mamba", "jamba"])
def test_exactly_gives_the_whole_file_of_the_converter(case, tmp_path):
    out = tmp_path / "ours.gguf"
    with ggufkit.convert(FOLDER / "checkpoints" / case, pre="gpt-2", exactly=True) as model:
        ggufkit.write(model, out)
    assert out.read_bytes() == (FOLDER / "references" / f"{case}-auto.gguf").read_bytes()


@pytest.mark.parametrize("case", ["gemma4", "qwen3-tts", "qwen3asr"])
def test_exactly_gives_the_whole_projector_of_the_converter(case, tmp_path):
    folder = projector_folders.make(projector_folders.cases()[case], tmp_path / case)
    ours, theirs = tmp_path / "ours.gguf", tmp_path / "theirs.gguf"
    program = [sys.executable, f"{real.llama_cpp_source()}/convert_hf_to_gguf.py", "--mmproj"]
    subprocess.run([*program, folder, "--outfile", theirs, "--outtype", "auto"], check=True)
    with ggufkit.convert(folder, mmproj=True, exactly=True) as model:
        ggufkit.write(model, ours)
    assert ours.read_bytes() == theirs.read_bytes()
