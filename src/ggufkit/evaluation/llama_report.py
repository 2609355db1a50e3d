"""The figures of one model in the words and digits of llama-perplexity."""

from __future__ import annotations

from collections.abc import Iterator

from ggufkit.evaluation.statistics import Distribution, Divergence, Measurement

KLD_PERCENTILES = (99.9, 99.0, 95.0, 90.0, 50.0, 10.0, 5.0, 1.0, 0.1)


def report_lines(perplexity: Measurement, divergence: Divergence | None) -> Iterator[str]:
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
    yield f"RMS Δp    : {_percent(divergence.rms_probability_change)}"
    yield f"Same top p: {_percent(divergence.same_top)}"


def _changes(change: Distribution) -> Iterator[str]:
    yield f"Mean    Δp: {_percent(change.mean)}"
    yield f"Maximum Δp: {100 * change.maximum:6.3f}%"
    for percent, value in change.percentiles.items():
        yield f"{_label(percent)} Δp: {100 * value:6.3f}%"
    yield f"Minimum Δp: {100 * change.minimum:6.3f}%"


def _label(percent: float) -> str:
    return "Median " if percent == 50 else f"{percent:4.1f}%  "  # noqa: PLR2004 (a percentile)


def _wide(measured: Measurement) -> str:
    return f"{measured.value:10.6f} ± {measured.error:10.6f}"


def _percent(measured: Measurement) -> str:
    return f"{100 * measured.value:6.3f} ± {100 * measured.error:5.3f} %"
