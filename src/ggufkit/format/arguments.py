"""Check arguments where they come in: an error names the argument and what it takes."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ggufkit.errors import ValueTypeError, brief


def texts(argument: str, given: object) -> tuple[str, ...]:
    """Return the strings of an argument: one string is one item, not a list of letters."""
    items = (given,) if isinstance(given, str) else _items(argument, given, "a string or strings")
    for item in items:
        if not isinstance(item, str):
            raise refusal(argument, item, "a string")
    return items


def whole_numbers(argument: str, given: object) -> tuple[int, ...]:
    """Return the whole numbers of an argument: one number is one item."""
    items = (given,) if isinstance(given, int) else _items(argument, given, "whole numbers")
    try:
        return tuple(operator.index(item) for item in items)
    except TypeError:
        raise refusal(argument, given, "whole numbers") from None


def mapping(argument: str, given: object) -> Mapping[str, Any]:
    """Return the mapping of an argument, an empty one for None."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise refusal(argument, given, "a dict")
    for key in given:
        if not isinstance(key, str):
            raise refusal(f"{argument}, a key", key, "a string")
    return given


def refusal(argument: str, given: object, wanted: str) -> ValueTypeError:
    """Return the error of an argument of the wrong kind."""
    return ValueTypeError(
        f"the argument {argument} must be {wanted}, not {brief(given)}",
        remedy="Look at `help` of the function",
    )


def _items(argument: str, given: object, wanted: str) -> tuple[Any, ...]:
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise refusal(argument, given, wanted)
    return tuple(given)


def require_known(options: Collection[str], known: Collection[str], function: str) -> None:
    """Raise TypeError for an unknown option, as Python does for an unknown argument."""
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise TypeError(f"{function}() has no option {unknown[0]!r}")
