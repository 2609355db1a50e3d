from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ggufkit
import llama_prune
from ggufkit.errors import MissingKeyError, ShapeError, ValueTypeError
from ggufkit.models.layers import parse_layers, prune_layers, resized, tensor_names
from ggufkit.models.model import Model, Tensors
from ggufkit.models.tensors.in_memory import as_tensor

LAYERS = 6


def model(metadata=(), layers=LAYERS, names=("blk.{}.attn_q.weight",)):
    """A model in which each layer's tensors hold the number of the layer."""
    keys = {"general.architecture": "llama", "llama.block_count": np.uint32(layers)}
    arrays = {n.format(i): np.full(4, i, np.float32) for i in range(layers) for n in names}
    arrays["output.weight"] = np.full(4, -1, np.float32)
    tensors = [as_tensor(name, array) for name, array in arrays.items()]
    return Model(ggufkit.Metadata({**keys, **dict(metadata)}), Tensors(tensors))


def numbers(pruned, pattern="blk.{}.attn_q.weight"):
    """The old layers in the order of their new numbers."""
    count = int(pruned.metadata["llama.block_count"])
    return [int(pruned.tensors[pattern.format(i)].numpy()[0]) for i in range(count)]


@given(st.sets(st.integers(0, LAYERS - 1), max_size=LAYERS - 1))
def test_remaining_layers_are_renumbered_in_order(removed):
    pruned = prune_layers(model(), removed)
    assert numbers(pruned) == [i for i in range(LAYERS) if i not in removed]
    assert len(pruned.tensors) == LAYERS - len(removed) + 1
    assert "output.weight" in pruned.tensors


@pytest.mark.parametrize(
    "array",
    [
        np.arange(LAYERS, dtype=np.int32),
        np.arange(LAYERS) % 2 == 0,
        ggufkit.typed("array[string]", [str(i) for i in range(LAYERS)]),
        ggufkit.typed("array[array[int8]]", [[i] for i in range(LAYERS)]),
    ],
    ids=["numbers", "bools", "strings", "arrays"],
)
def test_arrays_by_layer_lose_the_items_of_removed_layers(array):
    pruned = prune_layers(model({"llama.attention.head_count": array}), [0, 3])
    counts = pruned.metadata["llama.attention.head_count"]
    assert counts.tolist() == [array.tolist()[i] for i in (1, 2, 4, 5)]
    assert pruned.metadata.type_name("llama.attention.head_count").startswith("array[")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.rope.dimension_sections", np.arange(LAYERS, dtype=np.int32)),
        ("llama.short", np.arange(LAYERS - 1, dtype=np.int32)),
        ("other.array", np.arange(LAYERS, dtype=np.int32)),
        ("llama.context_length", np.uint32(LAYERS)),
    ],
)
def test_other_keys_are_unchanged(key, value):
    before = model({key: value})
    assert prune_layers(before, [2]).metadata.type_name(key) == before.metadata.type_name(key)
    np.testing.assert_array_equal(prune_layers(before, [2]).metadata[key], value)


@pytest.mark.parametrize(
    ("key", "value", "removed", "remaining"),
    [
        ("llama.leading_dense_block_count", 2, [1, 4], 1),
        ("llama.leading_dense_block_count", 2, [2, 4], 2),
        ("llama.nextn_predict_layers", 1, [5], 0),
        ("llama.nextn_predict_layers", 1, [4], 1),
        ("llama.attention.shared_kv_layers", 3, [0, 3, 5], 1),
    ],
)
def test_keys_that_count_some_layers_are_updated(key, value, removed, remaining):
    pruned = prune_layers(model({key: np.uint16(value)}), removed)
    assert pruned.metadata[key] == remaining
    assert pruned.metadata.type_name(key) == "uint16"


def test_arrays_of_only_the_trunk_are_updated_too():
    keys = {"llama.nextn_predict_layers": np.uint32(1), "llama.clamp": np.arange(5.0, dtype="f4")}
    pruned = prune_layers(model(keys), [1, 5])
    assert pruned.metadata["llama.clamp"].tolist() == [0, 2, 3, 4]


def test_prunes_encoder_and_decoder_alike_and_keeps_a_projector():
    names = ("enc.blk.{}.w", "dec.blk.{}.w", "blk.{}.attn_q.weight", "v.blk.{}.w")
    before = model({"llama.decoder_block_count": np.uint32(LAYERS)}, names=names)
    pruned = prune_layers(before, [0])
    assert pruned.metadata["llama.decoder_block_count"] == LAYERS - 1
    assert numbers(pruned, "enc.blk.{}.w") == numbers(pruned, "dec.blk.{}.w") == [1, 2, 3, 4, 5]
    assert numbers(pruned, "v.blk.{}.w") == [0, 1, 2, 3, 4]
    assert "v.blk.5.w" in pruned.tensors


def test_layers_beyond_the_block_count_stay_and_move_up():
    before = model({"llama.block_count": np.uint32(2)})
    pruned = prune_layers(before, [1])
    names = ["blk.0", "blk.1", "blk.2", "blk.3", "blk.4"]
    assert [*pruned.tensors] == [*(f"{name}.attn_q.weight" for name in names), "output.weight"]
    assert pruned.tensors["blk.1.attn_q.weight"].numpy()[0] == 2


def test_pruning_nothing_changes_nothing():
    before = model()
    assert prune_layers(before, []) is before


@pytest.mark.parametrize("removed", [[LAYERS], [-1], range(LAYERS)])
def test_refuses_layers_that_do_not_exist(removed):
    with pytest.raises(ShapeError):
        prune_layers(model(), removed)


@pytest.mark.parametrize("count", ["six", np.float32(6)])
def test_refuses_a_block_count_of_another_type_and_names_it(count):
    with pytest.raises(ValueTypeError, match=r"llama\.block_count .* must be a whole number"):
        prune_layers(model({"llama.block_count": count}), [0])


@pytest.mark.parametrize("count", [np.uint32(0), np.int64(1 << 40)])
def test_refuses_a_model_without_a_layer_count(count):
    with pytest.raises(MissingKeyError, match=r"llama\.block_count"):
        prune_layers(model({"llama.block_count": count}), [0])


@pytest.mark.parametrize(
    ("text", "layers"), [("3", (3,)), ("3,5-7", (3, 5, 6, 7)), (" 7 , 1-2,2", (1, 2, 7))]
)
def test_reads_lists_of_layers(text, layers):
    assert parse_layers(text) == layers


def test_layers_in_messages_are_in_the_order_of_their_numbers():
    names = sorted(f"blk.{i}.ffn_down.weight" for i in range(30))
    assert tensor_names(names) == "30 tensors (blk.0-29.ffn_down.weight)"


@pytest.mark.parametrize("text", ["", "3,", "a", "7-5", "-1", "1-", "0-99999999999", "1-70000"])
def test_refuses_text_that_is_not_a_list_of_layers(text):
    with pytest.raises(ValueTypeError, match="list of layers"):
        parse_layers(text)


# Beside llama-quantize.


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_prunes_real_models_as_llama_quantize_does(name, request, tmp_path):
    path = request.getfixturevalue(name)
    assert llama_prune.prune(path, tmp_path / "theirs.gguf", [3, 5, 6])
    with ggufkit.open(path) as opened, ggufkit.open(tmp_path / "theirs.gguf") as theirs:
        difference = ggufkit.diff(theirs, prune_layers(opened, [3, 5, 6]))
    assert {change.key for change in difference.keys} <= {"general.file_type"}
    assert not difference.tensors


@pytest.mark.parametrize(
    ("label", "expected"), [("28K", "20K"), ("8x7M", "8x5.0M"), ("Large", "Large"), (None, None)]
)
def test_size_label_is_updated_with_the_layers(label, expected):
    tensors = [
        as_tensor(f"blk.{i}.attn_q.weight", np.zeros((40, 100), np.float32)) for i in range(7)
    ]
    keys = {"general.architecture": "llama", "llama.block_count": np.uint32(7)}
    keys |= {} if label is None else {"general.size_label": label}
    whole = Model(ggufkit.Metadata(keys), Tensors(tensors))
    pruned = resized(prune_layers(whole, [1, 2]), whole)
    assert pruned.metadata.get("general.size_label") == expected
