"""Defines the options that say how blocks are chosen: `--imatrix` and `--search`."""

from __future__ import annotations

import click

from ggufkit.cli.model_argument import FILE
from ggufkit.cli.options import SharedOption
from ggufkit.quants.search import EFFORTS, UNSEARCHED

imatrix_option: SharedOption = click.option(
    "--imatrix",
    type=FILE,
    metavar="FILE",
    help="Weight the errors of quantizing by this importance matrix.",
)
search_option: SharedOption = click.option(
    "--search",
    type=click.Choice(list(EFFORTS)),
    help="Look for blocks with smaller errors than llama-quantize's, in all types but "
    f"{', '.join(UNSEARCHED)}.",
)
