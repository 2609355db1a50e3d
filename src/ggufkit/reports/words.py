"""Words and numbers that HTML and Markdown show alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from ggufkit.evaluation.quality_rows import QualityRow
from ggufkit.reports.contents import MAX_ROWS, Contents, Damage

FACTS: Final = ("fact", "value")
FILES: Final = ("file", "MB on disk", "bits per weight", "perplexity", "mean KLD", "error")
KEYS: Final = ("file", "key", "here", "there")
ERRORS: Final = ("tensor", "file", "here", "there", "RMSE", "largest error", "SNR in dB", "cosine")
MEMORY: Final = ("context", "weights", "cache", "compute", "total")
WORST: Final = 20  # tensors of a comparison that are shown at once
# Facts of `inspect`, by their names in the summary; some have other names in a report.
_FACTS: Final = (
    *("architecture", "kind", "name", "size_label", "license", "parameters", "recipe"),
    *("bits_per_weight", "context", "layers", "embedding", "feed_forward", "heads", "kv_heads"),
    *("experts", "experts_used", "vocabulary", "tokenizer"),
)
_LABELS: Final = {"license": "licence", "kv_heads": "heads of keys and values"}


def fact_rows(contents: Contents) -> Iterator[tuple[str, str]]:
    """Yield the facts that the model has."""
    summary = contents.overview["summary"]
    for field in _FACTS:
        value = summary[field]
        if value is not None:
            yield _LABELS.get(field, field.replace("_", " ")), shown_fact(value)
    yield "types", ", ".join(f"{entry['type']} ({entry['tensors']})" for entry in summary["types"])
    yield "tensors", f"{megabytes(contents.overview['nbytes'])} MB"
    files = contents.overview["files"]
    if len(files) > 1:
        yield "files", str(len(files))
    for row in contents.overview["missing"]:
        yield "missing", row["message"]


def shown_fact(value: object) -> str:
    """Return a fact as text: whole numbers in groups of digits, a list as its range."""
    if isinstance(value, list):
        low, high = min(value), max(value)
        return f"{low:,}" if low == high else f"{low:,} to {high:,}, by layer"
    if isinstance(value, float):
        return f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def megabytes(nbytes: int) -> str:
    """Return bytes as MB of 1,000,000 bytes."""
    return f"{nbytes / 1e6:,.1f}"


def file_rows(contents: Contents) -> Iterator[tuple[str, ...]]:
    """Yield each model of the report and of the evaluation: size, bits, quality, error."""
    qualities = {quality.name: quality for quality in reversed(contents.qualities)}
    shares = [None, *(error.relative for error in contents.errors)]
    errors = ["" if share is None else f"{share:.2%}" for share in shares]
    for number, file in enumerate(contents.files):
        bits = "" if file.bits is None else f"{file.bits:.2f}"
        error = errors[number] if number < len(errors) else ""
        figures = _qualities(qualities.pop(file.name, None))
        yield file.name, megabytes(file.nbytes), bits, *figures, error
    for quality in reversed(qualities.values()):
        yield quality.name, megabytes(quality.nbytes), "", *_qualities(quality), ""


def _qualities(quality: QualityRow | None) -> tuple[str, str]:
    figures = (quality.perplexity, quality.divergence) if quality else (None, None)
    perplexity, divergence = ("" if value is None else f"{value:.6g}" for value in figures)
    return perplexity, divergence


def error_rows(contents: Contents) -> list[tuple[str, ...]]:
    """Return the tensors of all compared models with their errors, the most damaged first."""
    damaged = [
        (file.name, damage)
        for file, errors in zip(contents.files[1:], contents.errors, strict=False)
        for damage in errors.damaged
    ]
    damaged.sort(key=lambda row: row[1].deviation.snr_db)
    return [_error_row(name, damage) for name, damage in damaged[:MAX_ROWS]]


def _error_row(file: str, damage: Damage) -> tuple[str, ...]:
    before, after, deviation = damage
    return (
        before.name,
        file,
        before.type.name,
        after.type.name,
        f"{deviation.rmse:.3g}",
        f"{deviation.max_abs:.3g}",
        f"{deviation.snr_db:.2f}",
        f"{deviation.cosine:.6f}",
    )


def memory_rows(estimates: Iterable[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield the memory that each context takes."""
    for row in estimates:
        yield f"{row['context']:,}", *(megabytes(row[part]) for part in MEMORY[1:])
