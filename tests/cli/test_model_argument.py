from __future__ import annotations

import pytest

from plain_checkpoint import CONFIG, whole
from shell import ggufkit
from tensors_file import write_checkpoint
from tokenizer_files import PIECES


@pytest.fixture
def checkpoint(tmp_path):
    config = CONFIG | {"architectures": ["LlamaForCausalLM"]}
    folder = write_checkpoint(tmp_path / "Tiny-Llama", config, model=whole())
    (folder / "tokenizer.model").write_bytes(PIECES)
    return folder


def test_quantizes_a_checkpoint_as_convert_does(checkpoint, tmp_path):
    ours, theirs = tmp_path / "ours.gguf", tmp_path / "theirs.gguf"
    assert ggufkit("quantize", checkpoint, ours, "Q8_0").code == 0
    assert ggufkit("convert", checkpoint, theirs, "--quantize", "Q8_0").code == 0
    assert ours.read_bytes() == theirs.read_bytes()


def test_prints_the_notes_of_a_conversion(checkpoint, tmp_path):
    assert "10 rows: padded" in ggufkit("quantize", checkpoint, tmp_path / "out.gguf", "F16").err


def test_plans_sizes_and_estimates_memory_of_a_checkpoint(checkpoint):
    assert "Q4_K_M" in ggufkit("plan", checkpoint).out
    assert "weights" in ggufkit("estimate", checkpoint).out
