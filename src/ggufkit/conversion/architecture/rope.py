"""Reads the many spellings of rotary embedding parameters in a configuration into one form.

Source: `TextModel.__init__` of llama.cpp's converter, and the rope functions of each class.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import ggufkit._toml as _toml
from ggufkit.conversion.architecture.expressions import shortest
from ggufkit.errors import CheckpointError, ShapeError
from ggufkit.models.model import Tensor

_TABLES: Final = _toml.read(__file__, "config_fields.toml")
_SPELLINGS: Final[Mapping[str, list[str]]] = _TABLES["rope"]
_LOCAL_BASES: Final[list[str]] = _TABLES["local_rope"]["rope_theta"]
# The kinds of scaling that llama.cpp names. llama3 is stored as factors, dynamic is not stored.
_KINDS: Final = {"linear": "linear", "yarn": "yarn", "su": "longrope", "longrope": "longrope"}
UNNAMED: Final = ("default", "llama3", "dynamic", "mrope", "proportional", "xdrope")
MAX_DIMENSIONS: Final = 1 << 16  # of a head; real ones have hundreds
MAX_FREQUENCIES: Final = 1 << 16  # half of the elements of a head
# Fields of config.json by their names below `rope` in architecture files, for export.
_BACK: Final = {
    "rope_theta": "theta",
    "rope_local_base_freq": "local_theta",
    "partial_rotary_factor": "partial_rotary_factor",
}
_LLAMA3: Final = "rope_freqs.weight"
_LONG, _SHORT = "rope_factors_long.weight", "rope_factors_short.weight"
# The scaling parameters of Llama's checkpoints, and of others like them.
_ORIGINALS: Final = (8192, *(1 << power for power in range(5, 21)))
_BANDS: Final = ((1.0, 4.0), (1.0, 8.0), (1.0, 2.0), (2.0, 8.0), (1.0, 32.0))
FIELDS: Final = (
    *itertools.chain.from_iterable(_SPELLINGS.values()), *_LOCAL_BASES, "rope_parameters",
    "rope_scaling",
)  # fmt: skip


def parameters(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rope parameters, including direct fields of config.json."""
    rope = config["rope_parameters"] if "rope_parameters" in config else config.get("rope_scaling")
    if not isinstance(rope, Mapping | None):
        raise CheckpointError("rope_scaling is not an object")
    values = dict(rope or {})
    if "full_attention" in values or "sliding_attention" in values:
        return values
    local = _first(config, _LOCAL_BASES)
    if local is not None:
        values["sliding_attention"] = {"rope_theta": local}
    if "rope_type" not in values and values.get("type") is not None:
        values["rope_type"] = values["type"]
    for name, sources in _SPELLINGS.items():
        value = _first(config, sources)
        if name not in values and value is not None:
            values[name] = value
    bases = values.get("rope_theta")
    if isinstance(bases, list) and len(bases) > 1:  # Step 3.5: of full and of sliding layers
        values |= {"rope_theta": bases[0], "sliding_attention": {"rope_theta": bases[1]}}
    return values


def facts(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what architecture files call `rope`; absent parameters are None or missing."""
    values = parameters(config)
    main = dict(values.get("full_attention", values))
    kind = main.get("rope_type")
    factor = main.get("factor")
    kind_of = _KINDS.get(str(kind))
    scaling = kind_of if kind_of == "longrope" or factor is not None else None
    if scaling == "yarn" and main.get("original_max_position_embeddings") is None:
        raise CheckpointError("rope_scaling of type yarn lacks original_max_position_embeddings")
    if kind is not None and kind_of is None and str(kind).lower() not in UNNAMED:
        raise CheckpointError(f"the rope type {kind!r} is unknown")
    is_yarn = scaling == "yarn"
    attention, sections = main.get("attention_factor"), values.get("mrope_section")
    derived = {
        "scaling": scaling,
        "scaling_factor": factor if scaling in ("linear", "yarn") else None,
        "yarn": dict(main) if is_yarn else {},
        "original": main.get("original_max_position_embeddings"),
        "yarn_attention": (main.get("attn_factor") if attention is None else attention)
        if is_yarn
        else None,
        "local_share": dict(values.get("sliding_attention") or {}).get("partial_rotary_factor"),
        "local_theta": dict(values.get("sliding_attention") or {}).get("rope_theta"),
        "sections": None if sections is None else [*sections, 0, 0, 0, 0][:4],
    }
    return {**main, **derived, "theta": main.get("rope_theta")}


def _first(config: Mapping[str, Any], fields: Sequence[str]) -> Any:  # noqa: ANN401 (as JSON is)
    """Return the first field that the configuration has, even if null."""
    return next((config[name] for name in fields if name in config), None)


def llama3_factors(
    rope: Mapping[str, Any], dim: int, steps: type[np.floating[Any]] = np.float32
) -> npt.NDArray[np.float32] | None:
    """Return Llama 3's divisor for each frequency, None for another kind of rope.

    Computed in float32 step by step, like the reference in PyTorch; Step 3.5's in float64.
    """
    if str(rope.get("rope_type", "")).lower() != "llama3":
        return None
    if dim > MAX_DIMENSIONS:
        raise CheckpointError(f"rotary embedding cannot rotate {dim:,} dimensions of a head")
    with np.errstate(all="ignore"):  # a file may contain any numbers
        return _llama3_factors(rope, dim, steps)


def _llama3_factors(
    rope: Mapping[str, Any], dim: int, real: type[np.floating[Any]]
) -> npt.NDArray[np.float32]:
    f32 = np.float32
    base = float(rope.get("rope_theta", 10000.0))
    factor = real(rope.get("factor", 8.0))
    low, high = float(rope.get("low_freq_factor", 1.0)), float(rope.get("high_freq_factor", 4.0))
    old = float(rope.get("original_max_position_embeddings", 8192))
    exponents = np.arange(0, dim, 2, dtype=f32) / f32(dim)
    frequencies = f32(1) / np.power(base, exponents.astype(np.float64)).astype(f32)
    # PyTorch divides a number by a tensor as the number times the reciprocal.
    waves = real(2 * math.pi) * (real(1) / frequencies.astype(real))
    smooth = (real(old) * (real(1) / waves) - real(low)) / real(high - low)
    between = real(1) / ((real(1) - smooth) / factor + smooth)
    slow = np.where(waves > real(old / low), factor, between)
    return np.asarray(np.where(waves < real(old / high), real(1), slow), f32)


def long_rope_attention(_factors: Any, kind: str, length: int, original: int) -> float:  # noqa: ANN401
    """Return Phi-3's attention scale, if its context is longer than in training."""
    scale = length / original
    if kind not in ("su", "longrope", "yarn"):
        raise CheckpointError(f"long factors need the rope type longrope, not {kind!r}")
    if scale <= 1.0:
        return 1.0
    if kind == "yarn":
        return 0.1 * math.log(scale) + 1.0
    return math.sqrt(1 + math.log(scale) / math.log(original))


def rope_fields(rope: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the fields of config.json for the parameters that architecture files call `rope`.

    Factors of frequencies are tensors in a GGUF file.
    """
    fields = {field: rope[name] for field, name in _BACK.items() if name in rope}
    theta = fields.get("rope_theta")
    if (proportional := _proportional(rope, tensors)) is not None:
        return {"rope_parameters": proportional}
    scaling = _scaling(rope) or _long_scaling(tensors) or _llama3_scaling(tensors, theta)
    if scaling:
        fields["rope_scaling"] = scaling
    if "original" in rope and rope.get("scaling") != "yarn":
        fields["original_max_position_embeddings"] = rope["original"]
    if "sections" in rope:
        fields["rope_scaling"] = {"rope_type": "default", "mrope_section": rope["sections"]}
    return fields


UNROTATED: Final = 1e30  # a factor that leaves a pair of dimensions as it is


def proportional_factors(share: float, dimensions: int) -> npt.NDArray[np.float32]:
    """Return Gemma 4's factors: the first pairs of a head are rotated, by a share of the whole."""
    rotated = int(dimensions * share / 2)
    return np.array([1.0] * rotated + [UNROTATED] * (dimensions // 2 - rotated), np.float32)


def _proportional(
    rope: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> dict[str, dict[str, Any]] | None:
    """Return the parameters of a proportional rotary embedding, None for another kind."""
    if _LLAMA3 not in tensors:
        return None
    factors = _factors(tensors[_LLAMA3])
    if not set(np.unique(factors)) <= {np.float32(1), np.float32(UNROTATED)}:
        return None
    share = float(np.count_nonzero(factors == 1)) / len(factors)
    full = {"rope_type": "proportional", "partial_rotary_factor": share}
    local = {"rope_type": "default", "rope_theta": rope.get("local_theta")}
    return {"full_attention": {**full, "rope_theta": rope.get("theta")}, "sliding_attention": local}


def _scaling(rope: Mapping[str, Any]) -> dict[str, Any] | None:
    kind = rope.get("scaling")
    if kind not in ("linear", "yarn"):
        return None
    names = {
        "factor": rope.get("scaling_factor", rope.get("factor")),
        "attention_factor": rope.get("yarn_attention"),
        "mscale_all_dim": rope.get("mscale_all_dim"),
        "llama_4_scaling_beta": rope.get("llama_4_scaling_beta"),
        "mscale": rope.get("mscale_all_dim"),  # llama.cpp treats both as the same
    }
    values = {name: value for name, value in names.items() if value is not None}
    return {"rope_type": kind, **values, **rope.get("yarn", {})}


def _long_scaling(tensors: Mapping[str, Tensor]) -> dict[str, Any] | None:
    if _LONG not in tensors or _SHORT not in tensors:
        return None
    long, short = (_factors(tensors[name]) for name in (_LONG, _SHORT))
    decimals = [[shortest(float(n)) for n in factors] for factors in (long, short)]
    return {"type": "longrope", "long_factor": decimals[0], "short_factor": decimals[1]}


def _factors(tensor: Tensor) -> npt.NDArray[np.float32]:
    """Return frequency factors; refuse many, since all are read into memory."""
    if len(tensor.shape) != 1 or not 0 < tensor.elements <= MAX_FREQUENCIES:
        raise ShapeError(
            f"{tensor.name} of shape {tensor.shape} does not contain frequency factors"
        )
    return np.asarray(tensor.numpy(), np.float32)


def _llama3_scaling(tensors: Mapping[str, Tensor], base: object) -> dict[str, Any] | None:
    if _LLAMA3 not in tensors:
        return None
    factors = _factors(tensors[_LLAMA3])
    half = len(factors) // 2
    steps: type[np.floating[Any]] = np.float32
    if len(factors) > 1 and np.all(factors[half:] == 1):  # only a part of each head is rotated
        factors, steps = factors[:half], np.float64
    theta = base if isinstance(base, int | float) else 10000.0
    for (low, high), original in itertools.product(_BANDS, _ORIGINALS):
        candidate = {
            "rope_type": "llama3",
            "factor": shortest(float(factors.max())),
            "low_freq_factor": low,
            "high_freq_factor": high,
            "original_max_position_embeddings": original,
        }
        computed = llama3_factors({**candidate, "rope_theta": theta}, 2 * len(factors), steps)
        if computed is not None and np.array_equal(computed, factors):
            return candidate
    raise CheckpointError(
        f"{_LLAMA3} contains factors of an unknown scaling method",
        remedy="config.json stores only the parameters of a method, and no known method gives "
        "these factors",
    )
