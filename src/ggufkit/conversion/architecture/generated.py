"""Makes tensors from the configuration that llama.cpp needs and checkpoints lack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ggufkit.conversion.architecture.config import ConfigFacts
from ggufkit.conversion.architecture.rope import llama3_factors, proportional_factors
from ggufkit.errors import CheckpointError
from ggufkit.models.model import Tensor
from ggufkit.models.sources import from_array

# The part of a head that the first layer rotates that sees all tokens.
_SHARE: Final = "partial_rotary_factors[leading_layers(layer_types, 'sliding_attention')]"

LONGEST_PERIOD: Final = 10000  # of the positions of sound
POSITIONS: Final = 1500  # of 30 seconds of sound
FactorArray = npt.NDArray[np.float32]


def generate(facts: ConfigFacts) -> Iterator[Tensor]:
    """Yield the tensors that the architecture generates for this model; they come first."""
    for name, maker in facts.architecture.generated.items():
        made = _maker(maker)(facts)
        if made is not None:
            yield from_array(name, made)


def _maker(name: str) -> Callable[[ConfigFacts], FactorArray | None]:
    if name not in MAKERS:
        known = ", ".join(MAKERS)
        raise CheckpointError(f"nothing makes {name!r}", remedy=f"There are {known}")
    return MAKERS[name]


def _llama3_factors(facts: ConfigFacts) -> FactorArray | None:
    dim = facts.value("head_dim or hidden_size // num_attention_heads")
    return None if dim is None else llama3_factors(facts.lookup("rope"), dim)


def _padded_llama3_factors(facts: ConfigFacts) -> FactorArray | None:
    """Return Llama 3's factors for the rotated part of a head, and 1 for the rest."""
    rope, length = facts.lookup("rope"), facts.value("head_dim")
    share = facts.value(_SHARE)
    if length is None or share is None:
        return None
    made = llama3_factors(rope, int(length * share), np.float64)
    return None if made is None else np.pad(made, (0, length // 2 - len(made)), constant_values=1)


def _proportional(facts: ConfigFacts) -> FactorArray | None:
    rope = facts.lookup("rope")
    share, dimensions = rope.get("partial_rotary_factor"), facts.value("global_head_dim")
    if rope.get("rope_type") != "proportional" or share is None or dimensions is None:
        raise CheckpointError("the rotary embedding of full layers is not proportional")
    return proportional_factors(share, dimensions)


def _of_draft(facts: ConfigFacts) -> FactorArray | None:
    """Return the factors of a draft model of Gemma 4, None if it rotates whole heads."""
    rope, dimensions = facts.lookup("rope"), facts.value("global_head_dim")
    if rope.get("rope_type") == "default" or dimensions is None:
        return None
    share = rope.get("partial_rotary_factor", 0.25)
    if not 0 < share <= 1 or dimensions * share % 2:
        raise CheckpointError(
            f"partial_rotary_factor is {share}: of {dimensions} dimensions, no whole pairs"
        )
    return proportional_factors(share, dimensions)


def _factors(field: str) -> Callable[[ConfigFacts], FactorArray | None]:
    def made(facts: ConfigFacts) -> FactorArray | None:
        rope: dict[str, Any] = facts.lookup("rope")
        if not rope.get("long_factor") and not rope.get("short_factor"):
            return None
        return _checked(field, rope, facts.value("rope_dimensions"))

    return made


def _checked(field: str, rope: dict[str, Any], dimensions: Any) -> FactorArray:  # noqa: ANN401
    factors = rope.get(field)
    fits = isinstance(factors, list) and 2 * len(factors) == dimensions
    if not fits or not all(isinstance(n, int | float) for n in factors or ()):
        raise CheckpointError(
            f"rope_scaling.{field} is not a list with one number for each pair of the "
            f"{dimensions} dimensions"
        )
    return np.array(factors, np.float32)


def _sinusoids(facts: ConfigFacts) -> FactorArray | None:
    """Return the positions of Whisper's encoder: sines and cosines of falling frequencies."""
    channels = facts.value("audio.hidden_size")
    if channels is None:
        return None
    step = np.log(LONGEST_PERIOD) / (channels // 2 - 1)
    exponents = np.float32(-step) * np.arange(channels // 2, dtype=np.float32)
    frequencies = np.exp(exponents.astype(np.float64)).astype(np.float32)
    times = np.arange(POSITIONS, dtype=np.float32)[:, None] * frequencies
    angles = times.astype(np.float64)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


MAKERS: Final[dict[str, Callable[[ConfigFacts], FactorArray | None]]] = {
    "draft_factors": _of_draft,
    "llama3_factors": _llama3_factors,
    "padded_llama3_factors": _padded_llama3_factors,
    "long_factors": _factors("long_factor"),
    "proportional_factors": _proportional,
    "sinusoids": _sinusoids,
    "short_factors": _factors("short_factor"),
}
