"""Recipes of ik_llama.cpp choose the types that its llama-quantize chooses."""

from __future__ import annotations

import json

import numpy as np
import pytest

import ggufkit
import ik_choices
from ggufkit import quants
from ggufkit.errors import TensorTypeError, ValueTypeError
from ggufkit.format.file_types import IK_FILE_TYPES
from ggufkit.format.types import IK, TensorType, tensor_type
from ggufkit.quantization.recipe_files import parse_custom_types
from ggufkit.quantization.recipes import ALL_RECIPES, IK_ONLY, PROGRAMS, RECIPES, find_recipe
from ggufkit.quants.ik_interleaved import interleaved
from shell import done
from shell import ggufkit as run

RECORDED = json.loads(ik_choices.TABLE.read_text(encoding="utf-8"))
RANDOM = np.random.default_rng(3).standard_normal((16, 256)).astype(np.float32)


@pytest.mark.parametrize("seed", [*map(int, RECORDED)])
def test_types_are_those_of_ik_llama(seed):
    model = ik_choices.model(seed)
    types = [
        ik_choices.ours(model, recipe, variant)
        for variant in ik_choices.variants(seed)
        for recipe in ik_choices.recipes(model)
    ]
    assert ik_choices.digest(types) == RECORDED[str(seed)]


def test_names_that_llama_cpp_knows_mean_its_recipes():
    assert not IK_ONLY.keys() & RECIPES.keys()
    assert find_recipe("Q4_K_M").program is None
    assert find_recipe("iq4_ks") is ALL_RECIPES["IQ4_KS"] is find_recipe(145)


@pytest.mark.parametrize("recipe", IK_ONLY.values(), ids=IK_ONLY)
def test_numbers_and_fallbacks_of_recipes_exist(recipe):
    assert IK_FILE_TYPES.get(recipe.file_type, "MXFP4") == recipe.name
    types = {rule.type for rules in recipe.rules.values() for rule in rules}
    for name in types | {recipe.base}:
        kind = tensor_type(name)
        fallback = tensor_type(recipe.fallbacks.get(kind.plain or name, "F16"))
        assert fallback.block_size < kind.block_size or kind.block_size == 1


def test_parts_of_names_do_not_match_the_layer_prefix():
    names = PROGRAMS[IK]
    parts = (*names.kept_parts, *names.roles)
    assert not [part for part in parts if part[0] in "bk0123456789." or "blk" in part]


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "model.gguf"
    keys = {"general.architecture": "llama", "llama.block_count": 1}
    names = ("output", "token_embd", "blk.0.attn_q", "blk.0.attn_v", "blk.0.ffn_down")
    tensors = {f"{name}.weight": RANDOM for name in names}
    ggufkit.save(path, tensors | {"blk.0.ffn_up.weight": RANDOM[:6]}, keys)
    return path


def test_interleaved_recipes_hold_the_blocks_of_their_plain_types(source, tmp_path):
    out = tmp_path / "out.gguf"
    done("quantize", source, out, "Q5_K_R4")
    with ggufkit.open(out) as model:
        assert {name: str(tensor.type) for name, tensor in model.tensors.items()} == {
            "output.weight": "Q6_K",
            "token_embd.weight": "Q5_K",
            "blk.0.attn_q.weight": "Q5_K_R4",
            "blk.0.attn_v.weight": "Q5_K_R4",
            "blk.0.ffn_down.weight": "Q5_K_R4",
            "blk.0.ffn_up.weight": "Q5_K",  # six rows
        }
        assert model.metadata["general.file_type"] == 216
        blocks = interleaved(quants.quantize(RANDOM, "Q5_K"), TensorType["Q5_K_R4"])
        np.testing.assert_array_equal(model["blk.0.attn_q.weight"].raw(), blocks)
    assert "file-type" not in done("check", out).out


def test_custom_rules_count_in_order_and_before_other_patterns(source, tmp_path):
    rules = "attn_q=q8_0,attn=iq4_xs_r8"
    options = ("--custom-q", rules, "--tensor-type", "attn_v=Q4_0", "--dry-run", "--json")
    document = done("quantize", source, "Q5_K_R4", *options).json()
    types = {tensor["name"]: tensor["new_type"] for tensor in document["tensors"]}
    assert (types["blk.0.attn_q.weight"], types["blk.0.attn_v.weight"]) == ("Q8_0", "IQ4_XS_R8")
    assert types["blk.0.ffn_down.weight"] == "Q5_K_R4"


def test_custom_rules_keep_their_case_and_need_a_type():
    assert parse_custom_types("Attn=q4_K,b=iq4_k") == [("Attn", "Q4_K"), ("b", "IQ4_K")]
    with pytest.raises(ValueTypeError, match="'attn_q' is not of the form PATTERN=TYPE"):
        parse_custom_types("attn_q")
    with pytest.raises(TensorTypeError, match="Q9_K"):
        parse_custom_types("a=Q9_K")


def test_types_that_cannot_be_encoded_are_refused_before_any_work(source, tmp_path):
    recipe, out = tmp_path / "mine.toml", tmp_path / "out.gguf"
    recipe.write_text('base = "Q8_0"\n[types]\n"attn_q" = "IQ4_KT"\n')
    requests = (
        ("Q8_0", "--custom-q", "attn_q=iq4_kt"),
        ("Q8_0", "--tensor-type", "attn_q=Q8_KV"),
        ("Q8_0", "--token-embedding-type", "IQ1_BN"),
        ("Q8_0", "--output-tensor-type", "IQ1_S_R4"),
        (recipe,),
    )
    for words in requests:
        for place in ((out,), ()):
            dry_run = () if place else ("--dry-run",)
            result = run("quantize", source, *place, *words, *dry_run)
            assert result.code == 1
            assert ".weight: " in result.err
            assert "cannot be encoded, only decoded" in result.err
    assert not out.exists()
    rows = np.ones((2, 576), np.float32)
    ggufkit.save(source, {"blk.0.attn_q.weight": rows}, {"general.architecture": "llama"})
    done("quantize", source, out, "IQ4_K", "--custom-q", "attn_q=iq4_kt")
    with ggufkit.open(out) as model:
        assert model["blk.0.attn_q.weight"].type == "IQ4_NL"


def test_custom_rules_exclude_a_target_size(source, tmp_path):
    options = ("--custom-q", "attn_q=q8_0", "--target-bpw", "4")
    result = run("quantize", source, tmp_path / "out.gguf", *options)
    assert (result.code, "remove --custom-q" in result.err) == (2, True)


def test_the_types_of_an_interleaved_file_can_be_copied(source, tmp_path):
    first, second = tmp_path / "a.gguf", tmp_path / "b.gguf"
    done("quantize", source, first, "Q4_K_R4")
    done("quantize", source, second, "--like", first)
    assert first.read_bytes() == second.read_bytes()


def test_very_small_interleaved_types_need_importance_data(source, tmp_path):
    result = run("quantize", source, tmp_path / "a.gguf", "IQ2_XXS_R4")
    assert result.code == 1
    assert "importance data" in result.err
    done("quantize", source, tmp_path / "a.gguf", "Q4_0_R8", "--promote-uncovered")


def test_a_recipe_file_can_start_from_a_recipe_of_ik_llama(source, tmp_path):
    recipe = tmp_path / "mine.toml"
    recipe.write_text('base = "Q5_K_R4"\n[types]\n"ffn_down" = "Q8_0_R8"\n')
    done("quantize", source, tmp_path / "a.gguf", recipe)
    with ggufkit.open(tmp_path / "a.gguf") as model:
        assert model["blk.0.ffn_down.weight"].type == "Q8_0_R8"
        assert model["blk.0.attn_q.weight"].type == "Q5_K_R4"
