"""Shows how far tensors are from another model's: sorted, cut, of one model or several."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import click

from ggufkit.cli.output import counted, table
from ggufkit.errors import printable
from ggufkit.inspection.diff import Deviation, Difference, TensorChange
from ggufkit.models.model import Model

ALL: Final = "all of these together"
_LAST: Final = math.inf  # of a tensor without the figure
# What `--sort` compares: the worst comes first.
ORDERS: Final[Mapping[str, Callable[[TensorChange], Any]]] = {
    "rmse": lambda change: -change.deviation.rmse if change.deviation else _LAST,
    "largest": lambda change: -change.deviation.max_abs if change.deviation else _LAST,
    "cosine": lambda change: _or_last(change.deviation.cosine) if change.deviation else _LAST,
    "snr": lambda change: change.deviation.snr_db if change.deviation else _LAST,
    "size": lambda change: -max(t.nbytes for t in (change.before, change.after) if t),
    "name": lambda change: change.name,
}


def _or_last(cosine: float) -> float:
    """Return the sort key of a cosine; undefined ones come last."""
    return _LAST if math.isnan(cosine) else cosine


def arranged(difference: Difference, sort: str | None, top: int | None) -> Difference:
    """Return a difference with its tensors sorted, and only the first `top` of them."""
    tensors = sorted(difference.tensors, key=ORDERS[sort]) if sort else difference.tensors
    return replace(difference, tensors=tuple(tensors[:top]))


def print_left_out(count: int) -> None:
    """Print how many tensors `--top` left out, if any."""
    if count:
        click.echo(f"... and {counted(count, 'tensor')} more")


def figures(deviation: Deviation | None) -> tuple[str, ...]:
    """Return the figures of a table: RMSE, largest error, cosine, SNR."""
    if deviation is None:
        return ("",) * 4
    errors = (f"{deviation.rmse:.3g}", f"{deviation.max_abs:.3g}")
    return (*errors, f"{deviation.cosine:.6f}", f"{deviation.snr_db:.1f}")


def letter(number: int) -> str:
    """Return the letter of a model: A is the first."""
    return chr(ord("A") + number) if number < 26 else str(number + 1)  # noqa: PLR2004 (the alphabet)


def print_side_by_side(
    before: Model, differences: Sequence[Difference], sort: str | None, top: int | None
) -> None:
    """Print a table with a row for each tensor, and type, RMSE and SNR of each model."""
    sides = [{change.name: change for change in difference.tensors} for difference in differences]
    names = list(dict.fromkeys(name for side in sides for name in side))
    if sort:
        order = ORDERS[sort]
        names.sort(key=lambda name: min(order(s[name]) for s in sides if name in s))
    header = ["TENSOR", "A"]
    for number in range(len(sides)):
        header += (letter(number + 1), "RMSE", "SNR dB")
    rows = [_row(before, name, sides) for name in names[:top]]
    totals = [difference.total for difference in differences]
    if len(names) > 1 and any(totals):
        rows.append((ALL, "", *(cell for total in totals for cell in ("", *_short(total)))))
    if names:
        table(header, rows, right="ll" + "lrr" * len(sides))
    print_left_out(len(names[top:]) if top else 0)


def _row(before: Model, name: str, sides: Sequence[Mapping[str, TensorChange]]) -> tuple[str, ...]:
    tensors = dict(before.tensors)
    own = tensors[name].type.name if name in tensors else ""
    cells = (_cells(side.get(name), own) for side in sides)
    return (printable(name), own, *(cell for pair in cells for cell in pair))


def _cells(change: TensorChange | None, own: str) -> tuple[str, ...]:
    """Return type, RMSE and SNR of one model; a tensor that is equal has the type of A."""
    if change is None:
        return (own, "", "")
    if change.kind in ("removed", "added", "reshaped"):
        return (change.kind, "", "")
    after: Any = change.after
    return (after.type.name, *_short(change.deviation))


def _short(deviation: Deviation | None) -> tuple[str, str]:
    rmse, _, _, snr = figures(deviation)
    return rmse, snr
