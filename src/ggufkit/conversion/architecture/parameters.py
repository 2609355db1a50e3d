"""Computes the key-values of an architecture, with the types of llama.cpp's converter."""

from __future__ import annotations

from typing import Any

import numpy as np

from ggufkit.conversion.architecture.architecture import ConfigEntries, full_key
from ggufkit.conversion.architecture.config import ConfigFacts
from ggufkit.errors import CheckpointError, GGUFError, brief
from ggufkit.format.coerce import typed
from ggufkit.format.values import TypedValue


def parameters(facts: ConfigFacts, table: ConfigEntries) -> tuple[dict[str, TypedValue], list[str]]:
    """Return the architecture's key-values in order, and the keys that cannot be computed."""
    found: dict[str, TypedValue] = {}
    problems: list[str] = []
    for key, expression in table:
        full = full_key(facts.architecture, key)
        try:
            value = facts.value(expression)
            if value is not None:
                found[full] = typed_parameter(value)
        except GGUFError as error:
            problems.append(f"{full}: {error.message}")
    return found, problems


def typed_parameter(value: Any) -> TypedValue:  # noqa: ANN401 (as JSON is)
    """Return a value with the type that llama.cpp's converter gives such values."""
    if isinstance(value, bool | str | np.generic | np.ndarray):
        return value
    if isinstance(value, int):
        return typed("uint32", value)
    if isinstance(value, list) and value:
        return typed(f"array[{_element(value)}]", value)
    raise CheckpointError(f"{brief(value)} is not a valid metadata value")


def _element(items: list[Any]) -> str:
    for kind, name in ((bool, "bool"), (str, "string"), (int, "int32"), (float, "float32")):
        if all(isinstance(item, kind) for item in items):
            return name
    return "float32"
