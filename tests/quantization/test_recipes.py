from __future__ import annotations

import itertools
import re

import pytest

import ggufkit
import llama_quantize
import shapes
from ggufkit.errors import TensorTypeError
from ggufkit.format.file_types import FILE_TYPES, IK_FILE_TYPES
from ggufkit.format.types import tensor_type
from ggufkit.quantization.choice.eligibility import without_layer
from ggufkit.quantization.choice.type_choice import TypeRequests, choose, facts_of, order_key
from ggufkit.quantization.recipes import (
    LAST_RESORT,
    LLAMA_CPP,
    NEEDS_IMATRIX,
    PROMOTED,
    RECIPES,
    find_recipe,
    patterns_of,
)

LARGE = shapes.large()
FEW = ["llama 70B", "mixtral 8x7B", "falcon 7B", "deepseek2", "odd width"]
OURS_ONLY = {"NVFP4"}  # llama.cpp has the type and the number, llama-quantize no such recipe
THEIRS = tuple(name for name in RECIPES if name not in OURS_ONLY)
IMATRIX = {
    "weights": {"any": [1.0]},
    "imatrix_keys": {"file": "f", "dataset": "d", "chunks": 1},
}


def chosen(model, recipe, requests=None, *, imatrix=False):
    ordered = sorted(model.tensors.values(), key=lambda tensor: order_key(tensor.name))
    facts = facts_of(model.metadata)
    types = choose(ordered, facts, RECIPES[recipe], requests or TypeRequests(), imatrix=imatrix)
    return {name: choice.type.name for name, choice in types.items()}


def assert_same_choice(metadata, tensors, tmp_path, *, imatrix):
    model = shapes.model_of(metadata, tensors)
    path = shapes.write_sparse(model, tmp_path / "model.gguf")
    theirs = llama_quantize.types(path, *THEIRS, **(IMATRIX if imatrix else {}))
    assert sum(types is not None for types in theirs) >= len(THEIRS) - 1  # Q1_0 has no fallback
    for recipe, types in zip(THEIRS, theirs, strict=True):
        ours = chosen(model, recipe, imatrix=imatrix)
        assert types is None or ours == types, recipe
        assert types is None or list(ours) == list(types), recipe


imatrix_or_not = pytest.mark.parametrize("imatrix", [False, True], ids=["plain", "imatrix"])


@imatrix_or_not
@pytest.mark.parametrize("title", FEW)
def test_chooses_the_same_types_as_llama_quantize(title, imatrix, tmp_path):
    assert_same_choice(*LARGE[title], tmp_path, imatrix=imatrix)


@pytest.mark.matrix
@imatrix_or_not
@pytest.mark.parametrize("title", [title for title in LARGE if title not in FEW])
def test_chooses_the_same_types_as_llama_quantize_for_every_kind_of_model(title, imatrix, tmp_path):
    assert_same_choice(*LARGE[title], tmp_path, imatrix=imatrix)


@pytest.mark.parametrize(
    "flags",
    [
        {"pure": True},
        {"leave_output_tensor": True},
        {"output_tensor_type": "Q5_1"},
        {"token_embedding_type": "Q5_1"},
        {"output_tensor_type": "F16", "token_embedding_type": "IQ4_NL"},
        {"tensor_types": [["ffn_down", "Q8_0"], ["ffn", "Q5_1"], ["k.weight$", "F16"]]},
        {"tensor_types": [["per_layer", "Q5_1"]], "token_embedding_type": "Q8_0"},
    ],
    ids="+".join,
)
@pytest.mark.parametrize("title", ["tied", "per layer embedding", "odd width"])
def test_flags_change_types_as_in_llama_quantize(title, flags, tmp_path):
    metadata, tensors = LARGE[title]
    model = shapes.model_of(metadata, tensors)
    path = shapes.write_sparse(model, tmp_path / "model.gguf")
    wish = dict(flags)
    wish["patterns"] = patterns_of(map(tuple, wish.pop("tensor_types", ())))
    for key in ("output_tensor_type", "token_embedding_type"):
        wish[key] = tensor_type(wish[key]) if key in wish else None
    recipes = ("Q4_K_M", "IQ3_XS", "Q2_0", "F16", "MXFP4_MOE")
    for recipe, types in zip(recipes, llama_quantize.types(path, *recipes, **flags), strict=True):
        assert chosen(model, recipe, TypeRequests(**wish)) == types, recipe


# The tables themselves.


def test_recipes_match_the_numbers_of_general_file_type():
    numbers = {recipe.file_type: name for name, recipe in RECIPES.items() if name != "COPY"}
    assert numbers | IK_FILE_TYPES == FILE_TYPES


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_every_recipe_type_exists_and_has_a_less_strict_fallback(recipe):
    types = {rule.type for rules in recipe.rules.values() for rule in rules}
    for name in types | ({recipe.base} if recipe.base else set()):
        kind = tensor_type(name)
        fallback = tensor_type(recipe.fallbacks.get(name, LAST_RESORT))
        assert fallback.block_size < kind.block_size or kind.block_size == 1


def test_promotion_ends_at_types_that_need_no_importance_data():
    for name in NEEDS_IMATRIX:
        assert PROMOTED[name] not in NEEDS_IMATRIX


@pytest.mark.parametrize(
    ("name", "recipe"),
    [("q4_k", "Q4_K_M"), ("Q5_K_S", "Q5_K_S"), (15, "Q4_K_M"), ("15", "Q4_K_M"), ("copy", "COPY")],
)
def test_finds_a_recipe_by_name_alias_and_number(name, recipe):
    assert find_recipe(name) is RECIPES[recipe]


@pytest.mark.parametrize("name", ["Q9_K", "", "Q4_2", 4, 1 << 70, "-1", "²"])
def test_unknown_recipe_error_lists_all_recipes(name):
    with pytest.raises(TensorTypeError) as caught:
        find_recipe(name)
    assert "Q4_K_M" in caught.value.remedy


def test_ignores_negative_and_impossible_values():
    unknown = {"general.architecture": "llama", "llama.block_count": -3, "llama.expert_count": "x"}
    facts = facts_of(ggufkit.Metadata(unknown))
    assert (facts.layers, facts.experts, facts.grouped) == (0, 0, 0)


@pytest.mark.parametrize(("name", "near"), [("Q4_KM", "Q4_K_M"), ("iq3xs", "IQ3_XS")])
def test_mistyped_recipe_suggests_the_nearest(name, near):
    with pytest.raises(TensorTypeError, match=f"Did you mean {near}"):
        find_recipe(name)


def test_name_searches_do_not_match_the_layer_prefix():
    parts = itertools.chain(LLAMA_CPP.kept_parts, *LLAMA_CPP.kept_parts_of.values())
    for part in (*parts, *LLAMA_CPP.roles):
        assert not re.match(r"\d|blk\b|lk\b|k\b|\.\d", part), part
        assert without_layer(f"blk.12.{part}") == f".{part}"
