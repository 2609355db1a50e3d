"""Rules about the content of a file: a case that breaks each, and a model that breaks none."""

from __future__ import annotations

import numpy as np
import pytest

import ggufkit
from ggufkit import typed
from rule_groups import CONTENT
from small_llama import HIDDEN, TOKENS, WIDTH, keys, tensors

NAME = "blk.1.ffn_up.weight"
DATA = np.ones((HIDDEN, WIDTH), np.float32)


def spoiled(value, row=5, column=7):
    data = DATA.copy()
    data[row, column] = value
    return data


def bad_scale():
    packed = ggufkit.quants.quantize(DATA, "Q8_0")
    packed[5, 34:36] = np.array([np.inf], np.float16).view(np.uint8)
    return ggufkit.packed(packed, "Q8_0")


def ternary():
    packed = ggufkit.quants.quantize(np.ones((4, 256), np.float32), "TQ1_0")
    return ggufkit.packed(packed, "TQ1_0")


def repeated():
    return [*TOKENS[:-1], "a"]


u32 = np.uint32
# Keys that differ, tensors that differ (None is left out), and the name of the file.
CASES = {
    "architecture-missing": ({"general__architecture": ""}, {}),
    "architecture-unknown": ({"general__architecture": "lama", "lama__x": u32(1)}, {}),
    "architecture-keys": ({key.replace(".", "__"): None for key in keys() if "llama." in key}, {}),
    "key-required": ({"llama__attention__layer_norm_rms_epsilon": None}, {}),
    "key-type": ({"llama__context_length": np.int32(128)}, {}),
    "key-kind": ({"llama__context_length": "long"}, {}),
    "split-total": ({"split__tensors__count": np.int32(3)}, {}),
    "alignment-ggml": ({"general__alignment": u32(8), "general__name": "x" * 9}, {}),
    "adapter-kind": ({"general__type": "adapter", "adapter__type": "ia3"}, {}),
    "adapter-tensor": (
        {"general__type": "adapter", "adapter__type": "lora"},
        {"blk.0.attn_q.weight.lora_a": np.ones((2, WIDTH), np.float32)},
    ),
    "expert-count": ({"llama__expert_count": u32(2), "llama__expert_used_count": u32(3)}, {}),
    "expert-groups": (
        {
            "llama__expert_count": u32(4),
            "llama__expert_used_count": u32(2),
            "llama__expert_group_count": u32(3),
        },
        {},
    ),
    "value-limit": ({"llama__expert_count": u32(1025), "llama__expert_used_count": u32(2)}, {}),
    "rope-scaling": ({"llama__rope__scaling__type": "ntk"}, {}),
    "rope-dimensions": ({"llama__rope__dimension_count": u32(32)}, {}),
    "head-lengths": ({"llama__attention__value_length": u32(8)}, {}),
    "head-count": ({"llama__attention__head_count_kv": u32(3)}, {}),
    "tensor-required": ({}, {"blk.1.attn_norm.weight": None}),
    "tensor-shape": ({"llama__feed_forward_length": u32(HIDDEN - 1)}, {}),
    "tensor-unknown": ({}, {"blk.0.attn_k_norm.weight": np.ones(WIDTH // 4, np.float32)}),
    "tensor-unread": (
        {
            "general__architecture": "clip",
            "clip__has_vision_encoder": True,
            "clip__projector_type": "gemma3",
        },
        {"v.blk.0.attn_k_bias.weight": np.ones(WIDTH, np.float32)},
    ),
    "projector-unknown": (
        {
            "general__architecture": "clip",
            "clip__has_vision_encoder": True,
            "clip__projector_type": "eyes",
        },
        {},
    ),
    "block-count": ({"llama__block_count": u32(3)}, {}),
    "block-arrays": ({"llama__feed_forward_length": typed("array[uint32]", [HIDDEN])}, {}),
    "embedding-width": ({"llama__embedding_length": u32(WIDTH + 4)}, {}),
    "token-rows": ({"tokenizer__ggml__tokens": [*TOKENS, "d"]}, {}),
    "token-arrays": ({"tokenizer__ggml__scores": typed("array[float32]", [1.0])}, {}),
    "tokenizer-missing": ({"tokenizer__ggml__model": None}, {}),
    "tokenizer-unknown": ({"tokenizer__ggml__model": "sentencepiece"}, {}),
    "pre-unknown": ({"tokenizer__ggml__pre": "lama-bpe"}, {}),
    "merges-missing": ({"tokenizer__ggml__merges": None}, {}),
    "token-arrays-longer": ({"tokenizer__ggml__scores": typed("array[float32]", [1.0] * 9)}, {}),
    "tokens-missing": ({"tokenizer__ggml__tokens": None}, {}),
    "token-duplicate": ({"tokenizer__ggml__tokens": repeated()}, {}),
    "token-type": ({"tokenizer__ggml__token_type": typed("array[int32]", [9] * 8)}, {}),
    "token-id-range": ({"tokenizer__ggml__eos_token_id": u32(8)}, {}),
    "token-id-type": ({"tokenizer__ggml__eos_token_id": u32(3)}, {}),
    "merge-unknown": ({"tokenizer__ggml__merges": ["a b", "b c"]}, {}),
    "quantization-version-value": ({"general__quantization_version": u32(1)}, {}),
    "file-type-value": ({"general__file_type": u32(4)}, {}),
    "file-type-mix": ({"general__file_type": u32(15)}, {}),
    "file-encoding": ({}, {}, "Small-Llama-1M-v1.0-Q8_0.gguf"),
    "file-name": ({}, {}, "small-f32.gguf"),
    "template-code": ({"tokenizer__chat_template": "{{ ''.__class__ }}"}, {}),
    "template-unsafe": ({"tokenizer__chat_template": "{{ messages.__class__.x }}"}, {}),
    "template-limit": (
        {"tokenizer__chat_template": "{% for i in range(99999) %}{{ 'x' * 99 }}{% endfor %}"},
        {},
    ),
    "template-syntax": ({"tokenizer__chat_template": "{% if %}"}, {}),
    "template-render": ({"tokenizer__chat_template": "{{ 1 // 0 }}"}, {}),
    "template-partial": (
        {"tokenizer__chat_template": "{{ messages[-1].content }}{{ 1 // (tools is none) }}"},
        {},
    ),
    "template-silent": ({"tokenizer__chat_template": "hello"}, {}),
    "diffusion-architecture": ({"general__architecture": "krea2"}, {}),
    "diffusion-shape": (
        {
            "general__architecture": "flux",
            f"comfy__gguf__orig_shape__{NAME.replace('.', '__')}": typed("array[int32]", [3, 5]),
        },
        {},
    ),
    "diffusion-reshaped": (
        {
            "general__architecture": "sd1",
            f"comfy__gguf__orig_shape__{NAME.replace('.', '__')}": typed(
                "array[int32]", [DATA.size // 2, 2]
            ),
        },
        {},
    ),
    "diffusion-type": ({"general__architecture": "flux"}, {"other.weight": ternary()}),
    "data-nan": ({}, {NAME: spoiled(np.nan)}),
    "data-infinite": ({}, {NAME: spoiled(-np.inf)}),
    "data-block": ({}, {NAME: bad_scale()}),
    "data-zero": ({}, {NAME: DATA * 0}),
    "data-zero-vector": ({}, {"blk.0.attn_q.bias": np.zeros(WIDTH, np.float32)}),
}
# Shown in tests of their own below.
ELSEWHERE = {"diffusion-dims", "unfinished", "split-key", "template-unrendered"}


@pytest.fixture
def checked(tmp_path):
    """Check a small Llama with some keys, tensors and name of its own."""

    def checked(others=(), spoiled=(), name="model.gguf"):
        arrays = {k: v for k, v in (tensors() | dict(spoiled)).items() if v is not None}
        path = tmp_path / name
        ggufkit.save(path, arrays, keys(**dict(others)))
        return ggufkit.check(path, data=True, names=name != "model.gguf")

    return checked


def test_sound_model_breaks_no_rule(checked):
    assert checked() == []
    assert checked(name="Small-Llama-1M-v1.0-F32.gguf") == []


def test_every_rule_has_a_case():
    assert CASES.keys() | ELSEWHERE == CONTENT


@pytest.mark.parametrize("rule", CASES)
def test_case_breaks_its_rule(checked, rule):
    findings = {finding.rule: finding for finding in checked(*CASES[rule])}
    assert rule in findings
    assert findings[rule].message.isprintable()


@pytest.mark.parametrize("rule", [rule for rule in CASES if rule.startswith(("data", "tensor-s"))])
def test_finding_about_a_tensor_gives_the_place_of_the_tensor(checked, rule):
    finding = next(candidate for candidate in checked(*CASES[rule]) if candidate.rule == rule)
    with ggufkit.open(finding.path) as model:
        assert finding.offset in {tensor.offset for tensor in model.tensors.values()}


def test_names_the_first_bad_element(checked):
    (finding,) = checked({}, {NAME: spoiled(np.nan)})
    assert finding.message.endswith(f"first at element {5 * WIDTH + 7}")
    (finding,) = checked({"general__quantization_version": u32(2)}, {NAME: bad_scale()})
    assert finding.message.endswith(f"first in block {5 * 2 + 1}")


def test_reads_tensor_data_only_on_request(checked, tmp_path):
    checked({}, {NAME: spoiled(np.nan)})
    assert ggufkit.check(tmp_path / "model.gguf") == []


def test_vocabulary_only_file_needs_no_hyperparameters(tmp_path):
    path = tmp_path / "vocabulary.gguf"
    hyper = {key.replace(".", "__"): None for key in keys() if key.startswith("llama.")}
    ggufkit.save(path, {}, keys(**hyper))
    assert ggufkit.check(path) == []


def test_rules_of_models_do_not_apply_to_other_kinds_of_files(tmp_path):
    path = tmp_path / "imatrix.gguf"
    ggufkit.save(path, {"a": DATA}, keys(general__type="imatrix"))
    assert ggufkit.check(path) == []


def test_impossible_block_count_does_not_slow_the_check(checked):
    spoiled = {"blk.4294967294.x": DATA}
    rules = [finding.rule for finding in checked({"llama__block_count": u32(2**32 - 1)}, spoiled)]
    assert "tensor-required" in rules


def test_accepts_a_small_alignment_where_all_tensors_are_aligned(checked):
    """llama.cpp loads such a file, by luck."""
    assert checked({"general__alignment": u32(8), "general__name": "x"}) == []


def test_reports_a_set_without_the_number_of_tensors(tmp_path):
    whole = tmp_path / "whole.gguf"
    ggufkit.save(whole, tensors(), keys())
    with ggufkit.open(whole) as model:
        first, *_ = ggufkit.write(model, tmp_path / "set.gguf", shard_size=40_000)
    ggufkit.edit_in_place(first, drop_keys=["split.tensors.count"], force=True)
    assert "split-key" in [finding.rule for finding in ggufkit.check(first)]


@pytest.mark.parametrize(
    ("merge", "is_known"),
    [
        ("  a", True),  # the first token is a space
        ("a b c", True),  # the second one has a space
        ("a b", True),
        ("a ", False),
        (" a", False),
        ("ab", False),
        ("", False),
        ("b a", False),
        ("a x", False),
    ],
)
def test_a_merge_is_two_tokens_that_make_a_third(checked, merge, is_known):
    tokens = [*TOKENS[:3], "a", " ", " a", "b c", "ab c", "b", "ab"]
    findings = checked({"tokenizer__ggml__tokens": tokens, "tokenizer__ggml__merges": [merge]})
    assert ("merge-unknown" not in {finding.rule for finding in findings}) == is_known
