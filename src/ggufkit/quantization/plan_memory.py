"""Compute the memory of a model in several recipes and contexts, and the largest that fits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ggufkit.inspection.estimate import Estimate, EstimateOptions, estimate
from ggufkit.models.any_model import takes_model
from ggufkit.models.model import Model
from ggufkit.quantization.quantize import decide
from ggufkit.quantization.recipes import KEEP_ALL, RECIPES, Recipe

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class PlannedMemory:
    """The memory of a model in one recipe and context; without a recipe, as the model is."""

    recipe: str | None
    estimate: Estimate


@takes_model
def plan_memory(
    model: Model,
    recipes: Iterable[str | Recipe | None] | None = None,
    contexts: Iterable[int | None] = (None,),
    **options: Unpack[EstimateOptions],
) -> list[PlannedMemory]:
    """Return the memory of `model` in each recipe with each context; no tensor data is read.

    Without `recipes`, these are all that make the model smaller, the largest first. The recipe None
    leaves the model as it is, and the context None is the one that it was trained with. `options`
    work as in `estimate`. Raises as `estimate` does, and TensorTypeError for an unknown recipe.
    """
    lengths = list(contexts)
    all_recipes = [recipe for recipe in RECIPES.values() if recipe != KEEP_ALL]
    variants = [_quantized(model, r) for r in (all_recipes if recipes is None else recipes)]
    if recipes is None:
        smaller = (variant for variant in variants if variant[1].nbytes < model.nbytes)
        variants = sorted(smaller, key=lambda variant: -variant[1].nbytes)
    rows: list[PlannedMemory] = []
    for name, quantized in variants:
        for context in lengths:
            options["context"] = context
            rows.append(PlannedMemory(name, estimate(quantized, **options)))
    return rows


@takes_model
def largest_recipe(
    model: Model, memory: int | Sequence[int], **options: Unpack[EstimateOptions]
) -> PlannedMemory | None:
    """Return the largest recipe with which all layers fit on a device, None if there is none.

    `memory` is the memory of the device, or of each of several, in bytes. `options` work as in
    `estimate`, such as `context`. The recipe None means that the model fits as it is.
    """
    context = options.get("context")
    candidates = [*plan_memory(model, [None], [context], **options)]
    candidates += plan_memory(model, None, [context], **options)
    return next((plan for plan in candidates if plan.estimate.fit(memory).is_whole), None)


def _quantized(model: Model, recipe: str | Recipe | None) -> tuple[str | None, Model]:
    if recipe is None:
        return None, model
    result = decide(model, recipe)
    return result.recipe.name, result.model
