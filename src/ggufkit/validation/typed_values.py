"""Read values of one type from JSON, keys, headers and forms.

Each function returns one, or raises ValueTypeError, which names the value. `int(value)` and
`float(value)` fail in many ways: for NaN, infinity, 10^400, a list, or text of 5,000 digits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from ggufkit.errors import ValueTypeError, brief

MAX_TEXT: Final = 1 << 16  # characters of a name or title
MAX_WHOLE: Final = (1 << 63) - 1
MAX_FLOAT32: Final = 3.4028234663852886e38


def finite_number(
    value: object, name: str, *, least: float = -math.inf, most: float = math.inf
) -> float:
    """Return a number as a float; truth values, NaN and infinity do not count as numbers."""
    if not isinstance(value, bool) and isinstance(value, int | float):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number) and least <= number <= most:
            return number
    raise _refusal(name, "a finite number", least, most, value)


def integer(value: object, name: str, *, least: int = 0, most: int = MAX_WHOLE) -> int:
    """Return a whole number within limits; a truth value does not count as a number."""
    if not isinstance(value, bool) and isinstance(value, int) and least <= value <= most:
        return value
    raise _refusal(name, "a whole number", least, most, value)


def short_text(value: object, name: str, *, most: int = MAX_TEXT) -> str:
    """Return a text of at most `most` characters."""
    if isinstance(value, str) and len(value) <= most:
        return value
    raise _refusal(name, "a text", 0, most, value, unit=" characters")


def json_object(value: object, name: str) -> Mapping[str, Any]:
    """Return an object of JSON."""
    if isinstance(value, Mapping):
        return value
    raise ValueTypeError(f"{name} is {brief(value)}, not an object")


def json_list(value: object, name: str) -> list[Any]:
    """Return a list of JSON."""
    if isinstance(value, list):
        return value
    raise ValueTypeError(f"{name} is {brief(value)}, not a list")


def _refusal(  # noqa: PLR0913 (what a message says)
    name: str, kind: str, least: float, most: float, value: object, unit: str = ""
) -> ValueTypeError:
    limits = f" from {brief(least)} to {brief(most)}{unit}" if math.isfinite(most) else ""
    return ValueTypeError(f"{name} is {brief(value)}, not {kind}{limits}")
