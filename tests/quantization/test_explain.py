"""Explanations name what decided about each type, and measure the blocks as written."""

from __future__ import annotations

import math

import numpy as np
import pytest

import ggufkit
from ggufkit.errors import ShapeError
from ggufkit.imatrix import Entry, Imatrix
from ggufkit.quantization.explain import explain
from ggufkit.quantization.quantize import decide

RNG = np.random.default_rng(4)
UP, DOWN, EXPERTS = (f"blk.0.ffn_{kind}.weight" for kind in ("up", "down", "gate_exps"))
SHAPES = {
    "token_embd.weight": (8, 256), "output.weight": (8, 256), UP: (8, 256), DOWN: (8, 256),
    "blk.0.attn_v.weight": (8, 256), EXPERTS: (2, 4, 256), "blk.0.odd.weight": (3, 40),
    "blk.0.attn_norm.weight": (256,),
}  # fmt: skip
EMBEDDINGS = "this type is given for token embeddings"
ARRAYS = {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
MODEL = ggufkit.model(ARRAYS, {"general.architecture": "llama", "llama.block_count": 1})


def reasons(recipe, **options):
    return {row.name: row.why for row in explain(decide(MODEL, recipe, **options))}


def test_each_tensor_has_the_reason_for_its_type():
    by_name = reasons(
        "Q4_K_M", tensor_types=[("ffn_up", "Q8_0")], types={EXPERTS: "Q5_0"},
        token_embedding_type="Q6_K",  # noqa: S106 (no password)
    )  # fmt: skip
    assert by_name[UP] == "its name matches 'ffn_up'"
    assert by_name[EXPERTS] == "this type is given for its name"
    assert by_name["token_embd.weight"] == EMBEDDINGS
    assert by_name["output.weight"] == "the recipe's rule for output"
    assert by_name["blk.0.attn_norm.weight"] == "llama-quantize keeps such tensors"
    assert by_name["blk.0.attn_v.weight"].startswith("the recipe's rule for attention_v: the first")
    odd = "base type of the recipe; rows of 40 do not divide into blocks of Q4_K"
    assert by_name["blk.0.odd.weight"] == odd


def test_plain_and_pure_recipes_give_their_base_type():
    assert reasons("Q4_0", pure=True)[UP] == "base type of the recipe"
    assert reasons("COPY")[UP] == "the recipe keeps every type"
    assert "needs importance data" in reasons("IQ2_XS", promote_uncovered=True)[UP]


def test_without_a_file_no_data_is_read():
    model = ggufkit.model({"a.weight": ((4, 256), "F32", lambda *_: 1 / 0)})
    (row,) = explain(decide(model, "Q8_0"))
    assert (row.error, row.share, row.share_of_bytes) == (None, None, 1)


@pytest.mark.parametrize("is_weighted", [False, True])
def test_errors_are_those_of_the_written_blocks(is_weighted, monkeypatch):
    monkeypatch.setattr("ggufkit.quantization.explain.PIECE", 256)  # rows one by one
    weights = {name: RNG.random((SHAPES[name][0] if name == EXPERTS else 1, 256)) + 0.1
               for name in (UP, EXPERTS)}  # fmt: skip
    data = Imatrix({
        name: Entry(weight.astype(np.float32), np.ones(len(weight), np.int64))
        for name, weight in weights.items()
    })  # fmt: skip
    done = decide(MODEL, "Q4_0", imatrix=data if is_weighted else None)
    rows = {row.name: row for row in explain(done, done.model, threads=2)}
    for name in (UP, EXPERTS):
        new, old = done.model[name].numpy(), ARRAYS[name]
        columns = weights[name][:, None, :].reshape(*([-1, 1] if old.ndim > 2 else [1]), 256)
        scale = columns if is_weighted else 1
        expected = math.sqrt((scale * (new - old) ** 2).sum() / (scale * old**2).sum())
        assert rows[name].error == pytest.approx(expected, rel=1e-4)
    assert rows["blk.0.attn_norm.weight"].error == 0
    assert sum(row.share for row in rows.values()) == pytest.approx(1)
    assert sum(row.share_of_bytes for row in rows.values()) == pytest.approx(1)


def test_file_of_another_result_is_refused():
    with pytest.raises(ShapeError, match="another tensor"):
        explain(decide(MODEL, "Q4_0"), decide(MODEL, "Q8_0").model)
