"""Repair what can be set right without a doubt: the keys of a file, edited in place."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from ggufkit.consistency import Seen, inconsistencies
from ggufkit.editing import Edits
from ggufkit.model import Model
from ggufkit.opening import open as open_model
from ggufkit.patching import EditPlan, plan
from ggufkit.stamping import QUANTIZATION_VERSION, VERSION_KEY
from ggufkit.store import AnyPath

REPAIRED: Final = frozenset({"key-type", "quantization-version", "token-id-range"})
_LIMITS: Final = {"uint32": (0, 2**32 - 1), "float32": (-math.inf, math.inf)}


def plan_repair(path: AnyPath) -> EditPlan:
    """Return the edit that sets right what is wrong in a file, for `patching.apply` to do.

    It changes nothing about what llama.cpp computes: numbers get the type in which llama.cpp
    reads them, ids of tokens that do not exist are removed, as llama.cpp ignores them, and the
    version that readers assume is written down. Raises as `open` and `edit_in_place` do.
    """
    with open_model(path) as model:
        edits = repairs(model)
    return plan(path, **edits)


def repairs(model: Model) -> Edits:
    """Return the edits that set a model right; none where nothing is wrong, or nothing is safe."""
    seen = Seen.of(model)
    values: dict[str, object] = {}
    types: dict[str, str] = {}
    gone: list[str] = []
    for broken in inconsistencies(seen) if seen.is_language_model else ():
        wanted = str(broken.details.get("wanted", ""))
        if broken.rule == "token-id-range":
            gone.append(broken.key)
        elif broken.rule == "key-type" and _fits(model.metadata[broken.key], wanted):
            values[broken.key] = _plain(model.metadata[broken.key])
            types[broken.key] = wanted
    is_quantized = any(tensor.type.is_quantized for tensor in model.tensors.values())
    if is_quantized and VERSION_KEY not in model.metadata:
        values[VERSION_KEY] = np.uint32(QUANTIZATION_VERSION)
    kept = {key: value for key, value in values.items() if key not in gone}
    return Edits(set=kept, types={k: v for k, v in types.items() if k in kept}, unset=gone)


def _fits(value: object, wanted: str) -> bool:
    """Whether a number can be stored in another type without becoming another number."""
    if not isinstance(value, np.integer | np.floating) or wanted not in _LIMITS:
        return False
    least, most = _LIMITS[wanted]
    is_same = wanted == "uint32" or float(np.float32(value)) == float(value)
    return bool(least <= value <= most) and is_same and isinstance(value, _kind(wanted))


def _kind(wanted: str) -> type[np.generic]:
    return np.integer if wanted == "uint32" else np.floating


def _plain(value: Any) -> int | float:  # noqa: ANN401 (a number of any type)
    number: int | float = value.item()
    return number
