"""Which type each tensor of an image or video model gets.

The rules are in `recipes.toml`. For files without keys, the source is
`tensor_should_be_converted` of stable-diffusion.cpp: it has one type for all tensors.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Final

from ggufkit.diffusion.architecture import DiffusionArchitecture
from ggufkit.format.file_types import FILE_TYPES
from ggufkit.models.model import Tensor, as_ggml_counts
from ggufkit.quantization.recipes import TABLES, Recipe, by_item, rules_of

_TABLE: Final = TABLES["diffusion"]
_RULES: Final = {name: rules_of(row) for name, row in _TABLE["recipes"].items()}
_ROLES: Final[dict[str, str]] = _TABLE["roles"]
_AS_RECIPE: Final = by_item(_TABLE["as_recipe"])
_EXPERT: Final = ("experts.", ".w2.weight")
_MATRIX_AXES: Final = 2
_SD_CPP_ENDS: Final = (".bias", ".scale")
_SD_CPP_PARTS: Final = (
    *("img_in.", "txt_in.", "time_in.", "vector_in.", "guidance_in.", "final_layer."),
    *("x_embedder.", "t_embedder.", "y_embedder.", "pos_embed", "context_embedder."),
    *("time_embed.", "label_emb.", "embedding"),
)
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
    rules = _RULES.get(_AS_RECIPE.get(name, name), {})
    return replace(recipe, rules=rules, by_count=True)


def is_quantized_in_diffusion(tensor: Tensor, architecture: DiffusionArchitecture) -> bool:
    """Whether the matrices of `architecture` of this name and shape are quantized."""
    name = tensor.name
    if not name.endswith("weight") or any(part in name for part in _TABLE["kept_parts"]):
        return False
    axes = len(as_ggml_counts(tensor).shape)
    return axes == _MATRIX_AXES and not architecture.is_kept(name)


def is_converted_by_sd_cpp(name: str) -> bool:
    """Whether stable-diffusion.cpp converts a tensor of this name, if its rows divide."""
    return not name.endswith(_SD_CPP_ENDS) and not any(part in name for part in _SD_CPP_PARTS)
