"""All figures are llama-perplexity's, to the last digit that it prints.

What it printed is recorded in `llama_perplexity/`: its `perplexity.cpp`, linked with the llama.cpp
of the binding, so that both compute the same logits::

    llama-perplexity -m smollm2.gguf -f prose.txt -c 256 --chunks 4 --kl-divergence-base base
    llama-perplexity -m Q3_K_M.gguf -c 256 --kl-divergence-base base --kl-divergence
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import ggufkit
from ggufkit.cli.commands.eval import report_lines
from prose import prose

CONTEXT, CHUNKS = 256, 4
RECORDED = Path(__file__).with_name("llama_perplexity")
BASE_SHA256 = "41e6e9b697850ff871b07a28783e162eee1e38999c42c5afa3a9c97acd45e435"
PERPLEXITY = "Final estimate: PPL = 5.8623 +/- 0.66113"
RECIPES = ("Q3_K_M", "Q8_0")

pytestmark = pytest.mark.matrix


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "prose.txt"
    path.write_text(prose(120))
    return path


@pytest.fixture(scope="session")
def quants(smollm2, tmp_path_factory):
    folder = tmp_path_factory.mktemp("quants")
    with ggufkit.open(smollm2) as model:
        for recipe in RECIPES:
            model.quantize(recipe, allow_requantize=True).write(folder / f"{recipe}.gguf")
    return [folder / f"{recipe}.gguf" for recipe in RECIPES]


def test_base_file_is_byte_identical_and_all_figures_are_the_same(smollm2, quants, text, tmp_path):
    logits = tmp_path / "base.kld"
    evaluation = ggufkit.evaluate(
        quants, text, base=smollm2, base_logits=logits, context=CONTEXT, chunks=CHUNKS, threads=2
    )
    assert hashlib.sha256(logits.read_bytes()).hexdigest() == BASE_SHA256
    for recipe, quality in zip(RECIPES, evaluation.models, strict=True):
        lines = list(report_lines(quality.perplexity, quality.divergence))
        assert lines == (RECORDED / f"{recipe}.txt").read_text(encoding="utf-8").splitlines()
    (compared,) = evaluation.comparisons
    assert compared.better == str(quants[1])


def test_perplexity_without_a_base_is_the_same(quants, text):
    evaluation = ggufkit.evaluate(quants[0], text, context=CONTEXT, chunks=CHUNKS, threads=2)
    assert list(report_lines(evaluation.models[0].perplexity, None)) == [PERPLEXITY]
