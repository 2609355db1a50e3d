"""Defines `--explain` of `ggufkit quantize`, and shows why each tensor has its type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

import ggufkit
from ggufkit.cli.options import SharedOption
from ggufkit.cli.output import grouped, paged, table
from ggufkit.cli.progress import progress_bar
from ggufkit.errors import printable
from ggufkit.quantization.explain import Explanation, explain
from ggufkit.quantization.quantize import Quantization
from ggufkit.quantization.type_choice import BY_NAME

explain_option: SharedOption = click.option(
    "--explain",
    "explains",
    is_flag=True,
    help="Show why each tensor has its type, its error in OUT, and its share of the loss.",
)


def explained(
    done: Quantization, paths: Sequence[Path], threads: int | None = None, *, aimed: bool = False
) -> list[Explanation]:
    """Return the explanations of an output; without files, what needs no data.

    `aimed` says that types by name were chosen for a target size.
    """
    if aimed:
        return [
            replace(each, why=each.why.replace(BY_NAME, "chosen for the target size"))
            for each in explained(done, paths, threads)
        ]
    if not paths:
        return explain(done)
    with ggufkit.open(paths[0]) as written, progress_bar("measuring", in_bytes=False) as bar:
        return explain(done, written, threads=threads, progress=bar)


def show_explanations(found: Sequence[Explanation]) -> None:
    """Print a table: the largest share of the loss first, or the order of the file."""
    ordered = sorted(found, key=lambda each: -(each.share or 0.0))
    rows = [
        (
            printable(each.name),
            each.before,
            each.after,
            grouped(each.nbytes),
            "" if each.error is None else f"{each.error:.2%}",
            "" if each.share is None else f"{each.share:.1%}",
            printable(each.why),
        )
        for each in ordered
    ]
    header = ("TENSOR", "TYPE", "BECOMES", "BYTES", "ERROR", "LOSS", "WHY")
    with paged():
        table(header, rows, right="lllrrrl")


def plain_explanation(each: Explanation) -> dict[str, Any]:
    """Return an explanation for JSON."""
    return asdict(each)
