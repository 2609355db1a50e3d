"""Makes tensors from the configuration that llama.cpp needs and checkpoints lack."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ggufkit.conversion.architecture.config import ConfigFacts
from ggufkit.conversion.architecture.rope import (
    MAX_DIMENSIONS,
    llama3_factors,
    proportional_factors,
)
from ggufkit.conversion.tensors.arithmetic import of_numpy, of_torch
from ggufkit.conversion.tensors.operations import has_torch
from ggufkit.errors import CheckpointError, ValueTypeError, brief
from ggufkit.models.model import Tensor
from ggufkit.models.sources import from_array
from ggufkit.validation.typed_values import MAX_FLOAT32, finite_number, integer

# The rotated part of a head in the first layer with full attention.
_SHARE: Final = "partial_rotary_factors[leading_layers(layer_types, 'sliding_attention')]"

LONGEST_PERIOD: Final = 10000  # of the waves that mark positions of sound
POSITIONS: Final = 1500  # of 30 seconds of sound
FactorArray = npt.NDArray[np.float32]


def generate(facts: ConfigFacts) -> Iterator[Tensor]:
    """Yield the tensors that the architecture generates for this model; they come first."""
    for name, maker in facts.architecture.generated.items():
        if maker not in MAKERS:
            remedy = f"There are {', '.join(MAKERS)}"
            raise CheckpointError(f"nothing makes {maker!r}", remedy=remedy)
        try:
            numbers = MAKERS[maker](facts)
        except ValueTypeError as error:
            raise CheckpointError(f"{name} cannot be made: {error.message}") from None
        if numbers is not None:
            yield from_array(name, numbers)


def _dimensions(facts: ConfigFacts, field: str) -> int | None:
    value = facts.value(field)
    return None if value is None else integer(value, field, most=MAX_DIMENSIONS)


def _share(value: object) -> float:
    return finite_number(value, "the share of dimensions that rotate", least=0, most=1)


def _llama3_factors(facts: ConfigFacts) -> FactorArray | None:
    dim = _dimensions(facts, "head_dim or hidden_size // num_attention_heads")
    return None if dim is None else llama3_factors(facts.lookup("rope"), dim)


def _padded_llama3_factors(facts: ConfigFacts) -> FactorArray | None:
    """Return Llama 3's factors for the rotated part of a head, and 1 for the rest."""
    rope, length = facts.lookup("rope"), _dimensions(facts, "head_dim")
    share = facts.value(_SHARE)
    if length is None or share is None:
        return None
    unpadded = llama3_factors(rope, int(length * _share(share)), np.float64)
    if unpadded is None:
        return None
    return np.pad(unpadded, (0, length // 2 - len(unpadded)), constant_values=1)


def _proportional(facts: ConfigFacts) -> FactorArray | None:
    rope = facts.lookup("rope")
    share, dimensions = rope.get("partial_rotary_factor"), _dimensions(facts, "global_head_dim")
    if rope.get("rope_type") != "proportional" or share is None or dimensions is None:
        raise CheckpointError("the rotary embedding of full layers is not proportional")
    return proportional_factors(_share(share), dimensions)


def _of_draft(facts: ConfigFacts) -> FactorArray | None:
    """Return the factors of a draft model of Gemma 4, None if it rotates whole heads."""
    rope, dimensions = facts.lookup("rope"), _dimensions(facts, "global_head_dim")
    if rope.get("rope_type") == "default" or dimensions is None:
        return None
    share = _share(rope.get("partial_rotary_factor", 0.25))
    if not share or dimensions * share % 2:
        raise CheckpointError(
            f"partial_rotary_factor is {share}: of {dimensions} dimensions, no whole pairs"
        )
    return proportional_factors(share, dimensions)


def _factors(field: str, facts: ConfigFacts) -> FactorArray | None:
    """Return the factors that a field below `rope` lists, None if no field lists any."""
    rope: dict[str, Any] = facts.lookup("rope")
    if not rope.get("long_factor") and not rope.get("short_factor"):
        return None
    factors, dimensions = rope.get(field), facts.value("rope_dimensions")
    if not isinstance(factors, list) or 2 * len(factors) != dimensions:
        raise CheckpointError(
            f"rope_scaling.{field} is not a list with one number for each pair of the "
            f"{dimensions} dimensions"
        )
    return np.array([finite_number(n, field, most=MAX_FLOAT32) for n in factors], np.float32)


def _sinusoids(facts: ConfigFacts) -> FactorArray | None:
    """Return the positions of Whisper's encoder: sines and cosines of falling frequencies."""
    channels = facts.value("audio.hidden_size")
    if channels is None:
        return None
    if not any(channels in tensor.shape for tensor in facts.checkpoint.tensors.values()):
        raise CheckpointError(f"no tensor has the {brief(channels)} columns of the audio encoder")
    integer(channels, "audio.hidden_size", least=4)  # two frequencies
    step = np.log(LONGEST_PERIOD) / (channels // 2 - 1)
    exponents = np.float32(-step) * np.arange(channels // 2, dtype=np.float32)
    function = of_torch if facts.exactly and has_torch() else of_numpy
    frequencies = function("exp", exponents)
    times = np.arange(POSITIONS, dtype=np.float32)[:, None] * frequencies
    return np.concatenate([function("sin", times), function("cos", times)], axis=1)


MAKERS: Final[dict[str, Callable[[ConfigFacts], FactorArray | None]]] = {
    "draft_factors": _of_draft,
    "llama3_factors": _llama3_factors,
    "padded_llama3_factors": _padded_llama3_factors,
    "long_factors": functools.partial(_factors, "long_factor"),
    "proportional_factors": _proportional,
    "sinusoids": _sinusoids,
    "short_factors": functools.partial(_factors, "short_factor"),
}
