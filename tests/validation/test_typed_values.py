"""Typed doors take values of one kind, and refuse every other with a typed error."""

import contextlib
import math
from collections.abc import Callable

import pytest

from ggufkit.errors import ValueTypeError
from ggufkit.validation.typed_values import (
    MAX_FLOAT32,
    finite_number,
    integer,
    json_list,
    json_object,
    short_text,
)

ODD = [None, True, "", "x", "9" * 5000, 10**400, -(10**5000), [], {}, math.nan, math.inf, b"1", 1j]
DOORS = [finite_number, integer, short_text, json_object, json_list]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("value", ODD, ids=lambda value: type(value).__name__)
def test_a_door_gives_a_value_of_its_kind_or_a_typed_error(
    door: Callable[[object, str], object], value: object
) -> None:
    with contextlib.suppress(ValueTypeError):
        assert door(value, "the field") is value
        assert not isinstance(value, bool)


def test_numbers_have_limits() -> None:
    assert finite_number(3, "n") == 3.0
    assert integer(3, "n", most=3) == 3
    for wrong in (4, -1, 3.0, True):
        with pytest.raises(ValueTypeError, match=r"n is .*, not a whole number from 0 to 3"):
            integer(wrong, "n", most=3)
    for wrong in (1e39, -1e39, math.nan):
        with pytest.raises(ValueTypeError, match="not a finite number"):
            finite_number(wrong, "n", most=MAX_FLOAT32, least=-MAX_FLOAT32)


def test_texts_have_a_limit() -> None:
    assert short_text("abc", "t", most=3) == "abc"
    with pytest.raises(ValueTypeError, match="not a text from 0 to 2 characters"):
        short_text("abc", "t", most=2)
