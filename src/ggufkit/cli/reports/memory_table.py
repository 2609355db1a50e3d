"""Shows the memory of a model in several recipes, contexts and devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from ggufkit.cli.output import emit, grouped, paged, size, table
from ggufkit.inspection.estimate import Estimate
from ggufkit.quantization.plan_memory import PlannedMemory

AS_IT_IS = "as it is"


@dataclass(frozen=True)
class Devices:
    """The memory of a device, or of several together: as written, and in bytes."""

    text: str
    memories: tuple[int, ...]


def show_memory_table(
    file: str, planned: Sequence[PlannedMemory], devices: Sequence[Devices], *, as_json: bool
) -> None:
    """Show a row for each recipe and context, and the largest recipe that fits each memory."""
    largest = _largest(planned, devices)
    if as_json:
        documents = [_plain(each, devices) for each in planned]
        emit(
            {
                "file": file,
                "rows": documents,
                "largest": [_plain_largest(*each) for each in largest],
            }
        )
        return
    recipes = {each.recipe for each in planned} != {None}
    header = (*(("RECIPE",) if recipes else ()), "CONTEXT", "WEIGHTS", "CACHE", "TOTAL")
    columns = (*header, *(each.text for each in devices))
    with paged():
        rows = [_row(each, devices, recipes=recipes) for each in planned]
        table(columns, rows, right="l" * recipes + "r" * (len(columns) - recipes))
        if largest:
            click.echo()
        for device, context, found in largest:
            name = found and (found.recipe or AS_IT_IS)
            click.echo(
                f"Largest recipe for {device.text} with {context:,} tokens: {name or 'none fits'}"
            )


def _row(planned: PlannedMemory, devices: Sequence[Devices], *, recipes: bool) -> tuple[str, ...]:
    held = planned.estimate
    name = (planned.recipe or AS_IT_IS,) if recipes else ()
    sizes = (size(held.weights), size(held.cache + held.state), size(held.total))
    fits = (_fits(held, device) for device in devices)
    return (*name, grouped(held.context), *sizes, *fits)


def _fits(held: Estimate, device: Devices) -> str:
    fit = held.fit(device.memories)
    if fit.is_whole:
        return "fits"
    return f"{fit.layers} of {len(held.layers) + 1} layers" if fit.layers else "no"


def _largest(
    planned: Sequence[PlannedMemory], devices: Sequence[Devices]
) -> list[tuple[Devices, int, PlannedMemory | None]]:
    """Return the largest recipe for each memory and context, if there are several recipes."""
    if len({each.recipe for each in planned}) < 2:  # noqa: PLR2004 (several)
        return []
    contexts = dict.fromkeys(each.estimate.context for each in planned)
    found = []
    for device in devices:
        for context in contexts:
            fitting = [
                each
                for each in planned
                if each.estimate.context == context and each.estimate.fit(device.memories).is_whole
            ]
            best = max(fitting, key=lambda each: each.estimate.weights, default=None)
            found.append((device, context, best))
    return found


def _plain(planned: PlannedMemory, devices: Sequence[Devices]) -> dict[str, Any]:
    held = planned.estimate
    kinds = ("context", "weights", "cache", "state", "compute", "output", "total")
    figures = {kind: getattr(held, kind) for kind in kinds}
    fits = [{"memory": each.text, **vars(held.fit(each.memories))} for each in devices]
    return {"recipe": planned.recipe, **figures, "fits": fits}


def _plain_largest(device: Devices, context: int, found: PlannedMemory | None) -> dict[str, Any]:
    return {
        "memory": device.text,
        "context": context,
        "fits": found is not None,
        "recipe": found and found.recipe,
    }
