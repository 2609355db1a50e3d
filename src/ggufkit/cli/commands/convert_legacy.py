"""`ggufkit convert-legacy`: convert files from before GGUF."""

from __future__ import annotations

import contextlib
from typing import Any

import click

import ggufkit
from ggufkit.cli import options as shared
from ggufkit.cli.model_argument import MODEL
from ggufkit.cli.output import note
from ggufkit.cli.quantize_report import quantized_with_notes
from ggufkit.cli.write_model import deliver
from ggufkit.conversion.legacy.convert_legacy import CONTEXT, EPSILON, lacks_scores


@shared.new_command(
    "convert-legacy",
    "ggufkit convert-legacy ggml-model-f16.bin llama-7b-f16.gguf",
    "ggufkit convert-legacy ggml-model-q4_0.bin llama-7b.gguf --vocab-from vocab.gguf",
    "ggufkit convert-legacy llama2.ggmlv3.q4_K_M.bin llama2.gguf --rms-epsilon 1e-5",
    "ggufkit convert-legacy ggml-model-q4_0.bin llama-7b.gguf --quantize Q4_K_M",
    cls=shared.Command,
)
@click.argument("source", metavar="IN", type=MODEL)
@click.argument("out", metavar="OUT")
@shared.option("--vocab-from FILE", "Take the vocabulary from this GGUF file.", type=MODEL)
@shared.option(
    "--context-length",
    "Context length that the model was trained with.",
    type=shared.Count(min=1, max=2**32 - 1),
    default=CONTEXT,
)
@shared.option(
    "--rms-epsilon X",
    "Epsilon of the norms: 1e-6 for LLaMA 1, 1e-5 for LLaMA 2.",
    type=click.FloatRange(min=0, max=1),
    default=EPSILON,
)
@shared.option("--quantize recipe RECIPE", "Quantize the unquantized tensors in the same pass.")
@shared.flag(
    "--allow-requantize", "Let --quantize also quantize tensors that are already quantized."
)
@shared.no_clobber_option
@shared.threads_option
@shared.resume_option
@shared.dry_run_option
@shared.json_option
def command(  # noqa: PLR0913 (click passes each option)
    source: str,
    out: str,
    *,
    vocab_from: str | None,
    context_length: int,
    rms_epsilon: float,
    recipe: str | None,
    allow_requantize: bool,
    **work: Any,
) -> None:
    """Convert the GGML, GGMF or GGJT file IN to the GGUF file OUT.

    Old block formats that GGUF lacks are decoded to float32, which is exact but large. --quantize
    quantizes them again. OUT may be - for stdout.
    """
    with contextlib.ExitStack() as opened:
        donor = opened.enter_context(ggufkit.open(vocab_from)) if vocab_from else None
        model = opened.enter_context(
            ggufkit.convert_legacy(
                source, vocab_from=donor, context_length=context_length, rms_epsilon=rms_epsilon
            )
        )
        if donor is None and lacks_scores(source):
            note("the file has no token scores; --vocab-from takes them from a GGUF file")
        result = model
        if recipe is not None:
            result = quantized_with_notes(model, recipe, allow_requantize=allow_requantize)
        deliver(result, out, **work)
