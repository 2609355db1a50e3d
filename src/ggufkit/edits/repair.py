"""Repair what can be set right without a doubt: the keys of a file, edited in place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ggufkit.checks.claims import false_claims
from ggufkit.checks.consistency import inconsistencies
from ggufkit.checks.same_value import same_value
from ggufkit.checks.subject import Broken, Subject
from ggufkit.edits.edit import Edits
from ggufkit.edits.in_place import EditPlan, plan
from ggufkit.format.types import SPLIT_TYPES
from ggufkit.model.model import Model, Tensor
from ggufkit.model.open import open as open_model
from ggufkit.quantization.eligibility import is_eligible
from ggufkit.quantization.file_keys import QUANTIZATION_VERSION, VERSION_KEY, guessed_file_type
from ggufkit.system.descriptors import AnyPath

REPAIRED: Final = frozenset(
    {
        "key-type",
        "split-type",
        "quantization-version",
        "token-id-range",
        "file-type-mix",
        "file-type-value",
    }
)


def plan_repair(path: AnyPath) -> EditPlan:
    """Return the edit that sets right what is wrong in a file, for `patching.apply` to do.

    It changes nothing about what llama.cpp computes: numbers get the type in which llama.cpp
    reads them, ids of tokens that do not exist are removed, as llama.cpp ignores them, the
    version that readers assume is written down, and a recipe that is none, or not the file's, makes
    way for the one that llama.cpp would guess. Raises as `open` and `edit_in_place` do.
    """
    with open_model(path) as model:
        edits = repairs(model)
    return plan(path, **edits)


def repairs(model: Model) -> Edits:
    """Return the edits that set a model right; none where nothing is wrong, or nothing is safe."""
    seen = Subject.of(model)
    values: dict[str, object] = {}
    gone: list[str] = []
    for broken in _faults(seen) if seen.is_language_model else ():
        if broken.rule == "token-id-range":
            gone.append(broken.key)
        elif broken.rule.startswith("file-type-"):
            values[broken.key] = np.uint32(guessed_file_type(_quantizable(seen)))
        elif broken.rule == "key-type":
            same = same_value(model.metadata[broken.key], str(broken.details["wanted"]))
            values |= {} if same is None else {broken.key: same}
    is_quantized = any(tensor.type.is_quantized for tensor in model.tensors.values())
    values |= _split_values(model)
    if is_quantized and VERSION_KEY not in model.metadata:
        values[VERSION_KEY] = np.uint32(QUANTIZATION_VERSION)
    return Edits(set={k: v for k, v in values.items() if k not in gone}, unset=gone)


def _quantizable(seen: Subject) -> list[Tensor]:
    """Return the tensors that a recipe decides on; all where it decides on none."""
    tensors = list(seen.model.tensors.values())
    return [t for t in tensors if is_eligible(t, seen.architecture)] or tensors


def _split_values(model: Model) -> dict[str, object]:
    """Return what the keys of a split that is none should be; an opened set shows no such keys."""
    told = ((key, kind.name.lower()) for key, kind in SPLIT_TYPES.items() if key in model.metadata)
    found = {
        key: same_value(model.metadata[key], name)
        for key, name in told
        if model.metadata.type_name(key) != name
    }
    return {key: value for key, value in found.items() if value is not None}


def _faults(seen: Subject) -> Iterator[Broken]:
    """Yield what the keys are wrong about, false claims last: they are to be other numbers."""
    yield from inconsistencies(seen)
    yield from false_claims(seen)
