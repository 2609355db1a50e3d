"""The overview says what the library says."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ggufkit.inspection.summary import summarize
from ggufkit.view.overview import MAX_GROUPS, group_of, layer_grid, overview, treemap

ROW = np.zeros(32, np.float32)


@pytest.mark.parametrize("name", ["shown_smollm2", "shown_gemma3"])
def test_facts_are_those_of_inspect(request, name):
    shown = request.getfixturevalue(name)
    found, facts = overview(shown), summarize(shown.model)
    for field in ("architecture", "parameters", "recipe", "bits_per_weight", "layers", "context"):
        assert found["summary"][field] == getattr(facts, field)
    assert found["tensors"] == len(shown.model.tensors)
    assert found["keys"] == len(shown.model.metadata)
    assert sum(share["nbytes"] for share in found["summary"]["types"]) == found["nbytes"]
    json.dumps(found, allow_nan=False)


def test_the_treemap_holds_every_byte(shown_gemma3):
    found = treemap(shown_gemma3)
    cells = [cell for group in found["groups"] for cell in group["cells"]]
    assert sum(cell["nbytes"] for cell in cells) == shown_gemma3.model.nbytes
    held = sum(cell.get("count", 1) for cell in cells)
    assert held == len(shown_gemma3.model.tensors)


def test_many_small_tensors_are_one_rectangle(shown):
    found = treemap(shown({f"blk.{n}.attn_q.weight": ROW for n in range(10_000)}))
    (group,) = found["groups"]
    assert group["name"] == "attention"
    assert [cell["count"] for cell in group["cells"]] == [10_000]


def test_a_file_that_names_many_groups_has_few_on_the_map(shown):
    found = treemap(
        shown(
            {f"part{n}.blk.0.x": ROW[: 1 + n] for n in range(30)}
            | {f"p{n}.blk.0.x": ROW[:1] for n in range(500)}
        )
    )
    assert len(found["groups"]) == MAX_GROUPS + 1
    assert sum(group["tensors"] for group in found["groups"]) == 530
    assert found["groups"][0]["name"] == "other"


def test_the_grid_has_a_cell_for_each_tensor_of_a_layer(shown_smollm2):
    found = layer_grid(shown_smollm2)
    names = shown_smollm2.tensor_names
    assert found["layers"] == list(range(30))
    assert len(found["cells"]) == sum(name.startswith("blk.") for name in names)
    for role, layer, number, kind in found["cells"]:
        assert names[number] == f"blk.{found['layers'][layer]}.{found['roles'][role]}"
        tensor = shown_smollm2.model[names[number]]
        assert found["types"][kind]["name"] == tensor.type.name


def test_the_grid_counts_what_it_leaves_out(shown):
    found = layer_grid(shown({f"blk.0.role{n}": ROW for n in range(300)}))
    assert (len(found["cells"]), found["left_out"]) == (200, 100)


def test_a_model_without_tensors_has_an_empty_map(shown):
    model = shown({}, {"general.architecture": "llama"})
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
