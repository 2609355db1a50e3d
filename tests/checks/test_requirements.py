"""llama.cpp refuses the models that check says it refuses, and loads sound models."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

import ggufkit
import llama_memory
from demanded import ModelSource, source_text, typed
from ggufkit import typed as typed_value
from ggufkit.checks.consistency import MAX_EXPERTS, ROPE_SCALINGS
from ggufkit.checks.requirements import requirements
from ggufkit.checks.tensor_requirements import MAX_BLOCKS
from required_tensors import TensorSource
from small_llama import keys, tensors

CHILD = Path(llama_memory.__file__)
BLOCK = 1
LLAMA = requirements("llama")


@pytest.fixture
def loads(llama_cpp, tmp_path):
    """Return whether llama.cpp loads a small Llama with other keys, or without a tensor."""

    def loads(others=(), without=""):
        path = tmp_path / "model.gguf"
        arrays = {name: data for name, data in tensors().items() if name != without}
        ggufkit.save(path, arrays, keys(**dict(others)))
        is_refused = any(finding.breaks == "llama.cpp" for finding in ggufkit.check(path))
        job = json.dumps({"path": str(path)})
        done = subprocess.run(
            [sys.executable, CHILD], input=job, capture_output=True, text=True, check=False
        )
        assert is_refused == (done.returncode != 0), done.stderr[-1000:]
        return not is_refused

    return loads


def test_llama_cpp_loads_a_sound_model(loads):
    assert loads()


@pytest.mark.parametrize("key", ["block_count", "attention.layer_norm_rms_epsilon"])
def test_llama_cpp_refuses_a_model_without_a_required_key(loads, key):
    assert key in LLAMA.keys
    assert not loads({f"llama.{key}".replace(".", "__"): None})


@pytest.mark.matrix
@pytest.mark.parametrize("demand", LLAMA.tensors, ids=lambda demand: demand.name)
def test_llama_cpp_refuses_a_model_without_a_required_tensor(loads, demand):
    assert not loads(without=demand.name.replace("{i}", str(BLOCK)))


def test_queries_keys_and_values_may_share_one_tensor(tmp_path):
    arrays = tensors()
    for block in (0, 1):
        parts = [arrays.pop(f"blk.{block}.attn_{part}.weight") for part in "qkv"]
        arrays[f"blk.{block}.attn_qkv.weight"] = np.concatenate(parts)
    ggufkit.save(tmp_path / "model.gguf", arrays, keys())
    assert ggufkit.check(tmp_path / "model.gguf") == []
    del arrays["blk.1.attn_qkv.weight"]
    ggufkit.save(tmp_path / "model.gguf", arrays, keys())
    missed = [finding.message for finding in ggufkit.check(tmp_path / "model.gguf")]
    assert [part for part in "qkv" if f"attn_{part}" in " ".join(missed)] == ["q", "k", "v"]


@pytest.mark.parametrize(
    "others",
    [
        {"llama__context_length": np.int32(128)},
        {"llama__feed_forward_length": np.uint32(64)},
        {"tokenizer__ggml__tokens": ["<unk>", "<s>", "</s>", "a", "b", "ab", "c", "a"]},
        {"llama__expert_used_count": np.uint32(3), "llama__expert_count": np.uint32(2)},
        {"general__alignment": np.uint32(8), "general__name": "x" * 9},
        {"general__file_type": np.int32(0)},
        {"general__name": np.uint32(2)},
        {"llama__rope__freq_base": np.uint32(10000)},
        {"llama__rope__scaling__type": np.uint32(1)},
        {"llama__rope__dimension_count": np.float32(16)},
        {"llama__attention__head_count": typed_value("array[int64]", [4, 4])},
        {"llama__attention__head_count_kv": typed_value("array[float32]", [2, 2])},
        {"llama__context_length": typed_value("array[uint32]", [128, 128])},
        {"tokenizer__ggml__scores": typed_value("array[float64]", [0] * 8)},
        {"tokenizer__ggml__token_type": typed_value("array[uint32]", [1] * 8)},
        {"tokenizer__ggml__remove_extra_whitespaces": np.uint8(1)},
    ],
    ids=lambda others: next(iter(others)),
)
def test_llama_cpp_refuses_what_check_says_it_refuses(loads, others):
    assert not loads(others)


def test_token_id_beyond_the_vocabulary_does_not_prevent_loading(loads):
    assert loads({"tokenizer__ggml__eos_token_id": np.uint32(8)})


@pytest.mark.parametrize(
    "others",
    [
        {"general__quantization_version": np.int32(2), "general__type": np.uint32(1)},
        {"llama__attention__head_count": typed_value("array[uint32]", [4, 4])},
        {"llama__attention__head_count_kv": typed_value("array[int32]", [2, 2])},
        {"llama__attention__sliding_window": np.float64(4)},
        {"tokenizer__ggml__scores": typed_value("array[int32]", [0] * 8)},
        {"llama__unheard_of": np.float64(1)},
    ],
    ids=lambda others: next(iter(others)),
)
def test_accepts_the_key_types_that_llama_cpp_accepts(loads, others):
    assert loads(others)


ALL = tomllib.loads(
    (Path(ggufkit.__file__).parent / "checks" / "requirements.toml").read_text("utf-8")
)


@pytest.fixture(scope="module")
def source(llama_cpp_loader):
    return ModelSource(llama_cpp_loader)


@pytest.fixture(scope="module")
def tensor_source(llama_cpp_loader, source):
    return TensorSource(llama_cpp_loader, source)


def test_knows_every_architecture_of_llama_cpp(source):
    assert set(ALL["architectures"]) == set(source.classes) - {"clip"}


@pytest.mark.parametrize("architecture", ALL["architectures"])
def test_required_keys_match_the_source_of_llama_cpp(source, architecture):
    own, common = source.read_by(architecture), source.read_by_all()
    known = requirements(architecture)
    assert {read.key for read in (*common, *own) if read.is_required and read.depth == 1} == {
        *known.keys
    }
    kinds = typed(common) | typed(own)
    assert {key: known.types[key] for key in kinds} == kinds
    arrays = {read.key for read in (*common, *own) if read.how != "get_key"}
    assert arrays <= known.arrays
    assert set(known.types) <= kinds.keys() | arrays | set(known.keys)


@pytest.mark.parametrize("architecture", ALL["architectures"])
def test_required_tensors_match_the_source_of_llama_cpp(tensor_source, architecture):
    requirements_of_llama_cpp = {
        (tensor.name, tensor.is_dense, tensor.unless)
        for tensor in tensor_source.created_by(architecture)
        if tensor.is_certain
    }
    known = requirements(architecture).tensors
    assert {(row.name, row.is_dense, row.unless) for row in known} == requirements_of_llama_cpp


def test_unknown_architectures_have_no_requirements():
    assert requirements("lama") is None
    assert requirements("clip") is None


def test_tokenizers_match_the_source_of_llama_cpp(llama_cpp_loader):
    text = source_text(llama_cpp_loader / "llama-vocab.cpp")
    body = text[text.index("void llama_vocab::impl::load(") : text.index("unknown pre-tokenizer")]
    for name, known in (("model", ALL["tokenizers"]), ("pre", ALL["pre_tokenizers"])):
        assert set(known) == {*re.findall(rf'tokenizer_{name} == "([^"]+)"', body)}


def test_head_lengths_match_the_assertions_of_llama_cpp(source):
    equal = source.asserted_by(r"GGML_ASSERT\(n_embd_head == hparams\.n_embd_head_k\(\)\)")
    assert set(ALL["equal_heads"]) == equal
    whole = source.asserted_by(r"GGML_ASSERT\(n_embd_head == n_rot\)")
    assert set(ALL["whole_rope"]) == whole | {"llama", "deci", "falcon", "llama-embed"}


def test_limits_match_llama_cpp(llama_cpp_loader):
    text = source_text(llama_cpp_loader / "llama-hparams.h")
    limits = {name: int(number) for name, number in re.findall(r"#define (\w+)\s+(\d+)", text)}
    assert limits["LLAMA_MAX_LAYERS"] == MAX_BLOCKS
    assert limits["LLAMA_MAX_EXPERTS"] == MAX_EXPERTS
    table = source_text(llama_cpp_loader / "llama-model.cpp")
    names = re.findall(r'\{ LLAMA_ROPE_SCALING_TYPE_\w+,\s*"(\w+)"', table)
    assert tuple(names) == ROPE_SCALINGS
