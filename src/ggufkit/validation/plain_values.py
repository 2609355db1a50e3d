"""Turns results into what JSON has."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import Any


def plain_values(value: Any) -> Any:  # noqa: ANN401 (any part of a result)
    """Return a result as JSON has it; figures that are not finite become null."""
    if is_dataclass(value):
        names = (field.name for field in fields(value) if field.repr)
        return {name: plain_values(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {str(key): plain_values(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain_values(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
