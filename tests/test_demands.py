"""What check says that llama.cpp refuses, llama.cpp refuses; and what is sound it loads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ggufkit
from ggufkit.demands import demands
from small_llama import keys, tensors

CHILD = Path(__file__).with_name("llama_memory.py")
BLOCK = 1
LLAMA = demands("llama")


@pytest.fixture
def loads(llama_cpp, tmp_path):
    """Tell whether llama.cpp loads a small Llama with other keys, or without a tensor."""

    def loads(others=(), without=""):
        path = tmp_path / "model.gguf"
        held = {name: data for name, data in tensors().items() if name != without}
        ggufkit.save(path, held, keys(**dict(others)))
        is_refused = any(found.breaks == "llama.cpp" for found in ggufkit.check(path))
        job = json.dumps({"path": str(path)})
        done = subprocess.run(
            [sys.executable, CHILD], input=job, capture_output=True, text=True, check=False
        )
        assert is_refused == (done.returncode != 0), done.stderr[-1000:]
        return not is_refused

    return loads


def test_sound_model_is_loaded(loads):
    assert loads()


@pytest.mark.parametrize("key", ["block_count", "attention.layer_norm_rms_epsilon"])
def test_model_without_a_demanded_key_is_refused(loads, key):
    assert key in LLAMA.keys
    assert not loads({f"llama.{key}".replace(".", "__"): None})


@pytest.mark.matrix
@pytest.mark.parametrize("demand", LLAMA.tensors, ids=lambda demand: demand.name)
def test_model_without_a_demanded_tensor_is_refused(loads, demand):
    assert not loads(without=demand.name.replace("{i}", str(BLOCK)))


@pytest.mark.parametrize(
    "others",
    [
        {"llama__context_length": np.int32(128)},
        {"llama__feed_forward_length": np.uint32(64)},
        {"tokenizer__ggml__tokens": ["<unk>", "<s>", "</s>", "a", "b", "ab", "c", "a"]},
        {"llama__expert_used_count": np.uint32(3), "llama__expert_count": np.uint32(2)},
        {"general__alignment": np.uint32(8), "general__name": "x" * 9},
    ],
    ids=lambda others: next(iter(others)),
)
def test_what_check_calls_refused_is_refused(loads, others):
    assert not loads(others)


def test_id_beyond_the_vocabulary_is_only_odd(loads):
    assert loads({"tokenizer__ggml__eos_token_id": np.uint32(8)})


def test_architectures_that_llama_cpp_does_not_know_have_no_demands():
    assert demands("lama") is None
    assert demands("clip") is None
