"""The recipes that only ik_llama.cpp's llama-quantize has, in the form of `recipes.py`.

Source: `llama_tensor_get_type` in its `llama-quantize.cpp`, August 2026. Recipes of types that
ggufkit cannot encode are left out: trellises (KT), BitNet (BN), Q8_KV, IQ1_S_R4 and IQ1_M_R4. That
of IQ2_KL is here for its choice of types; nothing is written by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from ggufkit.quantization.choice.conditions import (
    RecipeRules,
    falcon,
    first_eighth,
    first_four,
    four_experts,
    llama_3,
    many_experts,
    more_bits,
    not_falcon,
    odd_rows,
    of_70b,
    shared_heads,
    shared_heads_or_experts,
    two_heads,
    two_heads_or_experts,
    use,
    with_imatrix,
    without_imatrix,
)

Row: TypeAlias = tuple[str, dict[str, RecipeRules]]  # the base type, and rules by role

# Roles: the first part that occurs in a tensor's name decides.
EXACT_IK_ROLES: Final = {
    "output.weight": "output",
    "token_embd.weight": "embedding",
    "per_layer_token_embd.weight": "layer_embedding",
}
IK_ROLES: Final = {
    "attn_v.weight": "attention_v",
    "attn_k": "attention_k",
    "attn_qkv.weight": "attention_qkv",
    "attn_q": "attention_q",
    "ffn_down": "ffn_down",
    "attn_output.weight": "attention_output",
    "ffn_gate": "ffn_gate",
    "ffn_up": "ffn_up",
}
# Fallbacks if rows do not divide into blocks.
IK_FALLBACKS: Final = {
    **dict.fromkeys(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS"), "IQ4_NL"),
    **dict.fromkeys(("IQ3_S", "IQ4_XS", "Q2_K", "Q3_K", "IQ2_K", "IQ3_K"), "IQ4_NL"),
    **dict.fromkeys(("IQ2_KS", "IQ2_KL", "IQ3_KS", "IQ4_KS", "IQ4_KSS"), "IQ4_NL"),
    **dict.fromkeys(("Q4_K", "IQ4_K", "IQ5_KS"), "Q5_0"),
    **dict.fromkeys(("Q5_K", "IQ5_K"), "Q6_0"),
    **dict.fromkeys(("Q6_K", "IQ6_K"), "Q8_0"),
}

_LOW_OUTPUT: Final = ("Q5_K", "IQ4_K")  # of the output, and of embeddings that are the output
_ODD_OUTPUT: Final = (use("Q8_0", falcon), use("Q8_0", odd_rows))
_EXPERTS_OUTPUT: Final = use("Q5_K", four_experts, not_falcon)
_NO_IMATRIX: Final = use("Q5_K", first_eighth, without_imatrix)


def _rules(base: str, output: str = "Q6_K", tied: str | None = None, **rules: RecipeRules) -> Row:
    """Return a base type and its rules; `tied` is the type of embeddings that are the output."""
    first = (use("Q8_0", four_experts),)
    of_base = use("IQ5_K" if base == "IQ3_K" else base, of_70b)
    queries, embedding = rules.pop("attention_q", ()), rules.pop("embedding", ())
    return base, {
        "output": (*_ODD_OUTPUT, use(output)),
        "tied": (*_ODD_OUTPUT, use(tied or output)),
        "embedding": embedding,
        "layer_embedding": embedding,
        "attention_v": (*first, of_base, *rules.pop("attention_v", ())),
        "attention_k": (*first, *rules.pop("attention_k", ())),
        "attention_q": queries,
        "attention_qkv": queries,
        **rules,
    }


def _tiny(base: str, lift: str, fused: str, *, suffix: str = "", **rules: RecipeRules) -> Row:
    """Return a base type below 3 bits and its rules: `lift` is the type of sensitive tensors."""
    experts = use("Q4_K", many_experts)
    values = (use("IQ4_K", shared_heads_or_experts), use("IQ3_K", two_heads_or_experts))
    output = rules.pop("attention_output", ())
    _, usual = _rules(base, f"Q5_K{suffix}", f"IQ4_K{suffix}", **rules)
    return base, usual | {
        "attention_v": (*values, use(lift)),
        "attention_k": (experts,),
        "attention_q": (experts,),
        "attention_qkv": (experts, use(fused)),
        "attention_output": (use("Q5_K", four_experts), *output),
        "ffn_down": (use(lift, first_eighth),),
    }


def _lifted(
    base: str, output: str = "Q6_K", tied: str | None = None, *, lift: str, **rules: RecipeRules
) -> Row:
    """Return the same with `lift` for attention values if heads share them, as most rows have."""
    usual: dict[str, RecipeRules] = {"attention_output": (_EXPERTS_OUTPUT,)}
    return _rules(base, output, tied, attention_v=(use(lift, two_heads),), **usual | rules)


_MORE: Final = (use("IQ4_KS", more_bits),)
IK_RECIPES: Final[Mapping[str, Row]] = {
    "Q6_0": _rules("Q6_0"),
    "MXFP4": _rules("MXFP4"),
    "IQ2_KS": _tiny("IQ2_KS", "Q2_K", "IQ2_K"),
    "IQ2_K": _rules(
        "IQ2_K",
        *_LOW_OUTPUT,
        attention_v=(use("IQ4_K", two_heads), use("IQ3_K")),
        attention_output=(_EXPERTS_OUTPUT, use("IQ3_K", not_falcon)),
    ),
    "IQ2_KL": _lifted(
        "IQ2_KL",
        *_LOW_OUTPUT,
        lift="IQ4_KS",
        attention_output=(use("IQ4_KS", four_experts, not_falcon),),
    ),
    "IQ3_KS": _lifted("IQ3_KS", *_LOW_OUTPUT, lift="IQ4_KS"),
    "IQ3_K": _lifted("IQ3_K", *_LOW_OUTPUT, lift="IQ4_K"),
    "IQ3_KL": _rules(
        "IQ3_K",
        tied="IQ5_K",
        attention_v=(use("IQ5_K", two_heads), use("IQ4_K")),
        attention_output=(_EXPERTS_OUTPUT, use("IQ4_KS", not_falcon)),
        ffn_down=_MORE,
        ffn_gate=_MORE,
        ffn_up=_MORE,
    ),
    "IQ4_KSS": _lifted("IQ4_KSS", tied="IQ5_K", lift="IQ5_K", ffn_down=(_NO_IMATRIX,)),
    "IQ4_KS": _lifted("IQ4_KS", tied="IQ5_K", lift="IQ5_K", ffn_down=(_NO_IMATRIX,)),
    "IQ4_K": _lifted("IQ4_K", lift="IQ5_K"),
    "IQ5_KS": _rules(
        "IQ5_KS",
        attention_v=(use("IQ6_K", llama_3),),
        attention_q=(use("IQ4_KS", llama_3),),
        attention_output=(_EXPERTS_OUTPUT,),
    ),
    "IQ5_K": _rules(
        "IQ5_K",
        attention_v=(use("IQ6_K", llama_3),),
        attention_q=(use("IQ4_K", llama_3),),
    ),
    "IQ6_K": _rules("IQ6_K", "IQ6_K"),
    # Interleaved rows.
    "Q4_0_R8": _rules("Q4_0_R8", ffn_down=(use("IQ4_NL_R4", with_imatrix, first_eighth),)),
    "Q5_0_R4": _rules("Q5_0_R4"),
    "Q6_0_R4": _rules("Q6_0_R4"),
    "Q8_0_R8": _rules("Q8_0_R8", "Q8_0_R8"),
    "MXFP4_R8": _rules("MXFP4_R8"),
    "Q2_K_R4": _rules(
        "Q2_K_R4",
        attention_v=(use("Q4_K_R4", shared_heads),),
        attention_output=(_EXPERTS_OUTPUT,),
        ffn_down=(use("Q4_K_R4", first_eighth),),
    ),
    "Q3_K_R4": _rules(
        "Q3_K_R4",
        attention_v=(use("Q4_K_R4", shared_heads),),
        attention_output=(_EXPERTS_OUTPUT,),
    ),
    "Q4_K_R4": _rules(
        "Q4_K_R4",
        attention_v=(use("Q5_K", first_four),),
        attention_output=(_EXPERTS_OUTPUT,),
        ffn_down=(use("Q5_K", not_falcon, first_eighth),),
    ),
    "Q5_K_R4": _rules("Q5_K_R4"),
    "Q6_K_R4": _rules("Q6_K_R4", "Q6_K_R4"),
    "IQ2_XXS_R4": _tiny("IQ2_XXS_R4", "Q2_K", "IQ2_K", suffix="_R4", embedding=(use("Q2_K"),)),
    "IQ2_XS_R4": _tiny("IQ2_XS_R4", "Q2_K", "IQ2_K", suffix="_R4", embedding=(use("Q2_K"),)),
    "IQ2_M_R4": _tiny(
        "IQ2_S_R4",
        "IQ3_S",
        "IQ3_XXS",
        attention_output=(use("IQ3_S"),),
        embedding=(use("IQ3_S"),),
    ),
    "IQ3_XXS_R4": _rules(
        "IQ3_XXS_R4",
        *_LOW_OUTPUT,
        embedding=(use("IQ3_K"),),
        attention_v=(
            use("Q4_K_R4", shared_heads),
            use("IQ3_K_R4", two_heads),
            use("IQ3_K_R4", without_imatrix),
        ),
        attention_k=(use("IQ2_S"),),
        attention_q=(use("IQ2_S"),),
        attention_output=(_EXPERTS_OUTPUT, use("IQ3_K_R4", not_falcon)),
        ffn_down=(
            use("Q4_K_R4", without_imatrix, first_eighth),
            use("IQ3_K_R4", without_imatrix),
        ),
    ),
    "IQ3_S_R4": _lifted("IQ3_S_R4", tied="IQ5_K", lift="IQ4_K_R4"),
    "IQ4_NL_R4": _lifted("IQ4_NL_R4", lift="IQ5_K", ffn_down=(_NO_IMATRIX,)),
    "IQ4_XS_R8": _lifted("IQ4_XS_R8", lift="IQ5_K", ffn_down=(_NO_IMATRIX,)),
    "IQ2_K_R4": _rules(
        "IQ2_K_R4",
        *_LOW_OUTPUT,
        attention_v=(use("IQ4_K_R4", two_heads), use("IQ3_K_R4")),
        attention_output=(_EXPERTS_OUTPUT, use("IQ3_K_R4", not_falcon)),
    ),
    "IQ3_K_R4": _lifted("IQ3_K_R4", *_LOW_OUTPUT, lift="IQ4_K_R4"),
    "IQ4_K_R4": _lifted("IQ4_K_R4", lift="IQ5_K"),
    "IQ5_K_R4": _rules("IQ5_K_R4"),
    "IQ4_KS_R4": _lifted(
        "IQ4_KS_R4",
        tied="IQ5_K",
        lift="IQ5_K_R4",
        ffn_down=(use("Q5_K_R4", first_eighth, without_imatrix),),
    ),
    "IQ5_KS_R4": _rules("IQ5_KS_R4", attention_output=(_EXPERTS_OUTPUT,)),
    "BF16_R16": ("BF16_R16", {}),
}
# Recipes that use the number of tensors met so far as the layer, even if only some have experts.
COUNTED: Final = ("IQ2_KS", "IQ2_XXS_R4", "IQ2_XS_R4", "IQ2_M_R4")
