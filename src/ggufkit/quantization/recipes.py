"""The recipes of llama-quantize: which type each kind of tensor gets, and when.

A recipe has a base type and, for each role of a tensor, rules: a type and its conditions. The first
rule whose conditions hold wins; otherwise the tensor gets the base type. `recipes.toml` has all
recipes, and what else programs do with tensors; `type_choice.py` applies it.
"""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import ggufkit._toml as _toml
from ggufkit.errors import TensorTypeError, brief
from ggufkit.format.file_types import FILE_TYPES, NUMBER_OF
from ggufkit.format.types import IK, TensorType, tensor_type
from ggufkit.quantization.choice.conditions import CONDITIONS, RecipeRule, RecipeRules
from ggufkit.quants.kernels import NEEDS_IMATRIX
from ggufkit.validation.patterns import compile_untrusted

Patterns: TypeAlias = tuple[tuple[re.Pattern[str], TensorType], ...]
_RecipeTable: TypeAlias = dict[str, Any]  # of `recipes.toml`


@dataclass(frozen=True)
class Program:
    """What a program does with tensors by their names; `recipes.toml` explains the fields."""

    kept_names: tuple[str, ...]
    kept_parts: tuple[str, ...]
    kept_parts_of: Mapping[str, tuple[str, ...]]  # by architecture
    exact_roles: Mapping[str, str]
    roles: Mapping[str, str]
    fallbacks: Mapping[str, str]


@dataclass(frozen=True)
class Recipe:
    """A recipe: `base` is the type of tensors without a rule, None to keep every type.

    `file_type` is its number in `general.file_type`. `needs_imatrix` are the types that it uses
    only with importance data, except for the embedding and the output. `patterns` (see
    `patterns_of`) come before all rules; a user's recipe file sets them. `by_count` recipes use the
    number of tensors met so far as the layer, even if only some layers have experts. `program` is
    ik_llama.cpp for recipes of its llama-quantize, which has other roles and fallbacks.
    """

    name: str
    base: str | None
    file_type: int | None
    rules: Mapping[str, RecipeRules] = field(default_factory=dict)
    needs_imatrix: frozenset[str] = NEEDS_IMATRIX
    patterns: Patterns = ()
    by_count: bool = False
    program: str | None = None

    @property
    def fallbacks(self) -> Mapping[str, str]:
        """The types for rows that do not divide into blocks, by plain type."""
        return PROGRAMS[self.program].fallbacks


def _program(table: _RecipeTable) -> Program:
    return Program(
        tuple(table.get("kept_names", ())),
        tuple(table["kept_parts"]),
        {name: tuple(parts) for name, parts in table.get("kept_parts_of", {}).items()},
        table.get("exact_roles", {}),
        table["roles"],
        by_item(table.get("fallbacks", {})),
    )


def by_item(lists: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return the name of the list that each item is in."""
    return {item: name for name, items in lists.items() for item in items}


def rules_of(*tables: _RecipeTable) -> dict[str, RecipeRules]:
    """Return the rules for each role; those of the first table come first."""
    values = {key: text for table in tables for key, text in table.items() if isinstance(text, str)}
    rules: dict[str, RecipeRules] = defaultdict(tuple)
    for table in tables:
        for role, texts in table.items():
            if isinstance(texts, list) and role != "needs_imatrix":
                rules[role] += tuple(_rule(text, values) for text in texts)
    return dict(rules)


def _rule(text: str, values: Mapping[str, str]) -> RecipeRule:
    """Return the rule "TYPE if CONDITION and CONDITION"; a value may have another value's name."""
    while "$" in text:
        text = Template(text).substitute(values)
    kind, _, conditions = text.partition(" if ")
    names = conditions.split(" and ") if conditions else ()
    return RecipeRule(kind, tuple(CONDITIONS[name] for name in names))


def _recipes(table: _RecipeTable, program: str | None = None) -> Mapping[str, Recipe]:
    needed = NEEDS_IMATRIX.difference(table.get("needs_no_imatrix", ()))
    recipes = {}
    for name, row in table["recipes"].items():
        family = table["families"][row["family"]] if "family" in row else {}
        recipes[name] = Recipe(
            name,
            row.get("base"),
            NUMBER_OF.get(row.get("number_of", name)),
            rules_of(family, row),
            needed.union(row.get("needs_imatrix", ())),
            by_count=family.get("by_count", False),
            program=program,
        )
    return MappingProxyType(recipes)


TABLES: Final = _toml.loads(Path(__file__).with_name("recipes.toml").read_text("utf-8"))
LLAMA_CPP: Final = _program(TABLES["llama"])
PROGRAMS: Final[Mapping[str | None, Program]] = {None: LLAMA_CPP, IK: _program(TABLES["ik"])}
RECIPES: Final = _recipes(TABLES["llama"])
KEEP_ALL: Final = RECIPES["COPY"]
IK_ONLY: Final = _recipes(TABLES["ik"], IK)
ALL_RECIPES: Final[Mapping[str, Recipe]] = MappingProxyType({**RECIPES, **IK_ONLY})
ALIASES: Final = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}

# After the rules.

# If eight heads share attention values, these are small: 70B models can afford more bits.
LIFTED_IN_70B: Final = {"Q3_K": "Q5_K", "Q4_K": "Q5_K"}
NAMED_70B: Final = {
    **dict.fromkeys(("llama", "llama-embed", "deci", "olmo", "qwen2"), 80),
    "jais2": 68,
}
# Layers of models that ik_llama.cpp calls 8B, except for Qwen 3 of 4B; and the least vocabulary for
# which it gives them more bits.
NAMED_8B: Final[dict[str, tuple[int, ...]]] = {
    "llama": (32, 36),
    "qwen3": (36,),
    "qwen3vl": (36,),
    "cohere2": (32,),
    "mistral3": (34,),
}
QWEN_4B_WIDTH: Final = 2560
LLAMA_3_TOKENS: Final = 127999

LAST_RESORT: Final = "F16"  # if a fallback does not fit either

# The nearest type that needs no importance data, for tensors without it.
PROMOTED: Final = {
    **dict.fromkeys(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S"), "Q2_K"),
    "IQ3_XXS": "IQ3_S",
    "Q2_K": "Q3_K",
}

# Weights of glm5-next that never become smaller than Q8_0.
FLOORS: Final = {"glm5-next": (("attn_q_a", "attn_q_b", "nextn.eh_proj"), "Q8_0")}


def find_recipe(name: str | int) -> Recipe:
    """Return a recipe by its name in any case, its alias, or its number in general.file_type.

    Raises TensorTypeError with the list of recipes.
    """
    text = brief(name) if isinstance(name, int) else str(name).strip().upper()
    numbers = {str(number): name for number, name in FILE_TYPES.items()}
    recipe = numbers.get(text) or ALIASES.get(text, text)
    if recipe in ALL_RECIPES:
        return ALL_RECIPES[recipe]
    near = difflib.get_close_matches(text, [*ALL_RECIPES, *ALIASES], 1)
    hint = f"Did you mean {near[0]}? " if near else ""
    remedy = f"{hint}The recipes are {', '.join(ALL_RECIPES)}"
    raise TensorTypeError(f"unknown recipe {brief(name)}", remedy=remedy)


def patterns_of(pairs: Iterable[tuple[str, str | int | TensorType]]) -> Patterns:
    """Return regular expressions, to be searched in names, with their types.

    Raises ValueTypeError for an invalid regular expression, TensorTypeError for an unknown type.
    """
    return tuple((compile_untrusted(pattern), tensor_type(kind)) for pattern, kind in pairs)
