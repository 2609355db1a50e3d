"""Words and numbers that HTML and Markdown show alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from ggufkit.inspection.diff import TensorChange
from ggufkit.reports.contents import Contents

FACTS: Final = ("fact", "value")
COMPARED: Final = ("model", "recipe", "MB", "bits per weight")
ERRORS: Final = ("tensor", "here", "there", "RMSE", "largest error", "SNR in dB", "cosine")
MEMORY: Final = ("context", "weights", "cache", "compute", "total")
WORST: Final = 20  # tensors of a comparison that are shown at once
# Facts of `inspect`, by their names in the summary.
_FACTS: Final = {
    "architecture": "architecture",
    "kind": "kind",
    "name": "name",
    "size_label": "size label",
    "license": "licence",
    "parameters": "parameters",
    "recipe": "recipe",
    "bits_per_weight": "bits per weight",
    "context": "context",
    "layers": "layers",
    "embedding": "embedding",
    "feed_forward": "feed forward",
    "heads": "heads",
    "kv_heads": "heads of keys and values",
    "experts": "experts",
    "experts_used": "experts used",
    "vocabulary": "vocabulary",
    "tokenizer": "tokenizer",
}


def fact_rows(contents: Contents) -> Iterator[tuple[str, str]]:
    """Yield the facts that the model has."""
    summary = contents.overview["summary"]
    for field, label in _FACTS.items():
        value = summary[field]
        if value is not None:
            yield label, shown_fact(value)
    yield "types", ", ".join(f"{entry['type']} ({entry['tensors']})" for entry in summary["types"])
    yield "size", f"{megabytes(contents.overview['nbytes'])} MB"
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


def side_row(side: dict[str, Any]) -> tuple[str, ...]:
    """Return one of two compared models."""
    bits = side["bits_per_weight"]
    rate = f"{bits:.2f}" if bits else ""
    return (side["name"], side["recipe"] or "", megabytes(side["nbytes"]), rate)


def memory_rows(estimates: Iterable[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield the memory that each context takes."""
    for row in estimates:
        yield f"{row['context']:,}", *(megabytes(row[part]) for part in MEMORY[1:])


def error_row(change: TensorChange) -> tuple[str, ...]:
    """Return a tensor of both models with its error."""
    deviation, before, after = change.deviation, change.before, change.after
    types = (before.type.name if before else "", after.type.name if after else "")
    if deviation is None:
        return (change.name, *types, "", "", "", "")
    return (
        change.name,
        *types,
        f"{deviation.rmse:.3g}",
        f"{deviation.max_abs:.3g}",
        f"{deviation.snr_db:.2f}",
        f"{deviation.cosine:.6f}",
    )
