"""Check arguments where they come in: an error names the argument and what it takes."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ggufkit.errors import ValueTypeError, brief


def texts(argument: str, value: object) -> tuple[str, ...]:
    """Return the strings of an argument: one string is one item, not a list of letters."""
    items = (value,) if isinstance(value, str) else _items(argument, value, "a string or strings")
    for item in items:
        if not isinstance(item, str):
            raise refusal(argument, item, "a string")
    return items


def whole_numbers(argument: str, value: object) -> tuple[int, ...]:
    """Return the whole numbers of an argument: one number is one item."""
    items = (value,) if isinstance(value, int) else _items(argument, value, "whole numbers")
    try:
        return tuple(operator.index(item) for item in items)
    except TypeError:
        raise refusal(argument, value, "whole numbers") from None


def mapping(argument: str, value: object) -> Mapping[str, Any]:
    """Return the mapping of an argument, an empty one for None."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise refusal(argument, value, "a dict")
    for key in value:
        if not isinstance(key, str):
            raise refusal(f"{argument}, a key", key, "a string")
    return value


def refusal(argument: str, value: object, expected: str) -> ValueTypeError:
    """Return the error of an argument of the wrong kind."""
    return ValueTypeError(
        f"the argument {argument} must be {expected}, not {brief(value)}",
        remedy="Look at `help` of the function",
    )


def _items(argument: str, value: object, expected: str) -> tuple[Any, ...]:
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        raise refusal(argument, value, expected)
    return tuple(value)


def require_known(options: Collection[str], accepted: Collection[str], function: str) -> None:
    """Raise TypeError for an unknown option, as Python does for an unknown argument."""
    unknown = sorted(set(options) - set(accepted))
    if unknown:
        raise TypeError(f"{function}() has no option {unknown[0]!r}")
