"""Which type each tensor of an image or video model gets.

Source: `tools/lcpp.patch` of ComfyUI-GGUF, for the recipes that it has. An i-quant takes the rules
of the K recipe with as many bits, with its own base type. For files without keys,
`tensor_should_be_converted` of stable-diffusion.cpp: it has one type for all tensors.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Final

from ggufkit.diffusion.architecture import DiffusionArchitecture
from ggufkit.format.file_types import FILE_TYPES
from ggufkit.models.model import Tensor, as_ggml_counts
from ggufkit.quantization.choice.conditions import RecipeRules, first_four, first_two, use
from ggufkit.quantization.recipes import Recipe

# Roles: the first part that occurs in a tensor's name decides.
_ROLES: Final = {
    "attn_v.weight": "value",
    ".to_v.weight": "value",
    ".v.weight": "value",
    ".attn.w1v.weight": "value",
    ".attn.w2v.weight": "value",
    "_attn.v_proj.weight": "value",
    "attn_qkv.weight": "fused",
    "attn.qkv.weight": "fused",
    "attention.qkv.weight": "fused",
    "ffn_down": "down",
    ".ffn.2.weight": "down",
    ".ff.net.2.weight": "down",
    ".mlp.layer2.weight": "down",
    ".adaln_modulation_mlp.2.weight": "down",
    ".feed_forward.w2.weight": "down",
}
_EXPERT: Final = ("experts.", ".w2.weight")
_KEPT_PARTS: Final = ("_norm.weight", "ffn_gate_inp.weight", "attn_rel_b.weight")
_MATRIX_AXES: Final = 2
_SD_CPP_ENDS: Final = (".bias", ".scale")
_SD_CPP_PARTS: Final = (
    *("img_in.", "txt_in.", "time_in.", "vector_in.", "guidance_in.", "final_layer."),
    *("x_embedder.", "t_embedder.", "y_embedder.", "pos_embed", "context_embedder."),
    *("time_embed.", "label_emb.", "embedding"),
)


_RULES: Final[dict[str, dict[str, RecipeRules]]] = {
    "Q2_K": {"value": (use("Q3_K"),)},
    "Q3_K_M": {
        "value": (use("Q5_K", first_two), use("Q4_K")),
        "fused": (use("Q4_K"),),
        "down": (use("Q4_K"),),
    },
    "Q3_K_L": {"value": (use("Q5_K"),), "fused": (use("Q4_K"),), "down": (use("Q5_K"),)},
    "Q4_K_S": {"value": (use("Q5_K", first_four),), "down": (use("Q5_K"),)},
    "Q4_K_M": {"value": (use("Q6_K"),), "fused": (use("Q5_K"),), "down": (use("Q6_K"),)},
    "Q5_K_M": {"value": (use("Q6_K"),), "fused": (use("Q6_K"),), "down": (use("Q6_K"),)},
    "Q4_0": {"down": (use("Q4_1"),)},
    "Q5_0": {"down": (use("Q5_1"),)},
}
_AS_K_RECIPE: Final = {
    **dict.fromkeys(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M"), "Q2_K"),
    **dict.fromkeys(("IQ3_XXS", "IQ3_XS", "IQ3_S"), "Q3_K_S"),
    "IQ3_M": "Q3_K_M",
    **dict.fromkeys(("IQ4_NL", "IQ4_XS"), "Q4_K_S"),
}
K_TYPES: Final = ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")


@functools.lru_cache
def role_in_diffusion(name: str) -> str:
    """Return the role of a tensor of this name in an image or video model, "other" for most."""
    for part, role in _ROLES.items():
        if part in name or (part == "ffn_down" and all(word in name for word in _EXPERT)):
            return role
    return "other"


def diffusion_recipe(recipe: Recipe) -> Recipe:
    """Return a recipe with the rules for image and video models."""
    name = FILE_TYPES.get(recipe.file_type or 0, "")  # a user's recipe has a name of its own
    rules = _RULES.get(_AS_K_RECIPE.get(name, name), {})
    return replace(recipe, rules=rules, by_count=True)


def is_quantized_in_diffusion(tensor: Tensor, architecture: DiffusionArchitecture) -> bool:
    """Whether the matrices of `architecture` of this name and shape are quantized."""
    name = tensor.name
    if not name.endswith("weight") or any(part in name for part in _KEPT_PARTS):
        return False
    axes = len(as_ggml_counts(tensor).shape)
    return axes == _MATRIX_AXES and not architecture.is_kept(name)


def is_converted_by_sd_cpp(name: str) -> bool:
    """Whether stable-diffusion.cpp converts a tensor of this name, if its rows divide."""
    return not name.endswith(_SD_CPP_ENDS) and not any(part in name for part in _SD_CPP_PARTS)
