from __future__ import annotations

import json
import math

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ggufkit
from ggufkit.format.values import Strings
from ggufkit.inspection.summary import describe, plain, summarize, type_shares
from ggufkit.models.model import Tensors, bits_per_weight
from ggufkit.models.tensors.in_memory import as_tensor

ZEROS = np.zeros((2, 64), np.float32)


def model_of(metadata, tensors=None):
    listed = (as_tensor(name, value) for name, value in (tensors or {}).items())
    return ggufkit.Model(ggufkit.Metadata(metadata), Tensors(listed))


def exact(value):
    """Return the value after a round trip through JSON, as another program gets it."""
    return json.loads(json.dumps(plain(value), allow_nan=False))


# The summary.


def test_summarizes_smollm2(smollm2):
    summary = summarize(ggufkit.open(smollm2))
    assert summary.architecture == "llama"
    assert summary.name == "Smollm2 135M 8k Lc100K Mix1 Ep2"
    assert summary.size_label == "135M"
    assert summary.license == "apache-2.0"
    assert summary.parameters == 134_515_008
    assert summary.recipe == "Q4_1"
    assert [share.type for share in summary.types] == ["Q4_1", "Q8_0", "F32"]
    assert summary.bits_per_weight == pytest.approx(5.7437, abs=1e-4)
    assert (summary.context, summary.layers, summary.embedding) == (8192, 30, 576)
    assert (summary.feed_forward, summary.heads, summary.kv_heads) == (1536, 9, 3)
    assert (summary.vocabulary, summary.tokenizer) == (49152, "gpt2 (smollm)")
    assert summary.chat_template.startswith("{% for message in messages %}")
    assert summary.experts is None


def test_equal_numbers_of_all_layers_are_shown_as_one():
    metadata = {
        "general.architecture": "odd",
        "odd.attention.head_count": [8, 8, 8],
        "odd.attention.head_count_kv": [8, 4, 1],
    }
    summary = summarize(model_of(metadata))
    assert summary.heads == 8
    assert summary.kv_heads == [8, 4, 1]


def test_leaves_out_values_of_the_wrong_type():
    metadata = {
        "general.architecture": 7,
        "general.file_type": "Q8_0",
        "general.name": ["a"],
        "None.block_count": 3,
        "7.block_count": 4,
        "tokenizer.ggml.tokens": 3,
        "tokenizer.chat_template": True,
    }
    summary = summarize(model_of(metadata))
    assert summary.architecture is None
    assert (summary.recipe, summary.name, summary.layers) == (None, None, None)
    assert (summary.vocabulary, summary.chat_template) == (None, None)


@pytest.mark.parametrize(
    ("file_type", "recipe"),
    [(0, "F32"), (15, "Q4_K_M"), (1024 + 7, "Q8_0 (guessed)"), (5, "unknown")],
)
def test_names_the_recipe(file_type, recipe):
    assert summarize(model_of({"general.file_type": file_type})).recipe == recipe


def test_recipe_numbers_match_the_official_package():
    from ggufkit.format.file_types import FILE_TYPES

    theirs = {
        member.value: member.name.removeprefix("MOSTLY_").removeprefix("ALL_")
        for member in gguf.LlamaFileType
        if member.name != "GUESSED"
    }
    ours = {number: name.removesuffix("_MOE") for number, name in FILE_TYPES.items()}
    theirs = {number: name.removesuffix("_MOE") for number, name in theirs.items()}
    assert {number: ours[number] for number in theirs} == theirs


def test_vocabulary_size_without_tokens_comes_from_the_architecture_key():
    metadata = {"general.architecture": "llama", "llama.vocab_size": 99}
    assert summarize(model_of(metadata)).vocabulary == 99


def test_shares_count_tensors_elements_and_bytes():
    tensors = {"a": ZEROS, "b": (ZEROS, "Q8_0"), "c": ZEROS}
    shares = type_shares(model_of({}, tensors).tensors.values())
    assert [vars(share) for share in shares] == [
        {"type": "F32", "tensors": 2, "elements": 256, "nbytes": 1024},
        {"type": "Q8_0", "tensors": 1, "elements": 128, "nbytes": 136},
    ]


def test_bits_per_weight_of_nothing_is_none():
    assert bits_per_weight([]) is None
    assert bits_per_weight([as_tensor("a", (ZEROS, "Q8_0"))]) == 8.5


# The whole, for other programs.


def test_description_is_json_and_matches_the_official_reader(smollm2):
    document = json.loads(json.dumps(describe(ggufkit.open(smollm2)), allow_nan=False))
    reader = gguf.GGUFReader(smollm2)
    fields = {k: f for k, f in reader.fields.items() if not k.startswith("GGUF.")}
    assert list(document["metadata"]) == list(fields)
    for key, field in fields.items():
        value = document["metadata"][key]["value"]
        expected = field.contents()
        same = (
            value == pytest.approx(expected) if isinstance(expected, float) else value == expected
        )
        assert same, key
    assert [
        (t["name"], t["type"], t["shape"], t["nbytes"], t["offset"]) for t in document["tensors"]
    ] == [
        (t.name, t.tensor_type.name, t.shape.tolist()[::-1], t.n_bytes, t.data_offset)
        for t in reader.tensors
    ]
    (file,) = document["files"]
    assert (file["path"], file["nbytes"]) == (str(smollm2), smollm2.stat().st_size)
    assert file["data_offset"] == reader.data_offset


def test_tensor_without_a_file_has_no_offset():
    (tensor,) = describe(model_of({}, {"a": ZEROS}))["tensors"]
    assert (tensor["offset"], tensor["file"]) == (None, None)


# Values.


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_float32_survives_json(number):
    back = np.float32(exact(np.float32(number)))
    assert back.tobytes() == np.float32(number).tobytes()


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_float64_survives_json(number):
    assert np.float64(exact(np.float64(number))).tobytes() == np.float64(number).tobytes()


def test_float32_is_the_shortest_decimal_of_its_width():
    assert json.dumps(plain(np.float32(0.1))) == "0.1"
    assert json.dumps(plain(np.array([1e-5, 3.14], np.float32))) == "[1e-05, 3.14]"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_that_are_not_finite_become_strings(dtype):
    array = np.array([math.nan, math.inf, -math.inf, 0.5], dtype)
    assert plain(array) == ["NaN", "Infinity", "-Infinity", 0.5]
    assert [plain(number) for number in array] == ["NaN", "Infinity", "-Infinity", 0.5]


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"])
def test_extreme_integers_are_exact(dtype):
    limits = np.iinfo(dtype)
    assert exact(np.dtype(dtype).type(limits.max)) == limits.max
    assert exact(np.array([limits.min, limits.max], dtype)) == [limits.min, limits.max]


def test_bools_are_bools():
    assert json.dumps([plain(True), plain(np.array([True, False]))]) == "[true, [true, false]]"


def test_bytes_that_are_not_utf8_become_surrogates():
    text = b"a\xff\x80".decode("utf-8", "surrogateescape")
    assert exact(text).encode("utf-8", "surrogateescape") == b"a\xff\x80"
    assert exact(Strings([text, "ok"])) == [text, "ok"]


def test_nested_arrays_show_their_types():
    metadata = ggufkit.Metadata({"k": [[1, 2], ["a"], [[0.5]]]})
    assert plain(metadata["k"]) == [
        {"type": "array[uint32]", "value": [1, 2]},
        {"type": "array[string]", "value": ["a"]},
        {
            "type": "array[array]",
            "value": [{"type": "array[float32]", "value": [0.5]}],
        },
    ]
