from __future__ import annotations

import numpy as np
import pytest

import ggufkit
from ggufkit.errors import (
    MissingKeyError,
    MissingTensorError,
    OutputError,
    ShapeError,
    ValueTypeError,
)
from ggufkit.models.layers import block_count
from speaking import speak

NAMES = (
    "token_embd.weight",
    *(f"blk.{i}.{part}.weight" for i in range(4) for part in ("attn_q", "ffn_up")),
    "output.weight",
    "v.patch_embd.weight",
    "mm.0.weight",
)
KEYS = {
    "general.architecture": "llama",
    "general.file_type": 0,
    "llama.block_count": np.uint32(4),
    "llama.nextn_predict_layers": np.uint32(1),
    "llama.attention.head_count": np.array([1, 2, 3, 4], np.uint32),
    "tokenizer.ggml.tokens": ["a", "b"],
    "llama.vocab_size": 2,
    "clip.projector_type": "mlp",
}


def saved(path, names=NAMES, keys=KEYS, value=0.0):
    arrays = {name: np.full(8, value + i, np.float32) for i, name in enumerate(names)}
    ggufkit.save(path, arrays, keys)
    return ggufkit.open(path)


@pytest.fixture
def model(tmp_path):
    with saved(tmp_path / "model.gguf") as opened:
        yield opened


@pytest.fixture
def other(tmp_path):
    with saved(tmp_path / "other.gguf", value=100.0) as opened:
        yield opened


def content(model):
    return ggufkit.digest(model, ["content"]).model["content"]


def test_empty_selection_gives_the_whole_model(model):
    assert content(ggufkit.select(model)) == content(model)


def test_kept_tensors_keep_their_order(model):
    selected = ggufkit.select(model, keep=["output.*", "blk.[01].attn_q.weight"])
    assert list(selected.tensors) == ["blk.0.attn_q.weight", "blk.1.attn_q.weight", "output.weight"]
    assert selected.metadata == model.metadata


def test_drop_wins_over_keep(model):
    selected = ggufkit.select(model, keep=["blk.*"], drop=["re:^blk[.]([1-3])[.]", "*.ffn_up.*"])
    assert list(selected.tensors) == ["blk.0.attn_q.weight"]


@pytest.mark.parametrize("choice", ["keep", "drop"])
def test_pattern_that_matches_nothing_is_an_error(model, choice):
    with pytest.raises(MissingTensorError, match=r"'output.wait'.*output\.weight"):
        ggufkit.select(model, **{choice: ["output.wait"]})
    with pytest.raises(MissingKeyError, match=r"matches 'llama\.blocks'"):
        ggufkit.select(model, **{f"{choice}_keys": ["llama.blocks"]})


# Renames.


@pytest.mark.parametrize(
    ("rename", "old", "new"),
    [
        ("output.weight=head", "output.weight", "head"),
        ("blk.*.attn_q.*=layers.*.q.*", "blk.2.attn_q.weight", "layers.2.q.weight"),
        ("blk.?.ffn_*=f.?", "blk.3.ffn_up.weight", "f.3"),
        ("re:^blk=block", "blk.1.attn_q.weight", "block.1.attn_q.weight"),
        (r"re:(\d)\.(attn_.)=\2.\1", "blk.1.attn_q.weight", "blk.attn_q.1.weight"),
        (r"re:(?=attn)=the_", "blk.1.attn_q.weight", "blk.1.the_attn_q.weight"),
    ],
)
def test_renames_tensors(model, rename, old, new):
    if rename == "blk.?.ffn_*=f.?":
        rename = "blk.?.ffn_up.weight=f.?"
    renamed = ggufkit.select(model, rename=[rename])
    assert list(model.tensors).index(old) == list(renamed.tensors).index(new)
    np.testing.assert_array_equal(renamed.tensors[new].numpy(), model.tensors[old].numpy())


def test_two_tensors_can_exchange_their_names(model):
    swap = ["blk.0.attn_q.weight=blk.1.attn_q.weight", "blk.1.attn_q.weight=blk.0.attn_q.weight"]
    swapped = ggufkit.select(model, rename=swap)
    for new, old in ((0, 1), (1, 0), (2, 2)):
        np.testing.assert_array_equal(
            swapped.tensors[f"blk.{new}.attn_q.weight"].numpy(),
            model.tensors[f"blk.{old}.attn_q.weight"].numpy(),
        )


def test_refuses_two_tensors_of_one_name(model):
    with pytest.raises(ShapeError, match="two tensors"):
        ggufkit.select(model, rename=["blk.*=same"])


@pytest.mark.parametrize(
    "rename", ["", "a", "=b", "a=", "a=*", r"re:a=\1", r"re:(=b", "re:=x", "[z-a]=b"]
)
def test_refuses_an_invalid_rename(model, rename):
    with pytest.raises(ValueTypeError):
        ggufkit.select(model, rename=[rename])


def test_backslash_in_a_glob_is_a_plain_character(tmp_path):
    with saved(tmp_path / "m.gguf", ["a\\1", "[b"]) as model:
        renamed = ggufkit.select(model, rename=["a\\*=c\\*", "[b=b]"])
        assert list(renamed.tensors) == ["c\\1", "b]"]


# Grafts.


def test_graft_replaces_in_place_and_adds_at_the_end(model, other):
    fewer = ggufkit.select(model, drop=["output.weight"])
    mixed = ggufkit.select(fewer, graft=[(other, "re:^(output|blk.1)")])
    assert list(mixed.tensors) == [*(n for n in NAMES if n != "output.weight"), "output.weight"]
    assert {name for name, t in mixed.tensors.items() if t.numpy()[0] >= 100} == {
        "blk.1.attn_q.weight",
        "blk.1.ffn_up.weight",
        "output.weight",
    }
    assert mixed.metadata == model.metadata


def test_pruned_layers_can_be_grafted_back_with_their_keys(model):
    trunk = ggufkit.select(model, prune=[3])
    assert trunk.metadata["llama.block_count"] == 3
    assert trunk.metadata["llama.nextn_predict_layers"] == 0
    assert trunk.metadata["llama.attention.head_count"].tolist() == [1, 2, 3]
    assert content(ggufkit.select(trunk, graft=[(model, "blk.3.*")])) == content(model)


def test_layers_of_another_architecture_do_not_fit(model, tmp_path):
    keys = KEYS | {"general.architecture": "qwen3", "qwen3.block_count": np.uint32(4)}
    with saved(tmp_path / "qwen.gguf", keys=keys) as other:
        trunk = ggufkit.select(model, prune=[3])
        with pytest.raises(ShapeError, match="'qwen3' do not fit"):
            ggufkit.select(trunk, graft=[(other, "blk.3.*")])
        assert ggufkit.select(model, graft=[(other, "blk.3.*")]).metadata == model.metadata


def test_projector_can_be_split_off_and_put_back(model):
    text = ggufkit.select(model, drop=["v.*", "mm.*"], drop_keys=["clip.*"])
    projector = ggufkit.select(model, keep=["v.*", "mm.*"], keep_keys=["general.*", "clip.*"])
    assert not set(text.tensors) & set(projector.tensors)
    assert "clip.projector_type" not in text.metadata
    assert "llama.block_count" not in projector.metadata
    whole = ggufkit.select(text, graft=[(projector, "*")], graft_keys=[(projector, "clip.*")])
    assert content(whole) == content(model)


def test_donor_is_an_input_that_cannot_be_overwritten(model, other):
    mixed = ggufkit.select(model, graft=[(other, "output.weight")])
    for path in (model.files[0].path, other.files[0].path):
        before = path.read_bytes()
        with pytest.raises(OutputError, match="input"):
            ggufkit.write(mixed, path)
        assert path.read_bytes() == before


def test_swaps_a_donor_of_the_other_byte_order(model, other, tmp_path):
    ggufkit.write(other, tmp_path / "big.gguf", byte_order="big")
    with ggufkit.open(tmp_path / "big.gguf") as big:
        mixed = ggufkit.select(model, graft=[(big, "blk.*")], graft_keys=[(big, "llama.*")])
        plain = ggufkit.select(model, graft=[(other, "blk.*")], graft_keys=[(other, "llama.*")])
        assert content(mixed) == content(plain)
        with pytest.raises(OutputError, match="input"):
            ggufkit.write(mixed, tmp_path / "big.gguf")


# Keys.


def test_keys_can_be_kept_and_dropped(model):
    chosen = ggufkit.select(model, keep_keys=["general.*", "llama.*"], drop_keys=["re:count$"])
    assert list(chosen.metadata) == [
        "general.architecture",
        "general.file_type",
        "llama.nextn_predict_layers",
        "llama.vocab_size",
    ]
    assert list(chosen.tensors) == list(NAMES)


def test_vocabulary_only_output_has_no_tensors_and_no_layer_keys(model):
    vocabulary = ggufkit.select(model, vocab_only=True)
    assert len(vocabulary.tensors) == 0
    assert list(vocabulary.metadata) == [
        "general.architecture",
        "general.file_type",
        "tokenizer.ggml.tokens",
        "llama.vocab_size",
    ]


def test_header_only_output_keeps_all_keys(model):
    bare = ggufkit.select(model, tensors=False)
    assert len(bare.tensors) == 0
    assert bare.metadata == model.metadata


def test_selection_drops_the_split_keys_of_a_single_shard(model, tmp_path):
    first, *_ = ggufkit.write(model, tmp_path / "s.gguf", shard_tensors=4)
    with ggufkit.open(first, shards=False) as shard:
        assert not any(key.startswith("split.") for key in ggufkit.select(shard).metadata)


# Real models.


def test_pruned_real_model_generates_text_and_can_be_restored(smollm2, tmp_path):
    with ggufkit.open(smollm2) as model:
        last = block_count(model.metadata)[1] - 1
        ggufkit.write(ggufkit.select(model, prune=[last]), tmp_path / "trunk.gguf")
        ggufkit.write(ggufkit.select(model, keep=[f"blk.{last}.*"]), tmp_path / "head.gguf")
        speak(tmp_path / "trunk.gguf")
        with (
            ggufkit.open(tmp_path / "trunk.gguf") as trunk,
            ggufkit.open(tmp_path / "head.gguf") as head,
        ):
            whole = ggufkit.select(trunk, graft=[(head, f"blk.{last}.*")])
            ggufkit.write(whole, tmp_path / "whole.gguf")
            assert content(whole) == content(model)
    assert speak(tmp_path / "whole.gguf") == "The capital of France is Paris."


def test_refuses_a_graft_that_leaves_out_a_layer(model):
    trunk = ggufkit.select(model, prune=[2, 3])
    with pytest.raises(ShapeError, match=r"layer 2 is not grafted") as caught:
        ggufkit.select(trunk, graft=[(model, "blk.3.*")])
    assert "layers 2 to 3" in caught.value.remedy


def test_refuses_a_graft_of_another_shape(model, tmp_path):
    wide = {"blk.0.attn_q.weight": np.zeros(16, np.float32)}
    ggufkit.save(tmp_path / "wide.gguf", wide, KEYS)
    with ggufkit.open(tmp_path / "wide.gguf") as donor, pytest.raises(ShapeError, match="shape"):
        ggufkit.select(model, graft=[(donor, "blk.0.*")])
