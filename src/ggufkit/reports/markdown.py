"""Writes a report as Markdown, for a model card or a README."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from ggufkit.reports.contents import Contents, QualityRow
from ggufkit.reports.elements import printable
from ggufkit.reports.words import (
    COMPARED,
    ERRORS,
    FACTS,
    MEMORY,
    WORST,
    error_row,
    fact_rows,
    megabytes,
    memory_rows,
    side_row,
)

_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>#|~$&])")


def markdown(contents: Contents) -> bytes:
    """Return the report as Markdown in UTF-8."""
    return "\n".join(_lines(contents)).encode()


def escaped(text: str) -> str:
    """Return a text that Markdown shows as it is, in one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(printable(text).split()))


def _lines(contents: Contents) -> Iterator[str]:
    yield f"# {escaped(contents.overview['name'])}\n"
    yield from _table(FACTS, fact_rows(contents))
    yield from _findings(contents.faults)
    if contents.treemap["groups"]:
        yield "## Where the bytes are\n"
        rows = ((each["name"], str(each["tensors"]), megabytes(each["nbytes"]))
                for each in contents.treemap["groups"])  # fmt: skip
        yield from _table(("part", "tensors", "MB"), rows)
    if contents.memory:
        yield "## Memory in llama.cpp, in MB\n"
        yield from _table(MEMORY, memory_rows(contents.memory))
    yield from _compared(contents)
    yield from _qualities(contents)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for row in rows:
        yield f"| {' | '.join(map(escaped, row))} |"
    yield ""


def _findings(found: dict[str, Any]) -> Iterator[str]:
    yield "## Check\n"
    if not found["findings"]:
        yield "`ggufkit check` finds nothing wrong.\n"
        return
    rows = ((each["severity"], each["rule"], f"{each['message']} {each['remedy']}")
            for each in found["findings"])  # fmt: skip
    yield from _table(("severity", "rule", "finding and remedy"), rows)


def _compared(contents: Contents) -> Iterator[str]:
    for number, found in enumerate(contents.comparisons):
        yield f"## Compared with {escaped(found['models'][1]['name'])}\n"
        yield from _table(COMPARED, map(side_row, found["models"]))
        if found["changed_keys"]:
            yield f"Metadata keys that differ: {found['changed_keys']:,}.\n"
        if number < len(contents.errors) and contents.errors[number].changes:
            yield f"The {WORST} most damaged tensors:\n"
            yield from _table(ERRORS, map(error_row, contents.errors[number].changes[:WORST]))


def _qualities(contents: Contents) -> Iterator[str]:
    if contents.qualities:
        yield "## Quality\n"
        rows = map(_quality, contents.qualities)
        yield from _table(("model", "MB", "perplexity", "mean KLD"), rows)


def _quality(each: QualityRow) -> tuple[str, ...]:
    return (each.name, megabytes(each.nbytes), _figure(each.perplexity), _figure(each.divergence))


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
