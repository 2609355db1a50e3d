# ruff: noqa: PLR2004 (the numbers are the policy, and the names say them)
"""Conditions on a tensor and its model that recipes test before they choose a type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from ggufkit.diffusion.architecture import DiffusionArchitecture

FEED_FORWARD: Final = ("ffn_up", "ffn_gate", "ffn_down")


@dataclass(frozen=True)
class ModelFacts:
    """The properties of a whole model that conditions read.

    `layers` is the number of layers, `grouped` the number of query heads per key head (0: no
    attention). `is_70b` marks dense models of 80 layers: llama.cpp calls them 70B. `is_llama_3`
    marks models that ik_llama.cpp calls 8B or 70B, with 128,000 tokens or more. `diffusion` is the
    architecture of an image or video model. `is_sd_cpp` marks a part of a pipeline in a file
    without keys, as stable-diffusion.cpp writes them.
    """

    architecture: str = ""
    layers: int = 0
    grouped: int = 0
    experts: int = 0
    is_70b: bool = False
    is_llama_3: bool = False
    diffusion: DiffusionArchitecture | None = None
    is_sd_cpp: bool = False


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """The position of a tensor in its model.

    It is `layer` of `layers` that have its `role`, as llama.cpp counts them. `imatrix` is true if
    the model has any importance data, `is_stack` if the tensor has a third axis, as experts have.
    `width` is the length of its rows, `block_size` that of the blocks of the recipe's base type.
    """

    facts: ModelFacts
    role: str
    layer: int
    layers: int
    imatrix: bool
    width: int
    block_size: int
    is_stack: bool


class Condition(NamedTuple):
    """A condition that recipes test before they choose a type, and what it says."""

    text: str
    holds: Callable[[TensorPlace], bool]


class RecipeRule(NamedTuple):
    """The type that a tensor gets if all conditions hold."""

    type: str
    when: tuple[Condition, ...]


RecipeRules: TypeAlias = tuple[RecipeRule, ...]


def _is_middle(place: TensorPlace) -> bool:
    return place.layers // 8 <= place.layer < 7 * place.layers // 8


CONDITIONS: Final[Mapping[str, Condition]] = {
    "first_two": Condition("the first two", lambda place: place.layer < 2),
    "first_four": Condition("the first four", lambda place: place.layer < 4),
    "first_sixteenth": Condition(
        "the first sixteenth", lambda place: place.layer < place.layers // 16
    ),
    "first_eighth": Condition("the first eighth", lambda place: place.layer < place.layers // 8),
    "middle": Condition("all but the first and the last eighth", _is_middle),
    "more_bits": Condition(
        "the first and the last eighth, and every third layer between them",
        lambda place: not _is_middle(place) or (place.layer - place.layers // 8) % 3 == 2,
    ),
    "shared_heads": Condition(
        "if 4 or more query heads share a key head", lambda place: place.facts.grouped >= 4
    ),
    "shared_heads_or_experts": Condition(
        "if 4 or more query heads share a key head, or the model has 4 or more experts",
        lambda place: place.facts.grouped >= 4 or place.facts.experts >= 4,
    ),
    "eight_experts": Condition(
        "if the model has 8 experts, as Mixtral has", lambda place: place.facts.experts == 8
    ),
    "not_eight_experts": Condition(
        "if the model does not have 8 experts", lambda place: place.facts.experts != 8
    ),
    "falcon": Condition("in a Falcon model", lambda place: place.facts.architecture == "falcon"),
    "not_falcon": Condition(
        "in every architecture but Falcon", lambda place: place.facts.architecture != "falcon"
    ),
    "with_imatrix": Condition("with importance data", lambda place: place.imatrix),
    "without_imatrix": Condition("without importance data", lambda place: not place.imatrix),
    "unfit": Condition(
        "if rows do not divide into the blocks of the base type",
        lambda place: place.width % place.block_size != 0,
    ),
    "stacked_experts": Condition(
        "whether the tensor holds experts; projections of bailingmoe3 also have three axes",
        lambda place: (
            place.is_stack
            and (place.facts.architecture != "bailingmoe3" or place.role in FEED_FORWARD)
        ),
    ),
    # Of ik_llama.cpp's llama-quantize.
    "odd_rows": Condition(
        "if rows do not divide into blocks of 256", lambda place: place.width % 256 != 0
    ),
    "two_heads": Condition(
        "if 2 or more query heads share a key head", lambda place: place.facts.grouped >= 2
    ),
    "two_heads_or_experts": Condition(
        "if 2 or more query heads share a key head, or the model has 2 or more experts",
        lambda place: place.facts.grouped >= 2 or place.facts.experts >= 2,
    ),
    "four_experts": Condition(
        "if the model has 4 or more experts", lambda place: place.facts.experts >= 4
    ),
    "many_experts": Condition(
        "if the model has 8 or more experts", lambda place: place.facts.experts >= 8
    ),
    "of_70b": Condition(
        "in a model of 70B",
        lambda place: (
            place.facts.is_70b or (place.facts.architecture, place.facts.layers) == ("qwen2vl", 80)
        ),
    ),
    "llama_3": Condition(
        "in a model of 8B or 70B with 128,000 tokens or more", lambda place: place.facts.is_llama_3
    ),
}
