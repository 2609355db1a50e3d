from __future__ import annotations

import pytest

import ggufkit as api
import projector_folders
import shapes
from shell import done, ggufkit


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """Llama 2 7B without its data."""
    folder = tmp_path_factory.mktemp("llama")
    model = shapes.model_of(*shapes.large()["llama 7B"])
    return shapes.write_sparse(model, folder / "llama-2-7b.gguf")


def test_shows_memory_use_in_a_table(llama):
    lines = done("estimate", llama).lines
    assert [line.split()[0] for line in lines[1:]] == [
        "weights",
        "cache",
        "compute",
        "output",
        "total",
    ]
    assert lines[2].split()[1:3] == ["2.1", "GB"]
    assert "4,096 tokens" in lines[2]


def test_json_holds_the_exact_bytes(llama):
    facts = done("estimate", llama, "--context", 8192, "--cache-type", "q8_0", "--json").json()
    assert facts["context"] == 8192
    assert facts["cache"] == 32 * 2 * 4096 // 32 * 34 * 8192
    assert facts["total"] == sum(
        facts[kind] for kind in ("weights", "cache", "state", "compute", "output")
    )
    assert [layer["number"] for layer in facts["layers"]] == list(range(32))
    assert "fit" not in facts


def test_memory_option_shows_what_fits(llama):
    words = ("estimate", llama, "--recipe", "Q4_K_M", "--memory")
    assert "All 33 layers fit" in done(*words, "8GiB").out
    assert "--n-gpu-layers" in done(*words, "4G").out
    assert "No layer fits" in done(*words, "2M").out
    document = done(*words, "6G", "--json").json()
    assert document["fit"]["layers"] > 0
    assert document["largest_context"] % 256 == 0 < document["largest_context"] < 4096


def test_each_layer_has_a_line(llama):
    lines = done("estimate", llama, "--layers").lines
    assert sum(line.endswith("67.1 MB  0 bytes") for line in lines) == 32


def test_shows_the_largest_context_at_which_all_layers_fit(tmp_path):
    large = shapes.dense("llama", 32, 4096, 32, 8, 14336, vocabulary=128256)
    path = shapes.write_sparse(shapes.model_of(*large, "Q8_0"), tmp_path / "llama-3-8b.gguf")
    words = ("estimate", path, "--memory", "8GiB", "--context")
    assert "All 33 layers fit" in done(*words, 2048).out
    assert "All layers fit with a context of up to 2,048 tokens" in done(*words, 2048).out
    most = done(*words, "32k", "--json").json()["largest_context"]
    assert 2048 <= most < 32768
    assert done(*words, most, "--json").json()["fit"]["is_whole"]
    assert not done(*words, most + 256, "--json").json()["fit"]["is_whole"]
    assert "No context is short enough" in done(*words[:3], "4GiB").out


def test_contexts_take_units_and_answers_use_the_same_units(llama):
    assert done("estimate", llama, "--context", "8k", "--json").json()["context"] == 8192
    binary, decimal = (done("estimate", llama, "--memory", m).out for m in ("8GiB", "8GB"))
    assert "2.0 GiB  keys and values" in binary
    assert " GB" not in binary
    assert "2.1 GB  keys and values" in decimal
    assert "iB" not in decimal


def test_the_devices_of_this_machine_are_found(llama, monkeypatch):
    sizes = (2 << 30, 3 << 30)
    monkeypatch.setattr("ggufkit.inspection.device_memory.device_memories", lambda: sizes)
    automatic, written = (
        done("estimate", llama, "--memory", memory, "--json")
        for memory in ("auto", "2147483648+3221225472")
    )
    assert (automatic.out, written.err) == (written.out, "")
    assert "the devices of this machine: 2.1 GB + 3.2 GB" in automatic.err


@pytest.mark.parametrize("memory", ["8", "8k", "1000000"])
def test_impossible_amount_of_memory_is_wrong_usage(llama, memory):
    result = ggufkit("estimate", llama, "--memory", memory)
    assert result.code == 2
    assert "bytes" in result.err
    assert ("write 8GiB" in result.err) == (memory == "8")


@pytest.mark.parametrize(
    "words",
    [
        ("--cache-type", "Q4_K"),
        ("--memory", "much"),
        ("--context", "0"),
        ("--context", "0k"),
        ("--context", "1.5k"),
        ("--context", "9" * 30 + "k"),
    ],
)
def test_wrong_option_is_wrong_usage(llama, words):
    assert ggufkit("estimate", llama, *words).code == 2


def test_recipe_that_needs_importance_data_is_estimated_without_it(llama):
    assert done("estimate", llama, "--recipe", "IQ2_XXS", "--json").json()["weights"] < 2e9


def test_unknown_recipe_suggests_the_nearest(llama):
    result = ggufkit("estimate", llama, "--recipe", "Q4_K_X")
    assert result.code == 2
    assert "Q4_K" in result.err


def test_refuses_a_file_that_is_not_a_model(tmp_path):
    (tmp_path / "x").write_text("no model")
    assert ggufkit("estimate", tmp_path / "x").code == 1


def test_notes_a_file_that_does_not_say_its_context(llama, tmp_path):
    assert "context" not in done("estimate", llama).err
    metadata, tensors = shapes.large()["llama 7B"]
    others = {key: value for key, value in metadata.items() if key != "llama.context_length"}
    silent = shapes.write_sparse(shapes.model_of(others, tensors), tmp_path / "silent.gguf")
    assert "4,096 tokens (--context)" in done("estimate", silent).err
    assert done("estimate", silent, "--context", "512").err == ""


def test_wrong_context_is_called_a_number_of_tokens(llama):
    result = ggufkit("estimate", llama, "--context", "x")
    assert result.code == 2
    assert "not a valid number of tokens" in result.err


def test_projector_shows_its_weights(tmp_path):
    folder = projector_folders.make(projector_folders.cases()["gemma3"], tmp_path / "model")
    with api.convert(folder, mmproj=True) as model:
        api.write(model, tmp_path / "mmproj.gguf")
    result = ggufkit("estimate", tmp_path / "mmproj.gguf", "--memory", "8G", "--layers")
    assert result.code == 0, result.err
    assert "weights" in result.out
    assert "cache" not in result.out
    assert "The weights fit." in result.out
    assert "compute buffer" in result.err


# Tables.


def test_contexts_and_recipes_make_a_table(llama):
    words = ("--recipe", "Q8_0,Q4_K_M", "--context", "4k", "--context", "8k")
    result = done("estimate", llama, *words)
    header, *rows = [line.split() for line in result.lines]
    assert header == ["RECIPE", "CONTEXT", "WEIGHTS", "CACHE", "TOTAL"]
    assert [row[:2] for row in rows] == [
        ["Q8_0", "4,096"],
        ["Q8_0", "8,192"],
        ["Q4_K_M", "4,096"],
        ["Q4_K_M", "8,192"],
    ]
    for row in done("estimate", llama, *words, "--json").json()["rows"]:
        options = ("--recipe", row["recipe"], "--context", row["context"], "--json")
        alone = done("estimate", llama, *options).json()
        assert [row[k] for k in ("weights", "cache", "total")] == [
            alone[k] for k in ("weights", "cache", "total")
        ]


def test_the_largest_recipe_for_a_memory_is_named(llama):
    words = ("estimate", llama, "--recipe", "all", "--context", "8k", "--memory", "8GiB")
    result = done(*words)
    last = result.lines[-1]
    assert last.startswith("Largest recipe for 8GiB with 8,192 tokens: ")
    fitting = [line.split()[0] for line in result.lines if line.endswith("fits")]
    assert last.split()[-1] == fitting[0]  # the largest come first
    (largest,) = done(*words, "--json").json()["largest"]
    assert largest["recipe"] == fitting[0]
    with api.open(llama) as model:
        chosen = api.largest_recipe(model, 8 << 30, context=8192)
    assert chosen.recipe == fitting[0]
    assert chosen.estimate.fit(8 << 30).is_whole


def test_a_memory_that_no_recipe_fits_is_named_too(llama):
    result = done("estimate", llama, "--recipe", "all", "--memory", "1GiB")
    assert result.lines[-1] == "Largest recipe for 1GiB with 4,096 tokens: none fits"


def test_a_model_that_fits_as_it_is_needs_no_recipe(llama):
    with api.open(llama) as model:
        assert api.largest_recipe(model, 1 << 40).recipe is None
        assert api.largest_recipe(model, 1 << 20) is None


def test_several_memories_are_columns(llama):
    words = ("--recipe", "Q4_K_M", "--memory", "4GiB", "--memory", "4GiB+4GiB")
    header, row = done("estimate", llama, *words).lines[:2]
    assert header.split()[-2:] == ["4GiB", "4GiB+4GiB"]
    assert "of 33 layers" in row
    assert row.endswith("fits")


def test_devices_share_the_layers(llama):
    words = ("estimate", llama, "--recipe", "Q4_K_M", "--memory", "3GiB+3GiB")
    fit = done(*words, "--json").json()["fit"]
    assert sum(fit["split"]) == fit["layers"]
    assert len(fit["split"]) == 2
    assert "Layers of each device, from the last on: " in done(*words).out


def test_two_devices_take_no_more_than_one_of_their_size(llama):
    with api.open(llama) as model:
        estimated = api.estimate(model)
    together = estimated.fit([5 << 30, 5 << 30])
    assert together.layers <= estimated.fit(10 << 30).layers
    assert together.layers >= estimated.fit(5 << 30).layers
    assert estimated.fit([5 << 30]) == estimated.fit(5 << 30)


def test_each_layer_is_shown_for_one_model_only(llama):
    result = ggufkit("estimate", llama, "--context", "1k", "--context", "2k", "--layers")
    assert (result.code, result.out) == (2, "")
    assert "--layers shows one context, recipe and memory" in result.err
