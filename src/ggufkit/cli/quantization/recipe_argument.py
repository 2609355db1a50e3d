"""Recipes as commands take them: by name, or from a file."""

from __future__ import annotations

from ggufkit.cli.options import usage
from ggufkit.quantization.recipe_files import RECIPE_SUFFIX, read_recipe
from ggufkit.quantization.recipes import Recipe, find_recipe


@usage
def parse_recipe(text: str) -> Recipe:
    """Return a recipe by its name or its file; BadParameter for an unknown one."""
    name = text.strip()
    return read_recipe(name) if name.endswith(RECIPE_SUFFIX) else find_recipe(name)


def parse_recipes(text: str) -> tuple[Recipe, ...]:
    """Return the recipes of a list such as "Q4_K_M,Q8_0" or "mine.toml", each once."""
    found = map(parse_recipe, text.split(","))
    return tuple({recipe.name: recipe for recipe in found}.values())
