"""Compute the size of a model in every recipe, without reading tensor data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ggufkit.errors import TensorTypeError
from ggufkit.format.types import tensor_type
from ggufkit.models.any_model import takes_model
from ggufkit.models.model import Model, bits_per_weight
from ggufkit.output.layout import file_nbytes
from ggufkit.quantization.quantize import decide, opened_imatrix
from ggufkit.quantization.recipes import KEEP_ALL, RECIPES, Recipe
from ggufkit.quants import codec
from ggufkit.quants.search import Search
from ggufkit.system.descriptors import AnyPath

if TYPE_CHECKING:
    from ggufkit.imatrix.matrix import Imatrix


@dataclass(frozen=True)
class Plan:
    """The result of one recipe: bytes of the file, bits per weight, and missing data.

    `fallbacks` counts the tensors whose rows do not fit the chosen type, which costs
    `fallback_nbytes` more bytes; `uncovered` those that could not be quantized because importance
    data is missing. `nominal_bits` are the bits per weight of the recipe's base type, and
    `fallback_widths` the widths of the rows that do not fit. `unsearched` counts those that a
    search leaves as they are.
    """

    recipe: str
    nbytes: int
    bits_per_weight: float | None
    fallbacks: int
    uncovered: int
    unsearched: int = 0
    fallback_nbytes: int = 0
    nominal_bits: float | None = None
    fallback_widths: tuple[int, ...] = ()


@takes_model
def plan(
    model: Model,
    recipes: str | Recipe | Iterable[str | Recipe] | None = None,
    *,
    imatrix: Imatrix | AnyPath | None = None,
    search: Search | None = None,
) -> list[Plan]:
    """Return the size of `model` in one or several recipes (by default in all), in the order given.

    `imatrix` is the importance matrix to assume, or its path, and `search` is the search for better
    blocks. No tensor data is read. Raises
    TensorTypeError for an unknown recipe, ShapeError for an importance matrix of another model.
    """
    data = opened_imatrix(imatrix)
    if recipes is None:
        recipes = [recipe for recipe in RECIPES.values() if recipe != KEEP_ALL]
    requested = [recipes] if isinstance(recipes, str | Recipe) else recipes
    return [_planned(model, recipe, data, search) for recipe in requested]


def can_encode(recipe: Recipe) -> bool:
    """Whether ggufkit encodes all types that a recipe may give; it lacks some of ik_llama.cpp."""
    names = {rule.type for rules in recipe.rules.values() for rule in rules}
    try:
        for name in names | ({recipe.base} if recipe.base else set()):
            codec.encodable(tensor_type(name).plain or name)
    except TensorTypeError:
        return False
    return True


def _planned(
    model: Model, recipe: str | Recipe, imatrix: Imatrix | None, search: Search | None
) -> Plan:
    result = decide(model, recipe, imatrix=imatrix, search=search)
    return Plan(
        result.recipe.name,
        file_nbytes(result.model),
        bits_per_weight(result.model.tensors.values()),
        sum(decision.fell_from is not None for decision in result.decisions),
        len(result.uncovered),
        len(result.unsearched),
        sum(decision.fallback_nbytes for decision in result.decisions),
        result.nominal_bits,
        result.fallback_widths,
    )
