"""`ggufkit eval`: measure how well models predict a text."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click

from ggufkit.cli import options as shared
from ggufkit.cli import streams
from ggufkit.cli.model_argument import FILE, MODEL
from ggufkit.cli.output import counted, emit, paged, size, table
from ggufkit.cli.progress import progress_bar
from ggufkit.cli.write_model import may_replace, refuse_input, report, require_place
from ggufkit.errors import printable
from ggufkit.evaluation import statistics
from ggufkit.evaluation.evaluate import Evaluation, Quality, evaluate
from ggufkit.system.staging import write_whole
from ggufkit.validation.plain_values import plain_values

MEASURES: Final = {"kld": "mean KLD", "log_perplexity": "ln PPL"}
COLUMNS: Final = ("MODEL", "SIZE", "PPL")
KLD_PERCENTILES: Final = (99.9, 99.0, 95.0, 90.0, 50.0, 10.0, 5.0, 1.0, 0.1)
BASE_COLUMNS: Final = ("PPL RATIO", "MEAN KLD", "MEDIAN KLD", "99.9% KLD", "RMS Δp", "SAME TOP p")


@shared.new_command(
    "eval",
    "ggufkit eval model-Q4_K_M.gguf --text wiki.test.raw",
    "ggufkit eval model-Q*.gguf --text wiki.test.raw --base model-F16.gguf --chunks 50",
    "ggufkit eval --base model-F16.gguf --text wiki.test.raw --base-logits base.kld",
    "ggufkit eval model-Q4_K_M.gguf --base-logits base.kld --details",
    "ggufkit eval model-Q*.gguf --base-logits base.kld -o quants.json",
)
@click.argument("models", metavar="[MODEL]...", type=MODEL, nargs=-1)
@shared.option("--text", "The text to read.", type=FILE)
@shared.option("--base", "Compare the models with this one.", type=MODEL)
@shared.option(
    "--base-logits FILE",
    "Compare with this base file of llama-perplexity; with --base, write it first.",
)
@shared.option(
    "--context",
    "Tokens per chunk.  [default: those of the base file, or 512]",
    type=shared.TokenCount(8, shared.MAX_CONTEXT),
)
@shared.chunks_option
@shared.option(
    "--micro-batch",
    "Tokens computed at once; fewer need less memory.",
    type=shared.Count(1, shared.MAX_CONTEXT),
    default=512,
)
@shared.option(
    "-o --output", "Also write the result here, as JSON.", type=click.Path(dir_okay=False)
)
@shared.flag("--details", "Print all figures as llama-perplexity does.")
@shared.resume_option
@shared.no_clobber_option
@shared.threads_option
@shared.flag("--json as_json", "Print the result as JSON.")
def command(
    models: tuple[str, ...], *, output: str | None, details: bool, as_json: bool, **options: Any
) -> None:
    """Measure how well each MODEL predicts a text, and how far it is from a base model.

    Without a base, prints the perplexity. With one, also prints the divergence (KLD) of the
    probabilities, and which models differ by more than chance. This runs llama.cpp through its
    Python binding, the extra ggufkit[llama]. All figures equal llama-perplexity's.
    """
    _require_usable(models, options)
    if output:
        others = (options["text"], options["base"], options["base_logits"])
        refuse_input(output, (*models, *filter(None, others)))
        require_place(output)
    with progress_bar("reading", in_bytes=False) as progress:
        evaluation = evaluate(models, clobber=may_replace(), progress=progress, **options)
    streams.work_is_done()
    document = plain_values(evaluation) | {"groups": plain_values(_groups(evaluation))}
    if output:
        content = json.dumps(document, allow_nan=False).encode() + b"\n"
        write_whole(Path(output), content, clobber=may_replace())
    if as_json:
        emit(document)
        return
    with paged():
        _print(evaluation)
        if details:
            _print_details(evaluation)
    if evaluation.base and options["base_logits"]:
        report([Path(options["base_logits"])])
    if output:
        report([Path(output)])


def _require_usable(models: tuple[str, ...], options: Mapping[str, Any]) -> None:
    """Raise UsageError for options that do not go together, before anything is read."""
    text, base, base_logits = (options[name] for name in ("text", "base", "base_logits"))
    if not models and (base is None or base_logits is None):
        raise click.UsageError("Missing argument 'MODEL'.")
    if text is None and base_logits is None:
        raise click.UsageError("Missing option '--text'.")
    if text is None and base is not None:
        raise click.UsageError("Missing option '--text': --base reads it.")
    if options["resume"] and base is not None and base_logits is None:
        raise click.UsageError("Missing option '--base-logits': --resume keeps the base in it.")


def _print(evaluation: Evaluation) -> None:
    click.echo(
        f"{counted(evaluation.chunks, 'chunk')} of {evaluation.context} tokens, "
        f"{counted(evaluation.positions, 'token')} predicted"
    )
    click.echo()
    with_base = any(model.divergence for model in evaluation.models)
    qualities = ([evaluation.base] if evaluation.base else []) + list(evaluation.models)
    header = COLUMNS + (BASE_COLUMNS if with_base else ())
    rows = [_row(quality, columns=len(header)) for quality in qualities]
    table(header, rows, right="l" + "r" * (len(header) - 1))
    if evaluation.comparisons:
        click.echo()
        click.echo(f"compared by chunks, all intervals together at {statistics.CONFIDENCE:.0%}:")
    for comparison in evaluation.comparisons:
        click.echo(f"  {_sentence(comparison)}")
    if len(evaluation.models) > 2:  # noqa: PLR2004 (else the sentence says it)
        click.echo("\nranking; models in one line are not shown to differ:")
        for number, group in enumerate(_groups(evaluation), 1):
            names = (printable(Path(name).name) for name in group)
            click.echo(f"  {number}  {', '.join(names)}")


def _groups(evaluation: Evaluation) -> tuple[tuple[str, ...], ...]:
    ranked = sorted(
        evaluation.models,
        key=lambda model: (
            model.divergence.kld.mean.value if model.divergence else model.perplexity.value
        ),
    )
    return statistics.ranked_groups([model.name for model in ranked], evaluation.comparisons)


def _row(quality: Quality, columns: int) -> tuple[str, ...]:
    start = (printable(quality.name), size(quality.nbytes), _figure(quality.perplexity, 4))
    divergence = quality.divergence
    if divergence is None:
        return start + ("",) * (columns - len(start))
    return (
        *start,
        _figure(divergence.ratio, 4),
        _figure(divergence.kld.mean, 6),
        f"{divergence.kld.median:.6f}",
        f"{divergence.kld.percentiles[99.9]:.6f}",
        _percent(divergence.rms_probability_change),
        _percent(divergence.same_top),
    )


def _figure(measured: statistics.Measurement, digits: int) -> str:
    return f"{measured.value:.{digits}f} ± {_error(measured.error, digits)}"


def _percent(measured: statistics.Measurement) -> str:
    return f"{100 * measured.value:.3f} ± {_error(100 * measured.error, 3)} %"


def _error(error: float, digits: int) -> str:
    return "?" if math.isnan(error) else f"{error:.{digits}f}"


def _sentence(compared: statistics.Comparison) -> str:
    """Return a line that says "better" only if the interval does not contain zero."""
    first, second = (printable(Path(name).name) for name in (compared.first, compared.second))
    if first == second:
        first, second = printable(compared.first), printable(compared.second)
    measure = MEASURES[compared.measure]
    if math.isinf(compared.low):
        return f"{first} and {second}: too few chunks to compare"
    if compared.better is None:
        return (
            f"{first} and {second}: no difference is shown; "
            f"{measure} {compared.difference:+.6f} ({compared.low:+.6f} to {compared.high:+.6f})"
        )
    better, worse = (first, second) if compared.better == compared.first else (second, first)
    bounds = sorted((abs(compared.low), abs(compared.high)))
    return (
        f"{better} is better than {worse}: {measure} is lower by "
        f"{abs(compared.difference):.6f} ({bounds[0]:.6f} to {bounds[1]:.6f})"
    )


def _print_details(evaluation: Evaluation) -> None:
    for model in evaluation.models:
        click.echo()
        click.echo(click.style(printable(model.name), bold=True))
        for line in report_lines(model.perplexity, model.divergence):
            click.echo(f"  {line}".rstrip())


def report_lines(
    perplexity: statistics.Measurement, divergence: statistics.Divergence | None
) -> Iterator[str]:
    """Yield the lines that llama-perplexity prints at the end."""
    if divergence is None:
        yield f"Final estimate: PPL = {perplexity.value:.4f} +/- {perplexity.error:.5f}"
        return
    yield "====== Perplexity statistics ======"
    yield f"Mean PPL(Q)                   : {_wide(perplexity)}"
    yield f"Mean PPL(base)                : {_wide(divergence.base_perplexity)}"
    yield f"Cor(ln(PPL(Q)), ln(PPL(base))): {100 * divergence.correlation:6.2f}%"
    yield f"Mean ln(PPL(Q)/PPL(base))     : {_wide(divergence.log_ratio)}"
    yield f"Mean PPL(Q)/PPL(base)         : {_wide(divergence.ratio)}"
    yield f"Mean PPL(Q)-PPL(base)         : {_wide(divergence.difference)}"
    yield ""
    yield "====== KL divergence statistics ======"
    kld = divergence.kld
    yield f"Mean    KLD: {_wide(kld.mean)}"
    yield f"Maximum KLD: {kld.maximum:10.6f}"
    for percent in KLD_PERCENTILES:
        yield f"{_label(percent)} KLD: {kld.percentiles[percent]:10.6f}"
    yield f"Minimum KLD: {kld.minimum:10.6f}"
    yield ""
    yield "====== Token probability statistics ======"
    yield from _changes(divergence.probability_change)
    yield f"RMS Δp    : {_wide_percent(divergence.rms_probability_change)}"
    yield f"Same top p: {_wide_percent(divergence.same_top)}"


def _changes(change: statistics.Distribution) -> Iterator[str]:
    yield f"Mean    Δp: {_wide_percent(change.mean)}"
    yield f"Maximum Δp: {100 * change.maximum:6.3f}%"
    for percent, value in change.percentiles.items():
        yield f"{_label(percent)} Δp: {100 * value:6.3f}%"
    yield f"Minimum Δp: {100 * change.minimum:6.3f}%"


def _label(percent: float) -> str:
    return "Median " if percent == 50 else f"{percent:4.1f}%  "  # noqa: PLR2004 (a percentile)


def _wide(measured: statistics.Measurement) -> str:
    return f"{measured.value:10.6f} ± {measured.error:10.6f}"


def _wide_percent(measured: statistics.Measurement) -> str:
    return f"{100 * measured.value:6.3f} ± {100 * measured.error:5.3f} %"
