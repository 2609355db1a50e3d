from __future__ import annotations

import pytest

import shapes
from shell import done, ggufkit


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """Llama 2 7B without its data."""
    folder = tmp_path_factory.mktemp("llama")
    model = shapes.model_of(*shapes.large()["llama 7B"])
    return shapes.write_sparse(model, folder / "llama-2-7b.gguf")


def test_what_takes_memory_stands_in_a_table(llama):
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
    told = done("estimate", llama, "--context", 8192, "--cache-type", "q8_0", "--json").json()
    assert told["context"] == 8192
    assert told["cache"] == 32 * 2 * 4096 // 32 * 34 * 8192
    assert told["total"] == sum(
        told[kind] for kind in ("weights", "cache", "state", "compute", "output")
    )
    assert [layer["number"] for layer in told["layers"]] == list(range(32))
    assert "fit" not in told


def test_memory_tells_what_fits(llama):
    words = ("estimate", llama, "--recipe", "Q4_K_M", "--memory")
    assert "All 33 layers fit" in done(*words, "8GiB").out
    assert "--n-gpu-layers" in done(*words, "4G").out
    assert "No layer fits" in done(*words, "1M").out
    told = done(*words, "6G", "--json").json()
    assert told["fit"]["layers"] > 0
    assert told["largest_context"] % 256 == 0 < told["largest_context"] < 4096


def test_layers_have_a_line_each(llama):
    lines = done("estimate", llama, "--layers").lines
    assert sum(line.endswith("67.1 MB  0 bytes") for line in lines) == 32


@pytest.mark.parametrize(
    "words", [("--cache-type", "Q4_K"), ("--memory", "much"), ("--context", "0")]
)
def test_wrong_option_is_wrong_usage(llama, words):
    assert ggufkit("estimate", llama, *words).code == 2


def test_recipe_that_wants_importance_data_is_reckoned_without(llama):
    assert done("estimate", llama, "--recipe", "IQ2_XXS", "--json").json()["weights"] < 2e9


def test_unknown_recipe_is_an_error_with_the_nearest(llama):
    result = ggufkit("estimate", llama, "--recipe", "Q4_K_X")
    assert result.code == 1
    assert "Q4_K" in result.err


def test_file_that_is_no_model_is_an_error(tmp_path):
    (tmp_path / "x").write_text("no model")
    assert ggufkit("estimate", tmp_path / "x").code == 1
