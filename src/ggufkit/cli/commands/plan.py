"""`ggufkit plan`: compare the sizes of a model in every recipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

import ggufkit
from ggufkit.cli.model_argument import MODEL, look_at
from ggufkit.cli.options import flag, new_command, option
from ggufkit.cli.output import emit, note, paged, row_widths, size, table
from ggufkit.cli.quantize_options import imatrix_option, parse_recipe, search_option
from ggufkit.format.dialects import LLAMA_CPP
from ggufkit.format.types import IK
from ggufkit.models.model import Model
from ggufkit.quantization.plan import Plan, can_encode
from ggufkit.quantization.recipes import IK_ONLY, Recipe
from ggufkit.quants.search import Search


@new_command(
    "plan",
    "ggufkit plan model-f16.gguf",
    "ggufkit plan model-f16.gguf --imatrix imatrix.gguf",
    "ggufkit plan model-f16.gguf --explain Q4_K_M",
    "ggufkit plan model-f16.gguf --program ik_llama.cpp",
    "ggufkit plan model-f16.gguf --json | jq '.recipes[] | select(.nbytes < 4e9) | .recipe'",
)
@click.argument("file", type=MODEL)
@imatrix_option
@search_option
@option(
    "--explain recipe RECIPE",
    "Show the type that RECIPE gives each tensor, and why, instead of sizes.",
    type=parse_recipe,
)
@option(
    "--program",
    "Show the recipes of this program.",
    type=click.Choice((LLAMA_CPP, IK)),
    default=LLAMA_CPP,
    show_default=False,
)
@flag("--json as_json", "Print the result as JSON.")
def command(
    file: str,
    *,
    recipe: Recipe | None,
    program: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Show how large FILE would be in every recipe, the largest first, from its header alone.

    The notes name recipes that lack importance data for some tensors, and recipes that use other
    types because rows do not divide into blocks, with the bytes that this adds. With --search they
    also count the tensors that are not searched.
    """
    with look_at(file) as model:
        if recipe:
            _explain(file, model, recipe, options, as_json=as_json)
        else:
            recipes = filter(can_encode, IK_ONLY.values()) if program == IK else None
            planned = ggufkit.plan(model, recipes, **options)
            ordered = sorted(planned, key=lambda p: -p.nbytes)
            _report(file, ordered, options["search"], as_json=as_json)


def _explain(
    file: str, model: Model, recipe: Recipe, options: dict[str, Any], *, as_json: bool
) -> None:
    from ggufkit.cli.quantize_report import show_explanations, warn  # noqa: PLC0415 (slow to import)
    from ggufkit.quantization.explain import explain  # noqa: PLC0415
    from ggufkit.quantization.quantize import decide  # noqa: PLC0415

    quantization = decide(model, recipe, **options)
    warn(quantization, allowed=True, of_several=False)
    explained = explain(quantization)
    if as_json:
        explanations = [asdict(explanation) for explanation in explained]
        emit({"file": file, "recipe": recipe.name, "explanations": explanations})
    else:
        show_explanations(explained)


def _report(file: str, planned: Sequence[Plan], search: Search | None, *, as_json: bool) -> None:
    if as_json:
        emit({"file": file, "recipes": [vars(plan) for plan in planned]})
        return
    _note_of_fallbacks(planned)
    header = ["RECIPE", "SIZE", "BITS PER WEIGHT", "FALLBACKS", "LACKS IMPORTANCE DATA"]
    if search:
        header.append("NO SEARCH")
    with paged():
        table(
            header, (_row(plan)[: len(header)] for plan in planned), right="lrrrrr"[: len(header)]
        )


def _note_of_fallbacks(planned: Sequence[Plan]) -> None:
    """Say in one line which recipe gets most bits beyond its name, and which rows cause it."""
    excess = {p: p.bits_per_weight - p.nominal_bits for p in planned
              if p.fallbacks and p.bits_per_weight and p.nominal_bits}  # fmt: skip
    if excess:
        worst = max(excess, key=excess.__getitem__)
        widths = row_widths(sorted({width for plan in excess for width in plan.fallback_widths}))
        note(
            f"{widths} do not divide into the blocks of some types, so recipes get more bits than "
            f"their base types: {worst.recipe} {worst.bits_per_weight:.2f} bits per weight instead "
            f"of {worst.nominal_bits:.2f}"
        )


def _row(planned: Plan) -> tuple[str, ...]:
    bits = planned.bits_per_weight
    counts = [f"{n:,}" if n else "" for n in (planned.uncovered, planned.unsearched)]
    fallbacks = f"{planned.fallbacks:,}: +{size(planned.fallback_nbytes)}"
    cell = "" if bits is None else f"{bits:.2f}"
    fallback_cell = fallbacks if planned.fallbacks else ""
    return (planned.recipe, size(planned.nbytes), cell, fallback_cell, *counts)
