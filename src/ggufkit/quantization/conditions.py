# ruff: noqa: PLR2004 (the numbers are the policy, and the names say them)
"""What the recipes ask about a tensor and its model before they choose a type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

FEED_FORWARD: Final = ("ffn_up", "ffn_gate", "ffn_down")


@dataclass(frozen=True)
class ModelFacts:
    """What the policy asks about a model as a whole.

    `layers` are those of the whole model, `grouped` how many query heads share a key head (0:
    no attention). `is_70b` is how llama.cpp calls dense models of 80 layers.
    """

    architecture: str = ""
    layers: int = 0
    grouped: int = 0
    experts: int = 0
    is_70b: bool = False


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """Where a tensor stands in its model.

    It is `layer` of `layers` that have its `role`, as llama.cpp counts them. `imatrix` says whether
    there is importance data at all, `fits` whether its rows divide into the blocks of the recipe's
    base type, `is_stack` whether it has a third axis, as experts have.
    """

    facts: ModelFacts
    role: str
    layer: int
    layers: int
    imatrix: bool
    fits: bool
    is_stack: bool


Condition: TypeAlias = Callable[[TensorPlace], bool]


def first_two(at: TensorPlace) -> bool:
    """The first two."""
    return at.layer < 2


def first_four(at: TensorPlace) -> bool:
    """The first four."""
    return at.layer < 4


def first_sixteenth(at: TensorPlace) -> bool:
    """The first sixteenth."""
    return at.layer < at.layers // 16


def first_eighth(at: TensorPlace) -> bool:
    """The first eighth."""
    return at.layer < at.layers // 8


def middle(at: TensorPlace) -> bool:
    """All but the first and the last eighth."""
    return at.layers // 8 <= at.layer < 7 * at.layers // 8


def more_bits(at: TensorPlace) -> bool:
    """The first and the last eighth, and every third layer between them."""
    return not middle(at) or (at.layer - at.layers // 8) % 3 == 2


def shared_heads(at: TensorPlace) -> bool:
    """Where 4 query heads or more share a key head."""
    return at.facts.grouped >= 4


def shared_heads_or_experts(at: TensorPlace) -> bool:
    """Where 4 query heads or more share a key head, or where there are 4 experts or more."""
    return shared_heads(at) or at.facts.experts >= 4


def eight_experts(at: TensorPlace) -> bool:
    """Where there are 8 experts, as in Mixtral."""
    return at.facts.experts == 8


def not_eight_experts(at: TensorPlace) -> bool:
    """Where there are not 8 experts."""
    return not eight_experts(at)


def falcon(at: TensorPlace) -> bool:
    """In a Falcon."""
    return at.facts.architecture == "falcon"


def not_falcon(at: TensorPlace) -> bool:
    """In anything but a Falcon."""
    return not falcon(at)


def with_imatrix(at: TensorPlace) -> bool:
    """With importance data."""
    return at.imatrix


def without_imatrix(at: TensorPlace) -> bool:
    """Without importance data."""
    return not at.imatrix


def unfit(at: TensorPlace) -> bool:
    """Where rows do not divide into the blocks of the base type."""
    return not at.fits


def stacked_experts(at: TensorPlace) -> bool:
    """Whether these are experts; the projections of bailingmoe3 have three axes too."""
    return at.is_stack and (at.facts.architecture != "bailingmoe3" or at.role in FEED_FORWARD)
