"""Repair what can be set right without a doubt: the keys of a file, edited in place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from ggufkit.checks.claims import false_claims
from ggufkit.checks.consistency import inconsistencies
from ggufkit.checks.subject import Broken, Subject
from ggufkit.edits.edit import Edits
from ggufkit.edits.in_place import EditPlan, plan
from ggufkit.format.types import SPLIT_TYPES
from ggufkit.format.values import Value
from ggufkit.model.model import Model
from ggufkit.model.open import open as open_model
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
_DTYPES: Final = {
    "uint16": np.uint16,
    "uint32": np.uint32,
    "int32": np.int32,
    "float32": np.float32,
    "bool": np.bool_,
}


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
            values[broken.key] = np.uint32(guessed_file_type(model.tensors.values()))
        elif broken.rule == "key-type":
            same = _same(model.metadata[broken.key], str(broken.details["wanted"]))
            values |= {} if same is None else {broken.key: same}
    is_quantized = any(tensor.type.is_quantized for tensor in model.tensors.values())
    values |= _split_values(model)
    if is_quantized and VERSION_KEY not in model.metadata:
        values[VERSION_KEY] = np.uint32(QUANTIZATION_VERSION)
    return Edits(set={k: v for k, v in values.items() if k not in gone}, unset=gone)


def _split_values(model: Model) -> dict[str, object]:
    """Return what the keys of a split that is none should be; an opened set shows no such keys."""
    told = ((key, kind.name.lower()) for key, kind in SPLIT_TYPES.items() if key in model.metadata)
    found = {
        key: _same(model.metadata[key], name)
        for key, name in told
        if model.metadata.type_name(key) != name
    }
    return {key: value for key, value in found.items() if value is not None}


def _faults(seen: Subject) -> Iterator[Broken]:
    """Yield what the keys are wrong about, false claims last: they are to be other numbers."""
    yield from inconsistencies(seen)
    yield from false_claims(seen)


def _same(value: Value, wanted: str) -> object | None:
    """Return the same number, or the same numbers, in another type; None if it has not got them."""
    item = wanted.removeprefix("array[").removesuffix("]")
    is_array = isinstance(value, np.ndarray)
    if item not in _DTYPES or is_array != (item != wanted):
        return None
    if not isinstance(value, np.ndarray | np.generic | bool):
        return None
    before = np.asarray(value)
    with np.errstate(all="ignore"):
        after: np.ndarray[Any, Any] = before.astype(_DTYPES[item])
        is_same = (after == before) & (after.astype(before.dtype) == before)
    return after[()] if is_same.all() else None
