# ruff: noqa: PLR2004 (the numbers are the policy, and the names say them)
"""Conditions on a tensor and its model that recipes test before they choose a type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

FEED_FORWARD: Final = ("ffn_up", "ffn_gate", "ffn_down")


@dataclass(frozen=True)
class ModelFacts:
    """The properties of a whole model that conditions read.

    `layers` is the number of layers, `grouped` the number of query heads per key head (0: no
    attention). `is_70b` marks dense models of 80 layers: llama.cpp calls them 70B.
    """

    architecture: str = ""
    layers: int = 0
    grouped: int = 0
    experts: int = 0
    is_70b: bool = False


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """The position of a tensor in its model.

    It is `layer` of `layers` that have its `role`, as llama.cpp counts them. `imatrix` is true if
    the model has any importance data, `fits` if the tensor's rows divide into the blocks of the
    recipe's base type, `is_stack` if it has a third axis, as experts have.
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
    """If 4 or more query heads share a key head."""
    return at.facts.grouped >= 4


def shared_heads_or_experts(at: TensorPlace) -> bool:
    """If 4 or more query heads share a key head, or the model has 4 or more experts."""
    return shared_heads(at) or at.facts.experts >= 4


def eight_experts(at: TensorPlace) -> bool:
    """If the model has 8 experts, as Mixtral has."""
    return at.facts.experts == 8


def not_eight_experts(at: TensorPlace) -> bool:
    """If the model does not have 8 experts."""
    return not eight_experts(at)


def falcon(at: TensorPlace) -> bool:
    """In a Falcon model."""
    return at.facts.architecture == "falcon"


def not_falcon(at: TensorPlace) -> bool:
    """In every architecture but Falcon."""
    return not falcon(at)


def with_imatrix(at: TensorPlace) -> bool:
    """With importance data."""
    return at.imatrix


def without_imatrix(at: TensorPlace) -> bool:
    """Without importance data."""
    return not at.imatrix


def unfit(at: TensorPlace) -> bool:
    """If rows do not divide into the blocks of the base type."""
    return not at.fits


def stacked_experts(at: TensorPlace) -> bool:
    """Whether the tensor holds experts; projections of bailingmoe3 also have three axes."""
    return at.is_stack and (at.facts.architecture != "bailingmoe3" or at.role in FEED_FORWARD)
