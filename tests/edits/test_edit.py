"""Edits of metadata: Model -> Model, the types of edited keys, and the list of changes."""

from __future__ import annotations

import numpy as np
import pytest

import ggufkit
import small_llama
from ggufkit.edits.changes import changes
from ggufkit.edits.edit import special_token_key
from ggufkit.errors import MissingKeyError, ValueTypeError
from ggufkit.format.metadata import Metadata
from ggufkit.models.model import Model, Tensors
from ggufkit.models.sources import from_array

TOKENS = ["<s>", "</s>", "a", "b"]
PLAIN = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 64,
    "llama.rope.freq_base": 10000.0,
    "llama.attention.head_count": [4, 4],
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.scores": [0.0, 0.0, 0.0, 0.0],
    "tokenizer.ggml.eos_token_id": 1,
    "my.flag": True,
    "my.small": np.uint8(7),
    "my.flags": np.array([True, False]),
    "my.nested": ggufkit.typed("array[array[int16]]", [[1], [2, 3]]),
}


@pytest.fixture
def model():
    names = ("token_embd.weight", "blk.0.weight", "blk.1.weight")
    tensors = Tensors(from_array(name, np.zeros((4, 8), np.float32)) for name in names)
    return Model(Metadata(PLAIN), tensors)


def edited(model, **edits):
    return ggufkit.edit(model, **edits).metadata


@pytest.mark.parametrize(
    ("key", "value", "type"),
    [
        ("llama.context_length", 5, "uint32"),
        ("llama.rope.freq_base", 5, "float32"),
        ("my.small", 5, "uint8"),
        ("my.flag", False, "bool"),
        ("my.flags", [True], "array[bool]"),
        ("my.nested", [[7]], "array[array]"),
        ("my.new", 5, "uint32"),
        ("my.new", -5, "int32"),
        ("my.new", ["x"], "array[string]"),
        ("my.small", np.int64(5), "int64"),
    ],
)
def test_value_takes_the_type_of_its_key_or_its_own(model, key, value, type):
    metadata = edited(model, set={key: value})
    assert metadata.type_name(key) == type
    assert np.array_equal(np.asarray(metadata[key], object), np.asarray(value, object)) or (
        metadata[key].tolist() == value
    )


def test_explicit_type_wins(model):
    metadata = edited(
        model,
        set={"my.small": 5, "my.list": []},
        types={"my.small": "int64", "my.list": "array[string]"},
    )
    assert metadata.type_name("my.small") == "int64"
    assert metadata.type_name("my.list") == "array[string]"


@pytest.mark.parametrize(
    ("key", "value"),
    [("my.small", 256), ("my.small", "7"), ("my.flag", 1), ("llama.context_length", -1)],
)
def test_error_for_a_value_that_does_not_fit_names_its_key(model, key, value):
    with pytest.raises(ValueTypeError, match=key):
        edited(model, set={key: value})


def test_refuses_a_type_without_a_value(model):
    with pytest.raises(ValueTypeError, match=r"my\.small"):
        edited(model, types={"my.small": "int64"})


def test_edit_does_not_change_its_input_or_the_order_of_keys(model):
    before = list(model.metadata)
    metadata = edited(model, set={"my.small": 1, "my.last": 2}, rename={"my.flag": "my.sign"})
    assert list(model.metadata) == before
    assert list(metadata) == [{"my.flag": "my.sign"}.get(key, key) for key in before] + ["my.last"]
    assert metadata["my.sign"] is True


# Items.


@pytest.mark.parametrize(
    ("key", "value", "whole"),
    [
        ("tokenizer.ggml.tokens[2]", "z", ["<s>", "</s>", "z", "b"]),
        ("tokenizer.ggml.tokens[-1]", "z", ["<s>", "</s>", "a", "z"]),
        ("tokenizer.ggml.scores[1]", 2, [0.0, 2.0, 0.0, 0.0]),
        ("my.flags[1]", True, [True, True]),
        ("my.nested[1][0]", -9, [[1], [-9, 3]]),
        ("my.nested[0]", [4, 5], [[4, 5], [2, 3]]),
    ],
)
def test_sets_a_single_item_of_an_array(model, key, value, whole):
    name = key[: key.index("[")]
    metadata = edited(model, set={key: value}, force=True)
    assert metadata[name].tolist() == whole
    assert metadata.type_name(name) == model.metadata.type_name(name)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tokenizer.ggml.tokens[4]", "z"),
        ("tokenizer.ggml.tokens[-5]", "z"),
        ("tokenizer.ggml.tokens[0]", 7),
        ("tokenizer.ggml.tokens[0][0]", "z"),
        ("my.flags[0]", 1),
        ("my.small[0]", 1),
        ("my.nested[1][2]", 1),
        ("my.nested[1]", 1),
    ],
)
def test_names_an_item_that_is_missing_or_does_not_fit(model, key, value):
    with pytest.raises(ValueTypeError) as error:
        edited(model, set={key: value})
    assert key in str(error.value)


def test_item_of_a_missing_key_does_not_create_the_key(model):
    with pytest.raises(MissingKeyError, match=r"my\.nested"):
        edited(model, set={"my.nestd[0]": 1})


def test_items_of_big_endian_arrays_keep_their_order(model, tmp_path):
    ggufkit.write(model, tmp_path / "big.gguf", byte_order="big")
    with ggufkit.open(tmp_path / "big.gguf") as big:
        changed = ggufkit.edit(big, set={"tokenizer.ggml.scores[1]": 2.5}, force=True)
        ggufkit.write(changed, tmp_path / "edited.gguf")
    with ggufkit.open(tmp_path / "edited.gguf") as edited:
        assert edited.byte_order == "big"
        assert edited.metadata["tokenizer.ggml.scores"].tolist() == [0.0, 2.5, 0.0, 0.0]


# Keys.


def test_unknown_keys_suggest_the_nearest(model):
    for edits in ({"drop_keys": ["my.flat"]}, {"rename": {"my.flat": "x"}}):
        with pytest.raises(MissingKeyError, match=r"my\.flag"):
            edited(model, **edits)


def test_rename_never_loses_a_key(model):
    with pytest.raises(ValueTypeError, match=r"my\.small"):
        edited(model, rename={"my.flag": "my.small"})
    with pytest.raises(ValueTypeError, match="the same name"):
        edited(model, rename={"my.flag": "my.x", "my.small": "my.x"})
    swapped = edited(model, rename={"my.flag": "my.small", "my.small": "my.flag"})
    assert swapped["my.small"] is True
    assert swapped["my.flag"] == 7


def test_renames_then_removes_then_sets_keys(model):
    metadata = edited(model, rename={"my.flag": "a"}, drop_keys=["a"], set={"a": "again"})
    assert metadata["a"] == "again"
    assert "my.flag" not in metadata


# Templates, special tokens, tags.


def test_sets_chat_template_and_tags(model):
    metadata = edited(model, chat_template="{{ x }}", add_tags=["b", "a", "b"])
    assert metadata["tokenizer.chat_template"] == "{{ x }}"
    assert metadata["general.tags"] == ["b", "a"]
    again = edited(model.replace(metadata=metadata), add_tags=["c", "a"])
    assert again["general.tags"] == ["b", "a", "c"]


@pytest.mark.parametrize("token", [3, "b"])
@pytest.mark.parametrize("name", ["eos", "pad", "separator", "UNK", "fim_pre"])
def test_sets_a_special_token_by_id_or_text(model, name, token):
    metadata = edited(model, special_tokens={name: token})
    key = special_token_key(name)
    assert metadata[key] == 3
    assert metadata.type_name(key) == "uint32"


def test_special_token_keys_match_llama_cpp():
    assert special_token_key("unknown") == "tokenizer.ggml.unknown_token_id"
    assert special_token_key("sep") == "tokenizer.ggml.seperator_token_id"
    assert special_token_key("pad") == "tokenizer.ggml.padding_token_id"


def test_refuses_unknown_tokens_and_names(model):
    with pytest.raises(MissingKeyError, match="</s>"):
        edited(model, special_tokens={"eos": "</S>"})
    with pytest.raises(MissingKeyError, match="eos"):
        edited(model, special_tokens={"ends": 1})
    with pytest.raises(ValueTypeError, match="4 tokens"):
        edited(model, special_tokens={"eos": 4})


# What would not load.


@pytest.mark.parametrize(
    ("edits", "reason"),
    [
        ({"set": {"general.alignment": 64}}, "general.alignment"),
        ({"set": {"split.count": np.uint16(2)}}, "split.count"),
        ({"set": {"general.architecture": "gemma3"}}, "gemma3"),
        ({"set": {"tokenizer.ggml.tokens": TOKENS[1:]}}, "token_embd.weight has 4 rows"),
        ({"set": {"tokenizer.ggml.scores": [1.0]}}, "tokenizer.ggml.scores is 1"),
        ({"set": {"llama.block_count": 3}}, "2 blocks"),
        ({"set": {"llama.attention.head_count": [4]}}, "head_count is 1"),
        ({"set": {"llama.embedding_length": 9}}, "8 elements"),
        (
            {"set": {"llama.context_length": 1}, "types": {"llama.context_length": "int32"}},
            "uint32",
        ),
        (
            {
                "set": {"tokenizer.ggml.tokens": [1, 2, 3, 4]},
                "types": {"tokenizer.ggml.tokens": "array[int32]"},
            },
            "array[string]",
        ),
        ({"set": {"a": [[1]]}}, "array of arrays"),
        ({"drop_keys": ["tokenizer.ggml.model"]}, "tokenizer.ggml.model is removed"),
        ({"drop_keys": ["llama.context_length"]}, "llama.context_length is removed"),
        ({"rename": {"llama.rope.freq_base": "rope"}}, "llama.rope.freq_base is removed"),
    ],
)
def test_refuses_an_edit_that_llama_cpp_would_not_load_without_force(model, edits, reason):
    with pytest.raises(ValueTypeError) as error:
        ggufkit.edit(model, **edits)
    assert reason in str(error.value)
    assert changes(model.metadata, ggufkit.edit(model, **edits, force=True).metadata)


def test_earlier_errors_do_not_block_an_edit(model):
    wrong = ggufkit.edit(model, set={"tokenizer.ggml.scores": [1.0]}, force=True)
    assert ggufkit.edit(wrong, set={"my.small": 1}).metadata["my.small"] == 1
    mended = ggufkit.edit(wrong, set={"tokenizer.ggml.scores": [1.0] * 4})
    assert len(mended.metadata["tokenizer.ggml.scores"]) == 4


@pytest.mark.parametrize("value", [63, 0, np.uint64(64), "64"])
def test_refuses_an_unusable_alignment_even_with_force(model, value):
    with pytest.raises(ValueTypeError, match="alignment"):
        ggufkit.edit(model, set={"general.alignment": value}, force=True)


# Differences.


def test_differences_are_listed_by_key(model):
    after = edited(
        model,
        set={"my.small": 8, "my.new": 1, "tokenizer.ggml.tokens[1]": "e"},
        drop_keys=["my.flags"],
        rename={"my.flag": "my.sign"},
    )
    by_key = {change.key: change for change in changes(model.metadata, after)}
    assert {key: change.kind for key, change in by_key.items()} == {
        "my.small": "changed",
        "tokenizer.ggml.tokens": "changed",
        "my.flag": "renamed",
        "my.flags": "removed",
        "my.new": "added",
    }
    assert by_key["my.flag"].name == "my.sign"
    assert by_key["tokenizer.ggml.tokens"].items() == [(1, "</s>", "e")]
    assert (by_key["my.small"].before, by_key["my.small"].after) == (7, 8)


def test_slack_is_not_a_difference(model):
    roomy = edited(model, reserve=100)
    assert len(roomy["ggufkit.reserved"]) == 100
    assert changes(model.metadata, roomy) == []
    assert "ggufkit.reserved" not in edited(model.replace(metadata=roomy), reserve=0)


# What llama.cpp refuses is refused before it is written.


@pytest.mark.parametrize(
    "edits",
    [
        {"set": {"llama.attention.head_count": 7}},
        {"set": {"llama.attention.head_count_kv": 4}},
        {"set": {"llama.rope.dimension_count": 32}},
        {"set": {"llama.rope.scaling.type": "ntk"}},
        {"set": {"llama.expert_count": 4}},
        {"set": {"tokenizer.ggml.pre": "lama"}},
        {"set": {"tokenizer.ggml.model": "sentencepiece"}},
        {"set": {"tokenizer.ggml.tokens[3]": "b"}},
        {"set": {"general.architecture": "qwen2"}},
        {"drop_keys": ["tokenizer.ggml.merges"]},
        {"drop_keys": ["general.architecture"]},
    ],
    ids=str,
)
def test_edit_that_llama_cpp_would_refuse_needs_force(tmp_path, edits):
    path = tmp_path / "model.gguf"
    ggufkit.save(path, small_llama.tensors(), small_llama.keys())
    with ggufkit.open(path) as model:
        with pytest.raises(ValueTypeError, match="may refuse the model after"):
            ggufkit.edit(model, **edits)
        ggufkit.edit(model, **edits, force=True)


def test_many_broken_tensors_give_one_sentence(tmp_path):
    path = tmp_path / "model.gguf"
    ggufkit.save(path, small_llama.tensors(), small_llama.keys())
    with ggufkit.open(path) as model, pytest.raises(ValueTypeError) as error:
        ggufkit.edit(model, set={"llama.feed_forward_length": 100})
    assert str(error.value).count("ffn_") == 1
    assert "5 more" in str(error.value)


def test_edit_of_a_broken_model_need_not_fix_everything(tmp_path):
    path = tmp_path / "model.gguf"
    ggufkit.save(path, small_llama.tensors(), small_llama.keys(llama__rope__dimension_count=32))
    with ggufkit.open(path) as model:
        ggufkit.edit(model, set={"llama.rope.dimension_count": 8, "general.name": "x"})
