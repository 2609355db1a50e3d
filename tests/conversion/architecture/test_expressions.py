from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggufkit.conversion.architecture.expressions import evaluate, names, parse
from ggufkit.errors import CheckpointError, GGUFError

FIELDS = {"a": 6, "b": 4, "zero": 0, "null": None, "inner": {"x": 2}, "text": "abc", "yes": True,
          "many": [5, 7], "blocks": [{"size": 3, "x": {"y": 1}}, {"size": None}]}  # fmt: skip


def value(text):
    return evaluate(text, FIELDS.get, {"double": lambda n: 2 * n})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", 6),
        ("a // b + 1", 2),
        ("a / b", 1.5),
        ("-a % 4", 2),
        ("b ** 0.5", 2.0),
        ("(a + b) * 2", 20),
        ("[a, b * 2]", [6, 8]),
        ("inner.x", 2),
        ("double(a)", 12),
        ("'none'", "none"),
        ("absent or a", 6),
        ("zero or a", 0),
        ("null or absent or b", 4),
        ("many[1]", 7),
        ("many[a // 7] + 1", 6),
        ("many[2] or a", 6),
        ("[each.size // 2 or b for each in blocks]", [1, 4]),
        ("[each.x.y for each in blocks]", [1, None]),
        ("[many[i] - i for each in blocks]", [5, 6]),
    ],
)
def test_evaluates_an_expression(text, expected):
    assert value(text) == expected


@pytest.mark.parametrize(
    "text", ["absent", "null", "absent + 1", "a * null", "double(absent)", "[a, absent]",
             "inner.y", "a.x", "absent.x.y", "-absent", "many[2]", "many[0 - 1]", "absent[0]",
             "many[absent]", "[x for x in absent]"]
)  # fmt: skip
def test_absent_field_makes_the_whole_expression_absent(text):
    assert value(text) is None


@pytest.mark.parametrize(
    "text", ["text * 2", "a + text", "yes + 1", "a // zero", "10 ** 30 * 2", "many[text]",
             "text[0]", "[x for x in text]"]
)  # fmt: skip
def test_reports_arithmetic_and_items_of_values_that_have_none(text):
    with pytest.raises(CheckpointError, match="cannot be computed"):
        value(text)


def test_refuses_huge_powers_before_computing_them():
    with pytest.raises(CheckpointError):
        value("(9 ** 9) ** (9 ** 9)")


def test_unknown_function_error_lists_the_known_ones():
    with pytest.raises(CheckpointError, match=r"unknown function 'quadruple'.*double"):
        value("quadruple(a)")


@pytest.mark.parametrize(
    "text",
    ["", "a b", "lambda: 1", "[x for x in a if x]", "[x for x in a for y in b]", "a[0:1]",
     "[x for x, y in a]", "a if b else c", "a == b", "f'{a}'", "{}",
     "not a", "a and b", "(a, b)", "await a", "a.b := 1"],
)  # fmt: skip
def test_refuses_syntax_outside_the_language(text):
    with pytest.raises(ValueError, match=r"expression|list"):
        parse(text)


def test_names_of_an_expression_are_its_fields_and_not_its_functions():
    assert names("double(a) + inner.x or b") == {"a", "inner", "b"}


@given(st.text(alphabet="ab01()+-*/.,[]' or", max_size=20))
def test_any_text_gives_a_value_or_a_typed_error(text):
    with contextlib.suppress(GGUFError, ValueError):
        value(text)
