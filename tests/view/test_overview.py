"""The overview says what the library says."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ggufkit.inspection.summary import summarize
from ggufkit.view.overview import MAX_GROUPS, group_of, layer_grid, overview, treemap

ROW = np.zeros(32, np.float32)


@pytest.mark.parametrize("name", ["smollm2_page", "gemma3_page"])
def test_facts_are_those_of_inspect(request, name):
    model = request.getfixturevalue(name)
    document, facts = overview(model), summarize(model.model)
    for field in ("architecture", "parameters", "recipe", "bits_per_weight", "layers", "context"):
        assert document["summary"][field] == getattr(facts, field)
    assert document["tensors"] == len(model.model.tensors)
    assert document["keys"] == len(model.model.metadata)
    assert sum(share["nbytes"] for share in document["summary"]["types"]) == document["nbytes"]
    json.dumps(document, allow_nan=False)


def test_the_treemap_holds_every_byte(gemma3_page):
    tree = treemap(gemma3_page)
    cells = [cell for group in tree["groups"] for cell in group["cells"]]
    assert sum(cell["nbytes"] for cell in cells) == gemma3_page.model.nbytes
    nbytes = sum(cell.get("count", 1) for cell in cells)
    assert nbytes == len(gemma3_page.model.tensors)


def test_many_small_tensors_are_one_rectangle(model_page):
    tree = treemap(model_page({f"blk.{n}.attn_q.weight": ROW for n in range(10_000)}))
    (group,) = tree["groups"]
    assert group["name"] == "attention"
    assert [cell["count"] for cell in group["cells"]] == [10_000]


def test_a_file_that_names_many_groups_has_few_on_the_map(model_page):
    tree = treemap(
        model_page(
            {f"part{n}.blk.0.x": ROW[: 1 + n] for n in range(30)}
            | {f"p{n}.blk.0.x": ROW[:1] for n in range(500)}
        )
    )
    assert len(tree["groups"]) == MAX_GROUPS + 1
    assert sum(group["tensors"] for group in tree["groups"]) == 530
    assert tree["groups"][0]["name"] == "other"


def test_the_grid_has_a_cell_for_each_tensor_of_a_layer(smollm2_page):
    grid = layer_grid(smollm2_page)
    names = smollm2_page.tensor_names
    assert grid["layers"] == list(range(30))
    assert len(grid["cells"]) == sum(name.startswith("blk.") for name in names)
    for role, layer, number, kind in grid["cells"]:
        assert names[number] == f"blk.{grid['layers'][layer]}.{grid['roles'][role]}"
        tensor = smollm2_page.model[names[number]]
        assert grid["types"][kind]["name"] == tensor.type.name


def test_the_grid_counts_what_it_leaves_out(model_page):
    grid = layer_grid(model_page({f"blk.0.role{n}": ROW for n in range(300)}))
    assert (len(grid["cells"]), grid["left_out"]) == (200, 100)


def test_a_model_without_tensors_has_an_empty_map(model_page):
    model = model_page({}, {"general.architecture": "llama"})
    assert treemap(model)["groups"] == []
    assert layer_grid(model)["cells"] == []
    assert overview(model)["summary"]["bits_per_weight"] is None


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("token_embd.weight", "embedding"),
        ("output_norm.weight", "output"),
        ("blk.3.attn_norm.weight", "norms"),
        ("blk.3.ffn_up_exps.weight", "experts"),
        ("blk.3.ffn_up.weight", "feed forward"),
        ("blk.3.ssm_in.weight", "state space"),
        ("v.blk.3.attn_q.weight", "v"),
        ("anything", "other"),
    ],
)
def test_tensors_belong_to_groups(name, group):
    assert group_of(name) == group
