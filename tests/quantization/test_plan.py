from __future__ import annotations

import numpy as np
import pytest

import ggufkit
import llama_quantize
import shapes
from ggufkit.format.types import tensor_type
from ggufkit.imatrix.matrix import Imatrix
from ggufkit.quantization.recipes import RECIPES

PARTS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_gate", "ffn_down")
LLAMA_2_7B = shapes.large()["llama 7B"]


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """Llama 2 7B without its data."""
    folder = tmp_path_factory.mktemp("llama")
    return shapes.write_sparse(shapes.model_of(*LLAMA_2_7B), folder / "llama-2-7b.gguf")


def test_sizes_of_llama_2_7b_match_the_published_ones(llama):
    with ggufkit.open(llama) as model:
        planned = {one.recipe: round(one.nbytes / 1e9, 1) for one in ggufkit.plan(model)}
    published = {"F16": 13.5, "Q8_0": 7.2, "Q5_K_M": 4.8, "Q4_K_M": 4.1}
    assert {name: planned[name] for name in published} == published
    assert planned["Q2_K"] == 2.5  # 2.8 in 2023, when the recipe made more tensors larger


def test_sizes_match_llama_quantize(llama):
    recipes = ["Q2_K", "Q4_K_M", "Q8_0"]
    _, tensors = LLAMA_2_7B
    with ggufkit.open(llama) as model:
        planned = ggufkit.plan(model, recipes)
        head = model.data_offset
    for one, types in zip(planned, llama_quantize.types(llama, *recipes), strict=True):
        sizes = (
            tensor_type(types[name]).row_bytes(shape[-1]) * (shape[0] if len(shape) > 1 else 1)
            for name, shape in tensors.items()
        )
        assert 0 <= one.nbytes - sum(sizes) - head < 4096  # keys that quantizing adds


def test_planned_size_matches_the_written_file(smollm2, tmp_path):
    with ggufkit.open(smollm2) as model:
        planned = ggufkit.plan(model, ["Q8_0"])[0]
        ggufkit.write(ggufkit.quantize(model, "Q8_0", allow_requantize=True), tmp_path / "q")
    assert planned.nbytes == (tmp_path / "q").stat().st_size


def test_effective_bits_of_rows_that_fit_no_block_of_256():
    numbers = np.zeros((64, 640), np.float32)
    tensors = {f"blk.{n}.{part}.weight": numbers for n in range(8) for part in PARTS}
    model = ggufkit.model(tensors, {"general.architecture": "llama", "llama.block_count": 8})
    (row,) = ggufkit.plan(model, "IQ1_S")
    assert (row.nominal_bits, row.fallback_widths) == (1.5625, (640,))
    assert row.bits_per_weight == pytest.approx(4.5, abs=0.2)  # IQ4_NL
    (plain,) = ggufkit.plan(model, "F16")
    assert (plain.nominal_bits, plain.fallback_widths) == (None, ())


def test_plans_every_recipe(llama):
    with ggufkit.open(llama) as model:
        planned = ggufkit.plan(model)
    assert [one.recipe for one in planned] == [name for name in RECIPES if name != "COPY"]


def test_importance_matrix_covers_the_tensors_it_holds(llama, tmp_path):
    _, tensors = LLAMA_2_7B
    with ggufkit.open(llama) as model:
        bare = ggufkit.plan(model, ["IQ2_XXS"])[0]
        assert bare.uncovered == 188
        data = shapes.importance({n: s for n, s in tensors.items() if "attn_q" in n})
        Imatrix(data).save(tmp_path / "data.gguf")
        some = ggufkit.plan(model, ["IQ2_XXS"], imatrix=tmp_path / "data.gguf")[0]
    assert some.uncovered == 188 - 32
