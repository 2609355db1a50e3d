"""The recipes of llama-quantize as tables: which type each kind of tensor gets, and when.

A recipe has a base type and, for each role of a tensor, rules: a type and its conditions. The first
rule whose conditions hold wins; otherwise the tensor gets the base type. Source: `llama-quant.cpp`
of llama.cpp, October 2026. `type_choice.py` applies these tables.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, TypeAlias

from ggufkit.errors import TensorTypeError, brief
from ggufkit.format.file_types import FILE_TYPES, NUMBER_OF
from ggufkit.format.types import IK, TensorType, tensor_type
from ggufkit.quantization.choice.conditions import (
    RecipeRules,
    eight_experts,
    falcon,
    first_eighth,
    first_four,
    first_sixteenth,
    first_two,
    middle,
    more_bits,
    not_eight_experts,
    not_falcon,
    shared_heads,
    shared_heads_or_experts,
    stacked_experts,
    unfit,
    use,
    with_imatrix,
    without_imatrix,
)
from ggufkit.quantization.ik_recipes import COUNTED, IK_FALLBACKS, IK_RECIPES
from ggufkit.quants.kernels import NEEDS_IMATRIX
from ggufkit.validation.patterns import compile_untrusted

# Roles: the first part that occurs in a tensor's name decides.

EXACT_ROLES: Final = {
    "output.weight": "output",
    "token_embd.weight": "embedding",
    "per_layer_token_embd.weight": "embedding",
}
ROLES: Final = {
    "attn_qkv.weight": "attention_v",
    "attn_kv_b.weight": "attention_v",
    "attn_v.weight": "attention_v",
    "attn_k.weight": "attention_k",
    "attn_q.weight": "attention_q",
    "attn_output.weight": "attention_output",
    "ffn_up": "ffn_up",
    "ffn_gate": "ffn_gate",
    "ffn_down": "ffn_down",
}


Patterns: TypeAlias = tuple[tuple[re.Pattern[str], TensorType], ...]


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
        return IK_FALLBACKS if self.program else FALLBACKS


_OUTPUT: Final = (use("Q8_0", falcon), use("Q8_0", unfit), use("Q6_K"))
_TINY_OUTPUT: Final = (use("Q8_0", falcon), use("Q8_0", unfit), use("Q5_K"))
_EIGHT_EXPERTS: Final = use("Q8_0", eight_experts)
_EXPERTS_OUTPUT: Final = use("Q5_K", eight_experts, not_falcon)
_EXPERTS: Final = (use("MXFP4", stacked_experts), use("Q8_0"))


def _recipe(name: str, base: str = "", **rules: RecipeRules) -> Recipe:
    """Return a recipe with the shared rules: 8 experts give small attention tensors more bits."""
    shared = {
        "output": rules.pop("output", _OUTPUT),
        "attention_v": (_EIGHT_EXPERTS, *rules.pop("attention_v", ())),
        "attention_k": (_EIGHT_EXPERTS, *rules.pop("attention_k", ())),
    }
    return Recipe(name, base or name, NUMBER_OF[name], shared | rules)


def _tiny(name: str, base: str, lift: str, embedding: str, output: str) -> Recipe:
    """Return a recipe below 3 bits: `lift` is the type of the most sensitive tensors."""
    rules: dict[str, RecipeRules] = {
        "output": _TINY_OUTPUT,
        "embedding": (use(embedding),),
        "attention_v": (use("Q4_K", shared_heads_or_experts), use(lift)),
        "attention_k": (use("Q4_K", eight_experts),),
        "attention_output": (use("Q5_K", eight_experts), use(output)),
        "ffn_down": (use(lift, first_eighth),),
    }
    return Recipe(name, base, NUMBER_OF[name], rules, by_count=True)


def _plain(name: str) -> Recipe:
    return Recipe(name, name, NUMBER_OF[name])


_ALL: Final = (
    _plain("F32"),
    _plain("F16"),
    _plain("BF16"),
    _recipe("Q1_0"),
    _recipe("Q2_0", embedding=(use("Q4_K"),)),
    _recipe("Q4_0", ffn_down=(use("Q4_1", with_imatrix, first_eighth),)),
    _recipe("Q4_1"),
    _recipe("Q5_0", ffn_down=(use("Q5_1", with_imatrix, first_eighth),)),
    _recipe("Q5_1"),
    _recipe("Q8_0", output=(use("Q8_0"),)),
    _recipe(
        "Q2_K",
        attention_v=(use("Q4_K", shared_heads), use("Q3_K")),
        attention_output=(_EXPERTS_OUTPUT, use("Q3_K", not_falcon)),
        ffn_down=(use("Q3_K"),),
    ),
    replace(
        _recipe(
            "Q2_K_S",
            "Q2_K",
            attention_v=(use("Q4_K", shared_heads),),
            ffn_down=(use("Q4_K", first_eighth),),
        ),
        needs_imatrix=NEEDS_IMATRIX | {"Q2_K"},
    ),
    _recipe("Q3_K_S", "Q3_K", attention_output=(_EXPERTS_OUTPUT,)),
    _recipe(
        "Q3_K_M",
        "Q3_K",
        attention_v=(use("Q5_K", first_two), use("Q4_K")),
        attention_output=(_EXPERTS_OUTPUT, use("Q4_K", not_falcon)),
        ffn_down=(
            use("Q5_K", first_sixteenth),
            use("Q4_K", not_falcon),
            use("Q4_K", more_bits),
        ),
    ),
    _recipe(
        "Q3_K_L",
        "Q3_K",
        attention_v=(use("Q5_K"),),
        attention_output=(use("Q4_K", falcon), use("Q5_K", not_eight_experts)),
        ffn_down=(use("Q4_K", falcon), use("Q5_K")),
    ),
    _recipe(
        "Q4_K_S",
        "Q4_K",
        attention_v=(use("Q5_K", first_four),),
        attention_output=(_EXPERTS_OUTPUT,),
        ffn_down=(use("Q5_K", not_falcon, first_eighth),),
    ),
    _recipe(
        "Q4_K_M",
        "Q4_K",
        attention_v=(use("Q6_K", more_bits),),
        attention_output=(_EXPERTS_OUTPUT,),
        ffn_down=(
            use("Q6_K", falcon, first_sixteenth),
            use("Q5_K", falcon, more_bits),
            use("Q6_K", not_falcon, more_bits),
        ),
    ),
    _recipe("Q5_K_S", "Q5_K"),
    _recipe(
        "Q5_K_M",
        "Q5_K",
        attention_v=(use("Q6_K", more_bits),),
        ffn_down=(use("Q6_K", more_bits),),
    ),
    _recipe("Q6_K"),
    _tiny("IQ1_S", "IQ1_S", lift="Q2_K", embedding="Q2_K", output="IQ2_XXS"),
    _tiny("IQ1_M", "IQ1_M", lift="Q2_K", embedding="Q2_K", output="IQ2_XXS"),
    _tiny("IQ2_XXS", "IQ2_XXS", lift="Q2_K", embedding="Q2_K", output="IQ2_XXS"),
    _tiny("IQ2_XS", "IQ2_XS", lift="Q2_K", embedding="Q2_K", output="IQ2_XS"),
    _tiny("IQ2_S", "IQ2_XS", lift="IQ3_S", embedding="IQ3_S", output="IQ3_S"),
    _tiny("IQ2_M", "IQ2_S", lift="IQ3_S", embedding="IQ3_S", output="IQ3_S"),
    _recipe(
        "IQ3_XXS",
        output=_TINY_OUTPUT,
        embedding=(use("IQ3_S"),),
        attention_v=(use("Q4_K", shared_heads), use("IQ3_S", without_imatrix)),
        attention_k=(use("IQ2_S"),),
        attention_q=(use("IQ2_S"),),
        attention_output=(_EXPERTS_OUTPUT, use("IQ3_S", not_falcon)),
        ffn_down=(use("Q4_K", without_imatrix, first_eighth), use("Q3_K", without_imatrix)),
    ),
    _recipe(
        "IQ3_XS",
        "IQ3_S",
        attention_v=(use("Q4_K", shared_heads),),
        attention_k=(use("IQ3_XXS"),),
        attention_q=(use("IQ3_XXS"),),
        attention_output=(_EXPERTS_OUTPUT,),
        ffn_gate=(use("IQ3_XXS", middle),),
        ffn_up=(use("IQ3_XXS", middle),),
    ),
    _recipe(
        "IQ3_S",
        attention_v=(use("Q4_K", shared_heads),),
        attention_output=(_EXPERTS_OUTPUT,),
    ),
    _recipe(
        "IQ3_M",
        "IQ3_S",
        attention_v=(use("Q4_K"),),
        attention_output=(_EXPERTS_OUTPUT, use("Q4_K", not_falcon)),
        ffn_down=(use("Q4_K", first_eighth), use("Q4_K", eight_experts, more_bits)),
    ),
    _recipe(
        "IQ4_NL",
        attention_v=(use("Q5_K", shared_heads),),
        attention_output=(_EXPERTS_OUTPUT,),
        ffn_down=(use("Q5_K", without_imatrix, first_eighth),),
    ),
    _recipe(
        "IQ4_XS",
        attention_v=(use("Q5_K", shared_heads),),
        attention_output=(_EXPERTS_OUTPUT,),
        ffn_down=(use("Q5_K", without_imatrix, first_eighth),),
    ),
    _recipe("TQ1_0", embedding=(use("Q4_K"),)),
    _recipe("TQ2_0", embedding=(use("Q4_K"),)),
    Recipe(
        "MXFP4_MOE",
        "MXFP4",
        NUMBER_OF["MXFP4_MOE"],
        dict.fromkeys((*ROLES.values(), "embedding", "other"), _EXPERTS)
        | {"output": (use("Q8_0"),)},
    ),
    _recipe("NVFP4"),  # llama-quantize lacks this recipe; llama.cpp has its number
    Recipe("COPY", None, None),
)
RECIPES: Final[Mapping[str, Recipe]] = MappingProxyType({recipe.name: recipe for recipe in _ALL})
KEEP_ALL: Final = RECIPES["COPY"]
IK_ONLY: Final[Mapping[str, Recipe]] = MappingProxyType(
    {
        name: Recipe(
            name,
            base,
            NUMBER_OF["MXFP4_MOE" if name == "MXFP4" else name],  # both have the number 38
            rules,
            NEEDS_IMATRIX - {"IQ3_XXS"},
            by_count=name in COUNTED,
            program=IK,
        )
        for name, (base, rules) in IK_RECIPES.items()
    }
)
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

# Fallbacks if rows do not divide into blocks; if these do not fit either, F16.
FALLBACKS: Final = {
    **dict.fromkeys(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS"), "IQ4_NL"),
    **dict.fromkeys(("IQ3_S", "IQ4_XS"), "IQ4_NL"),
    **dict.fromkeys(("Q2_0", "Q2_K", "Q3_K", "TQ1_0", "TQ2_0"), "Q4_0"),
    "Q4_K": "Q5_0",
    "Q5_K": "Q5_1",
    "Q6_K": "Q8_0",
    **dict.fromkeys(("Q1_0", "NVFP4"), "Q4_0"),  # llama-quantize stops with an error at these two
}
LAST_RESORT: Final = "F16"

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
