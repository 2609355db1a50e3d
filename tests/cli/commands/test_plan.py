from __future__ import annotations

import pytest

import shapes
from ggufkit.quantization.recipes import IK_ONLY, RECIPES
from shell import done, ggufkit


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """Llama 2 7B without its data."""
    folder = tmp_path_factory.mktemp("llama")
    model = shapes.model_of(*shapes.large()["llama 7B"])
    return shapes.write_sparse(model, folder / "llama-2-7b.gguf")


def test_recipes_are_listed_with_the_largest_first(llama):
    lines = done("plan", llama).lines
    assert len(lines) == len(RECIPES)  # a header, and no COPY
    assert lines[1].split() == ["F32", "27.0", "GB", "32.00"]
    assert lines[-1].split() == ["Q1_0", "1.0", "GB", "1.23"]
    assert ["Q4_K_M", "4.1", "GB", "4.84"] in [line.split() for line in lines]


def test_json_holds_the_exact_bytes(llama):
    document = done("plan", llama, "--json").json()
    by_name = {one["recipe"]: one for one in document["recipes"]}
    assert by_name["Q8_0"]["nbytes"] // 10**7 == 716
    assert by_name["IQ2_XXS"]["uncovered"] == 188
    assert [one["nbytes"] for one in document["recipes"]] == sorted(
        (one["nbytes"] for one in document["recipes"]), reverse=True
    )


def test_recipes_of_ik_llama_are_listed_if_their_types_can_be_encoded(llama):
    recipes = done("plan", llama, "--program", "ik_llama.cpp", "--json").json()["recipes"]
    sizes = {one["recipe"]: one["nbytes"] for one in recipes}
    assert sizes.keys() <= IK_ONLY.keys()
    q8 = done("plan", llama, "--json").json()["recipes"]
    assert abs(sizes["Q8_0_R8"] - next(p["nbytes"] for p in q8 if p["recipe"] == "Q8_0")) < 99


def test_refuses_a_file_that_is_not_a_model(tmp_path):
    (tmp_path / "x").write_text("no model")
    assert ggufkit("plan", tmp_path / "x").code == 1


def test_search_adds_a_column_for_tensors_without_one(llama):
    lines = {line.split()[0]: line for line in done("plan", llama, "--search", "best").lines}
    assert lines["RECIPE"].endswith("NO SEARCH")
    assert lines["Q8_0"].split()[-1] == "226"  # every matrix
    assert lines["Q4_K_M"].split()[-1] == "4.84"
    document = done("plan", llama, "--search", "best", "--json").json()
    assert {one["recipe"]: one["unsearched"] for one in document["recipes"]}["TQ1_0"] == 224


def test_explains_the_types_of_one_recipe(llama):
    table = done("plan", llama, "--explain", "q4_k_m")
    assert any(line.split()[:3] == ["output.weight", "F16", "Q6_K"] for line in table.lines)
    document = done("plan", llama, "--explain", "Q4_K_M", "--search", "best", "--json").json()
    assert document["recipe"] == "Q4_K_M"
    assert any("searched for (best)" in one["why"] for one in document["explanations"])


def test_unknown_recipe_to_explain_is_a_usage_error(llama):
    assert ggufkit("plan", llama, "--explain", "Q9").code == 2
