"""`ggufkit plan`: compare the sizes of a model in every recipe."""

from __future__ import annotations

from typing import Any, Final

import click

import ggufkit
from ggufkit.cli.model_argument import FILE, MODEL, look_at
from ggufkit.cli.output import emit, examples, paged, size, table
from ggufkit.quantization.plan import PlannedSize

SECTION: Final = "Quantize"  # of the help


@click.command(
    "plan",
    short_help="Show how large a model would be in every recipe.",
    epilog=examples(
        "ggufkit plan model-f16.gguf",
        "ggufkit plan model-f16.gguf --imatrix imatrix.gguf",
        "ggufkit plan model-f16.gguf --json | jq '.recipes[] | select(.nbytes < 4e9) | .recipe'",
    ),
)
@click.argument("file", type=MODEL)
@click.option("--imatrix", type=FILE, metavar="FILE", help="Use this importance matrix.")
@click.option("--json", "as_json", is_flag=True, help="Print the sizes as JSON.")
def command(file: str, *, imatrix: str | None, as_json: bool) -> None:
    """Show how large FILE would be in every recipe, the largest first, from its header alone.

    The notes say where a recipe lacks importance data for some tensors, and where it falls back to
    types with smaller blocks because the rows do not divide.
    """
    with look_at(file) as model:
        planned = sorted(ggufkit.plan(model, imatrix=imatrix), key=lambda p: -p.nbytes)
    if as_json:
        emit({"file": file, "recipes": [vars(one) for one in planned]})
        return
    header = ("RECIPE", "SIZE", "BITS PER WEIGHT", "FALLBACKS", "LACKS IMPORTANCE DATA")
    with paged():
        table(header, map(_row, planned), right="lrrrr")


def _row(planned: PlannedSize) -> tuple[str, ...]:
    bits = planned.bits_per_weight
    counts: tuple[Any, ...] = (planned.fallbacks, planned.uncovered)
    shown = "" if bits is None else f"{bits:.2f}"
    return (planned.recipe, size(planned.nbytes), shown, *(f"{n:,}" if n else "" for n in counts))
