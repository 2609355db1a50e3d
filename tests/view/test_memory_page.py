"""Memory is what `estimate` says, shared out to devices."""

from __future__ import annotations

import numpy as np
import pytest

import ggufkit
from ggufkit.errors import ValueTypeError
from ggufkit.inspection.estimate import largest_context
from ggufkit.view.memory_page import expert_bytes, memory, memory_curves, memory_facts

MIB = 1 << 20


def test_figures_are_those_of_estimate(gemma3_page):
    document = memory(gemma3_page, {"context": 4096, "cache_type": "Q8_0"})
    expected = ggufkit.estimate(gemma3_page.model, context=4096, cache_type="Q8_0")
    for name in ("weights", "cache", "state", "compute", "output", "total", "context"):
        assert document[name] == getattr(expected, name)
    assert len(document["layers"]) == len(expected.layers)


def test_curves_are_those_of_plan_memory(gemma3_page):
    model, options = gemma3_page.model, {"cache_type": "Q8_0", "sequences": 2}
    document = memory_curves(gemma3_page, {**options, "devices": [1000 * MIB]})
    assert document["contexts"][0] == 512
    assert document["contexts"][-1] == memory_facts(gemma3_page)["trained_context"]
    recipes = [curve["recipe"] for curve in document["curves"]]
    assert recipes[0] == "as it is"
    assert "Q8_0" not in recipes  # which would make it larger
    for curve in document["curves"]:
        recipe = None if curve["recipe"] == "as it is" else curve["recipe"]
        planned = ggufkit.plan_memory(model, [recipe], document["contexts"], **options)
        assert curve["totals"] == [plan.estimate.total for plan in planned]
        longest = curve["largest_context"]
        fits = [
            ggufkit.plan_memory(model, [recipe], [context], **options)[0].estimate.fit(1000 * MIB)
            for context in (longest, longest + 1024)
        ]
        assert [fit.is_whole for fit in fits] == [True, False]


def test_without_devices_no_context_is_the_longest(gemma3_page):
    curves = memory_curves(gemma3_page, {})["curves"]
    assert {curve["largest_context"] for curve in curves} == {None}


@pytest.mark.parametrize("room", [0, 150 * MIB, 400 * MIB, 10_000 * MIB])
def test_one_device_takes_what_estimate_says_fits(gemma3_page, room):
    split = memory(gemma3_page, {"context": 4096, "devices": [room]})["split"]
    fit = ggufkit.estimate(gemma3_page.model, context=4096).fit(room)
    assert (split["layers"], split["devices"][0]["nbytes"]) == (fit.layers, fit.device)
    assert split["host"] == fit.host
    assert split["fits"] == fit.is_whole


def test_a_second_device_takes_the_layers_that_are_left(gemma3_page):
    one = memory(gemma3_page, {"context": 4096, "devices": [400 * MIB]})["split"]
    two = memory(gemma3_page, {"context": 4096, "devices": [400 * MIB, 4000 * MIB]})["split"]
    assert two["layers"] > one["layers"]
    assert two["fits"]


def test_fewer_layers_are_placed_when_fewer_are_wanted(gemma3_page):
    split = memory(gemma3_page, {"devices": [10_000 * MIB], "layers": 3, "context": 512})["split"]
    assert (split["layers"], split["wanted"]) == (3, 3)


def test_experts_on_the_processor_leave_room(model_page, smollm2_page):
    metadata = dict(smollm2_page.model.metadata.typed_items())
    tensors = {name: smollm2_page.model[name] for name in smollm2_page.model}
    tensors["blk.0.ffn_up_exps.weight"] = np.zeros((4, 64, 64), np.float32)
    model = model_page(tensors, metadata)
    assert expert_bytes(model.model) == {0: 4 * 64 * 64 * 4}
    assert memory_facts(model)["expert_bytes"] == 4 * 64 * 64 * 4
    settings = {"context": 512, "devices": [10_000 * MIB]}
    all_there = memory(model, settings)["split"]["devices"][0]["nbytes"]
    without = memory(model, {**settings, "cpu_experts": 1})["split"]
    assert all_there - without["devices"][0]["nbytes"] == 4 * 64 * 64 * 4
    assert (
        without["host"] + without["devices"][0]["nbytes"]
        == all_there + memory(model, settings)["split"]["host"]
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"context": "x"},
        {"context": -1},
        {"context": True},
        {"devices": 5},
        {"devices": [-1]},
        {"devices": [1] * 99},
        {"cache_type": "Q2_K"},
        {"sequences": 10**6},
    ],
)
def test_what_llama_cpp_would_refuse_is_refused(gemma3_page, settings):
    with pytest.raises(ggufkit.GGUFError):
        memory(gemma3_page, settings)


def test_half_a_layer_is_refused(gemma3_page):
    with pytest.raises(ValueTypeError, match="layers"):
        memory(gemma3_page, {"layers": 1.5, "devices": [MIB]})


def test_two_devices_that_need_a_buffer_each_are_not_one_of_their_sum(gemma3_page):
    two = {"devices": [400 * MIB, 400 * MIB]}
    curve = memory_curves(gemma3_page, two)["curves"][0]
    expected = largest_context(gemma3_page.model, [400 * MIB] * 2, context=1 << 20)
    assert curve["largest_context"] == memory(gemma3_page, two)["largest_context"] == expected
    assert expected < largest_context(gemma3_page.model, 800 * MIB, context=1 << 20)
