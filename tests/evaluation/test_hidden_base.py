"""Small base files give the figures of base files, and are refused where they would not."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import ggufkit
import measured_llama
import real  # noqa: F401 (marks these tests: they run llama.cpp)
import small_llama
from ggufkit.errors import FormatError, ValueTypeError

CONTEXT = 64


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def models(folder):
    return [
        measured_llama.save(folder / f"{noise}.gguf", noise) for noise in (0, 0.01)
    ]  # a base and a model


@pytest.fixture(scope="module")
def text(folder):
    return measured_llama.text(folder / "text.txt", 800)


def evaluate(models, text=None, **options):
    return ggufkit.evaluate(models, text, threads=1, **{"context": CONTEXT} | options)


@pytest.fixture
def small(models, text, tmp_path):
    path = tmp_path / "base.gguf"
    evaluate((), text, base=models[0], base_logits=path)
    return path


@pytest.mark.parametrize("quantized", [None, "Q8_0", "F16"])
def test_figures_are_the_same_to_the_last_bit(models, text, quantized, tmp_path):
    base, model = models
    if quantized:
        base = tmp_path / "quantized.gguf"
        ggufkit.quantize(models[0], quantized).write(base)
    large, small = tmp_path / "base.kld", tmp_path / "base.gguf"
    expected = evaluate(model, text, base=base, base_logits=large)
    evaluation = evaluate(model, text, base=base, base_logits=small)
    assert (evaluation.base, evaluation.models) == (expected.base, expected.models)
    assert evaluate(model, base_logits=small, context=None).models == expected.models


def test_only_the_first_chunks_are_read_if_wanted(models, text, small, tmp_path):
    large = tmp_path / "base.kld"
    evaluate((), text, base=models[0], base_logits=large)
    first = [evaluate(models[1], base_logits=file, chunks=2) for file in (small, large)]
    assert first[0].chunks == 2
    assert first[0].models == first[1].models


def test_a_model_that_scales_its_logits_is_refused(models, text, tmp_path):
    keys = {key.replace("llama.", "granite."): value for key, value in small_llama.keys().items()}
    keys |= {"general.architecture": "granite", "granite.logit_scale": np.float32(2)}
    ggufkit.save(tmp_path / "granite.gguf", small_llama.tensors(), keys)
    with pytest.raises(ValueTypeError, match="more than a product with its output matrix"):
        evaluate((), text, base=tmp_path / "granite.gguf", base_logits=tmp_path / "base.gguf")
    assert [path.name for path in tmp_path.iterdir()] == ["granite.gguf"]


def test_a_model_is_not_taken_for_a_base_file(models):
    with pytest.raises(FormatError, match="this is a model, not a base file"):
        evaluate(models[1], base_logits=models[0])


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("tokens", np.full((12, CONTEXT), 8, np.int32), "do not fit together"),
        ("tokens", np.zeros((3, CONTEXT), np.int32), "do not fit together"),
        ("tokens", np.zeros(CONTEXT, np.int32), "do not fit together"),
        ("output.weight", np.zeros((8, 32), np.float32), "do not fit together"),
        ("hidden", np.zeros((1, 31, 64), np.float16), "not a base file"),
    ],
)
def test_tensors_that_do_not_fit_together_are_refused(models, small, name, values, message):
    with ggufkit.open(small) as base:
        tensors = {name: tensor.numpy() for name, tensor in base.tensors.items()}
        ggufkit.save(small.with_name("wrong.gguf"), tensors | {name: values}, base.metadata)
    with pytest.raises(FormatError, match=message):
        evaluate(models[1], base_logits=small.with_name("wrong.gguf"))


def test_values_that_are_no_numbers_are_refused(models, small):
    with ggufkit.open(small) as base:
        tensors = {name: tensor.numpy().copy() for name, tensor in base.tensors.items()}
        tensors["hidden"][1, 2, 3] = np.nan
        ggufkit.save(small.with_name("wrong.gguf"), tensors, base.metadata)
    with pytest.raises(FormatError, match="chunk 2 has values that are not numbers"):
        evaluate(models[1], base_logits=small.with_name("wrong.gguf"))


def test_resume_refuses_a_small_base_file(models, text, tmp_path):
    with pytest.raises(ValueTypeError, match="written in one run"):
        evaluate((), text, base=models[0], base_logits=tmp_path / "base.gguf", resume=True)


EVERY_TYPE = """
import sys
import numpy as np
import ggufkit
from ggufkit.errors import GGUFError
from ggufkit.evaluation.hidden_base import HiddenBase
from ggufkit.format.types import GGML_TYPES

path = sys.argv[1]
for kind in GGML_TYPES.values():
    nbytes = 256 // (kind.block_size or 256) * (kind.block_bytes or 256)
    tensors = {
        "tokens": np.zeros((1, 64), np.int32),
        "hidden": np.ones((1, 31, 256), np.float32),
        "output.weight": ((8, 256), kind, lambda a, b: np.zeros((b - a, nbytes), np.uint8)),
    }
    try:
        ggufkit.save(path, tensors, {"general.architecture": "evaluation-base"})
        base = HiddenBase(path, None, 1)
        values = base.log_probabilities(0, 0)
        assert np.allclose(values, -np.log(8), atol=1e-3), (kind.name, values)
        print(kind.name)
        base.close()
    except GGUFError:
        pass
"""


def test_an_output_matrix_of_any_type_is_multiplied_or_refused(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", EVERY_TYPE, tmp_path / "base.gguf"],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {"F32", "F16", "BF16", "Q8_0", "Q4_K", "IQ2_XXS", "NVFP4"} <= set(done.stdout.split())
    assert not {"F64", "I8", "I16", "I32", "I64", "Q8_K"} & set(done.stdout.split())
