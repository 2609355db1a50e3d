"""Repair the keys of a file in place, if the right value is certain."""

from __future__ import annotations

import itertools
from typing import Final

import numpy as np

from ggufkit.checks.consistency import inconsistencies
from ggufkit.checks.declared_metadata import false_declarations
from ggufkit.checks.model_view import ModelView
from ggufkit.edits.edit import Edits
from ggufkit.edits.in_place import EditPlan, plan
from ggufkit.format.file_types import GUESSED, QUANTIZATION_VERSION, VERSION_KEY
from ggufkit.format.key_types import same_value
from ggufkit.format.types import SPLIT_TYPES
from ggufkit.models.model import Model, Tensor
from ggufkit.models.open import open as open_model
from ggufkit.quantization.choice.eligibility import is_eligible
from ggufkit.quantization.file_keys import guessed_file_type
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
    """Plan the edit that repairs a file, for `in_place.apply`.

    llama.cpp computes the same as before: numbers get the type that llama.cpp reads, ids of tokens
    that do not exist are removed (llama.cpp ignores them), the version that readers assume is
    stored, and a wrong or unknown recipe is replaced by the one that llama.cpp would guess. Raises
    the errors of `open` and `edit_in_place`.
    """
    with open_model(path) as model:
        edits = repairs(model)
    return plan(path, **edits)


def repairs(model: Model) -> Edits:
    """Return the edits that repair a model; none if nothing is wrong, or no repair is safe."""
    view = ModelView(model)
    values: dict[str, object] = {}
    removed: list[str] = []
    # False numbers come last, because repair replaces them.
    faults = itertools.chain(inconsistencies(view), false_declarations(view))
    for broken in faults if view.is_language_model else ():
        if broken.rule == "token-id-range":
            removed.append(broken.key)
        elif broken.rule.startswith("file-type-"):
            tensors = list(view.model.tensors.values())
            values[broken.key] = np.uint32(
                _file_type([t for t in tensors if is_eligible(t, view.architecture)] or tensors)
            )
        elif broken.rule == "key-type":
            same = same_value(model.metadata.typed(broken.key), str(broken.details["wanted"]))
            values |= {} if same is None else {broken.key: same}
    is_quantized = any(tensor.type.is_quantized for tensor in model.tensors.values())
    values |= _split_values(model)
    if is_quantized and VERSION_KEY not in model.metadata:
        values[VERSION_KEY] = np.uint32(QUANTIZATION_VERSION)
    return Edits(set={k: v for k, v in values.items() if k not in removed}, drop_keys=removed)


def _file_type(tensors: list[Tensor]) -> int:
    """Return the number of the recipe of tensors: a guess, unless they have one type."""
    number = guessed_file_type(tensors)
    return number & ~GUESSED if len({tensor.type for tensor in tensors}) == 1 else number


def _split_values(model: Model) -> dict[str, object]:
    """Return the right values for split keys in a single file; an opened set shows no such keys."""
    types = ((key, kind.name.lower()) for key, kind in SPLIT_TYPES.items() if key in model.metadata)
    values = {
        key: same_value(model.metadata.typed(key), name)
        for key, name in types
        if model.metadata.type_name(key) != name
    }
    return {key: value for key, value in values.items() if value is not None}
