"""How large a model would be in every recipe, without reading any of its tensors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ggufkit.imatrix.matrix import Imatrix
from ggufkit.model.model import Model, bits_per_weight
from ggufkit.output.layout import layout
from ggufkit.quantization.quantize import decide
from ggufkit.quantization.recipes import KEEP_ALL, RECIPES, Recipe
from ggufkit.system.descriptors import AnyPath


@dataclass(frozen=True)
class PlannedSize:
    """What a recipe would make of a model: bytes of the file, bits per weight, and what it lacks.

    `fallbacks` and `uncovered` count the tensors whose rows do not fit, and those that could not
    be quantized for want of importance data.
    """

    recipe: str
    nbytes: int
    bits_per_weight: float | None
    fallbacks: int
    uncovered: int


def plan(
    model: Model,
    recipes: Iterable[str | Recipe] | None = None,
    *,
    imatrix: Imatrix | AnyPath | None = None,
) -> list[PlannedSize]:
    """Return what each recipe (by default every one) would make of `model`, in the order given.

    `imatrix` is an importance matrix, or the path of one, that would be used. No tensor data is
    read. Raises TensorTypeError for an unknown recipe, ShapeError for an importance matrix of
    another model.
    """
    data = imatrix if isinstance(imatrix, Imatrix | None) else Imatrix.open(imatrix)
    asked = (one for one in RECIPES.values() if one != KEEP_ALL) if recipes is None else recipes
    return [_planned(model, recipe, data) for recipe in asked]


def _planned(model: Model, recipe: str | Recipe, imatrix: Imatrix | None) -> PlannedSize:
    done = decide(model, recipe, imatrix=imatrix)
    return PlannedSize(
        done.recipe.name,
        layout(done.model, "model.gguf").nbytes,
        bits_per_weight(done.model.tensors.values()),
        sum(decision.fell_from is not None for decision in done.decisions),
        len(done.uncovered),
    )
