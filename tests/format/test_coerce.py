"""Plain values get a type by the documented rules; values that do not fit are refused."""

from __future__ import annotations

import array
import datetime as dt
import decimal
import enum
import fractions
import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ggufkit
from ggufkit.errors import GGUFError, ValueTypeError
from ggufkit.format.coerce import plain, typed, typed_value
from ggufkit.format.encoding import CANONICAL
from ggufkit.format.types import ValueType
from ggufkit.format.values import Arrays, Strings, encode, type_name
from spelled import Spelling

INTEGERS = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
NUMBERS = [*INTEGERS, "float32", "float64"]


class SevenNumber(enum.IntEnum):
    SEVEN = 7


class SevenText(str, enum.Enum):
    SEVEN = "seven"


def bits(value):
    return encode(value, CANONICAL)


# Defaults.


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (True, "bool"),
        ("text", "string"),
        ("", "string"),
        (1.5, "float32"),
        (0, "uint32"),
        (2**32 - 1, "uint32"),
        (-1, "int32"),
        (-(2**31), "int32"),
        (2**32, "uint64"),
        (2**64 - 1, "uint64"),
        (-(2**31) - 1, "int64"),
        (-(2**63), "int64"),
        ([1, 2], "array[uint32]"),
        ([1, -2], "array[int32]"),
        ([0, 2**63], "array[uint64]"),
        ([-1, 2**32], "array[int64]"),
        ((1, 2), "array[uint32]"),
        (range(3), "array[uint32]"),
        ([True, False], "array[bool]"),
        ([1.0, 2.0], "array[float32]"),
        (["a", ""], "array[string]"),
        ([[1], ["a"], [[True]]], "array[array]"),
        ([np.uint8(1), np.uint8(2)], "array[uint8]"),
        ([np.float64(1)], "array[float64]"),
        ([np.True_, False], "array[bool]"),
        (SevenNumber.SEVEN, "uint32"),
        (SevenText.SEVEN, "string"),
    ],
    ids=repr,
)
def test_plain_values_have_documented_types(value, name):
    assert type_name(typed_value(value)) == name


def test_plain_values_keep_their_content():
    assert plain(typed_value([[1, -2], ["a"], [[True]]])) == [[1, -2], ["a"], [[True]]]
    assert typed_value(SevenNumber.SEVEN) == 7
    assert typed_value(SevenText.SEVEN) == "seven"
    assert type(typed_value(SevenText.SEVEN)) is type(typed_value(np.str_("x"))) is str
    assert typed_value(np.True_) is True


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("order", "<>")
def test_numpy_keeps_its_dtype_in_any_byte_order(name, order):
    dtype = np.dtype(ValueType[name.upper()].dtype).newbyteorder(order)
    array = np.arange(5).astype(dtype)
    expected = Spelling().value(("array", (name, [0, 1, 2, 3, 4])))
    assert bits(typed_value(array)) == bits(typed(f"array[{name}]", array)) == expected
    assert bits(typed_value(array[::2])) == Spelling().value(("array", (name, [0, 2, 4])))
    assert bits(typed_value(array[3])) == Spelling().value((name, 3))
    assert bits(typed_value(list(array))) == expected


def test_accepts_numpy_text_and_bools():
    assert typed_value(np.array(["a", "bb"])) == Strings(["a", "bb"])
    assert type_name(typed_value(np.array([True]))) == "array[bool]"


def test_typed_values_are_unchanged():
    for value in (Strings(["a"]), Arrays([np.zeros(1, "u1")])):
        assert typed_value(value) is value


@pytest.mark.parametrize("take", [typed_value, lambda mine: typed("array[uint8]", mine)])
def test_arrays_are_copied_when_given(take):
    mine = np.zeros(3, np.uint8)
    value = take(mine)
    mine[0] = 1
    assert value[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        value[0] = 5


@pytest.mark.parametrize("array", [[1, 2], [np.uint8(1)], [True], range(4)], ids=repr)
def test_constructed_arrays_are_read_only(array):
    assert not typed_value(array).flags.writeable


# Refusals.

UNFIT = [
    None,
    b"bytes",
    bytearray(b"bytes"),
    memoryview(b"bytes"),
    {1, 2},
    frozenset({1}),
    {"a": 1},
    {"a": 1}.keys(),
    iter([1]),
    object(),
    int,
    1j,
    dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc),
    decimal.Decimal("1.5"),
    fractions.Fraction(1, 2),
    array.array("H", [1]),
    [],
    (),
    [[]],
    [1, 2.0],
    [True, 1],
    [1, "a"],
    ["a", None],
    [1, [1]],
    [b"a"],
    [np.uint8(1), np.uint16(1)],
    [np.uint32(1), 1],
    [np.uint8(1), np.str_("2")],
    [np.str_("2"), np.uint8(1)],
    [np.float64(1), 1.0],
    [np.float16(1)],
    [np.array(1)],
    2**64,
    -(2**63) - 1,
    [-1, 2**63],
    10**10000,
    [-(10**10000), 1],
    1e39,
    -1e39,
    1e-50,
    [1.0, 1e300],
    np.float16(1),
    np.longdouble(1),
    np.complex64(1),
    np.datetime64("2026-01-01"),
    np.timedelta64(1, "s"),
    np.bytes_(b"a"),
    np.void(b"a"),
    ml_dtypes.bfloat16(1),
    np.array(5),
    np.zeros((2, 2)),
    np.zeros(2, np.float16),
    np.zeros(2, np.complex64),
    np.zeros(2, object),
    np.zeros(2, "S3"),
    np.zeros(2, "M8[s]"),
    np.zeros(2, [("a", "u1")]),
    np.zeros(2, ml_dtypes.bfloat16),
    "\ud800",
    ["a", "\ude00\ud83d"],
    np.array(["\ud800"]),
]


@pytest.mark.parametrize("value", UNFIT, ids=lambda value: f"{type(value).__name__}")
def test_refuses_values_without_a_type(value):
    with pytest.raises(ValueTypeError) as caught:
        typed_value(value)
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, ValueError)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("value", UNFIT, ids=lambda value: f"{type(value).__name__}")
@pytest.mark.parametrize("name", ["uint8", "int64", "bool", "array[int8]", "array[array[uint8]]"])
def test_explicit_type_raises_only_our_errors(value, name):
    try:
        typed = ggufkit.typed(name, value)
    except GGUFError:
        return
    # What came through must be what was meant: exact integers, or nothing at all.
    assert plain(typed) == list(value)


def nest(depth):
    value = [1]
    for _ in range(depth - 1):
        value = [value]
    return value


def test_lists_nest_up_to_the_limit():
    expected = ("uint32", [1])
    for _ in range(31):
        expected = ("array", [expected])
    assert bits(typed_value(nest(32))) == Spelling().value(("array", expected))
    for depth in (33, 100_000):
        with pytest.raises(ValueTypeError, match="deeper than 32"):
            typed_value(nest(depth))


def test_refuses_a_list_that_contains_itself():
    endless = []
    endless.extend([endless, endless])
    for function in (lambda: typed_value(endless), lambda: typed("array[array]", endless)):
        with pytest.raises(ValueTypeError, match="deeper than 32"):
            function()


# Named types.


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_must_be_in_the_range_of_their_type(name):
    limits = np.iinfo(ValueType[name.upper()].dtype)
    for number in (int(limits.min), int(limits.max)):
        value = typed(name, number)
        assert type_name(value) == name
        assert int(value) == number
    for number in (limits.min - 1, limits.max + 1):
        with pytest.raises(ValueTypeError, match="does not fit"):
            typed(name, number)
        with pytest.raises(ValueTypeError, match="does not fit"):
            typed(f"array[{name}]", [0, number])


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("value", [1.0, True, "1", np.float32(1), np.True_, None], ids=repr)
def test_integers_are_made_only_from_integers(name, value):
    with pytest.raises(ValueTypeError, match="does not fit"):
        typed(name, value)


@pytest.mark.parametrize(("name", "digits"), [("float32", 24), ("float64", 53)])
def test_floats_accept_integers_that_they_hold_exactly(name, digits):
    assert typed(name, 2**digits) == 2**digits
    assert typed(f"array[{name}]", [1, 2**digits]).tolist() == [1, 2**digits]
    for number in (2**digits + 1, 10**400, True, "1", np.True_):
        with pytest.raises(ValueTypeError, match="does not fit"):
            typed(name, number)


def test_floats_are_rounded_to_nearest():
    assert typed("float32", 0.1) == np.float32(0.1)
    assert typed("float32", np.float64(1) / 3) == np.float32(1 / 3)
    assert typed("float64", 0.1) == 0.1
    assert typed("float32", 2.0**-149) == 2.0**-149


@pytest.mark.parametrize("number", [float("inf"), -float("inf"), 0.0, -0.0])
def test_infinities_and_zeros_are_unchanged(number):
    value = typed("float32", number)
    assert value == number
    assert np.signbit(value) == np.signbit(number)


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_nan_of_the_same_type_keeps_its_bits(kind):
    raw = bytes.fromhex("0100807f" if kind == "float32" else "010000000000f07f")
    nan = np.frombuffer(raw, ValueType[kind.upper()].dtype)
    for value in (typed(kind, nan[0]), typed_value(nan[0])):
        assert bits(value)[4:] == raw
    for value in (typed(f"array[{kind}]", nan), typed_value(nan), typed_value(list(nan))):
        assert bits(value)[16:] == raw
    assert np.isnan(typed("float32", float("nan")))


@given(st.floats(width=32, allow_nan=False))
def test_every_float32_survives_conversion_to_python(number):
    assert bits(typed_value(number)) == Spelling().value(("float32", number))


@given(st.integers(-(2**63), 2**64 - 1))
def test_every_64_bit_integer_survives_conversion_to_python(number):
    value = typed_value(number)
    assert int(value) == number == plain(value)


def test_rows_of_an_array_keep_their_dtype():
    rows = np.array([[0.1, 0.2], [0.3, 0.4]])
    value = typed("array[array]", rows)
    assert [type_name(row) for row in value] == ["array[float64]"] * 2
    assert value.tolist() == rows.tolist()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("UINT8", 1, ("uint8", 1)),
        (" Bool ", True, ("bool", True)),
        (ValueType.INT16, -1, ("int16", -1)),
        ("string", "a", ("string", "a")),
        ("array[string]", [], ("array", ("string", []))),
        ("array[string]", np.array(["a"]), ("array", ("string", ["a"]))),
        ("array[bool]", (True,), ("array", ("bool", [True]))),
        ("array[uint64]", range(2), ("array", ("uint64", [0, 1]))),
        ("array[array]", [], ("array", ("array", []))),
        ("array[array]", [[1]], ("array", ("array", [("uint32", [1])]))),
        ("array[array[int8]]", [[1], []], ("array", ("array", [("int8", [1]), ("int8", [])]))),
        (
            "array[array[array[bool]]]",
            [[[True]]],
            ("array", ("array", [("array", [("bool", [True])])])),
        ),
        ("array", [1], ("array", ("uint32", [1]))),
        (ValueType.ARRAY, ["a"], ("array", ("string", ["a"]))),
    ],
    ids=repr,
)
def test_notation_names_every_type(name, value, expected):
    assert bits(typed(name, value)) == Spelling().value(expected)


@pytest.mark.parametrize(
    "name",
    ["", "int", "float", "uint128", "array[", "array[]", "array[uint8", "array[uint8]]", "uint8]"],
)
def test_refuses_unknown_notation(name):
    with pytest.raises(ValueTypeError, match="unknown value type"):
        typed(name, [])


def test_notation_nests_up_to_the_limit():
    value = typed("array[" * 32 + "int8" + "]" * 32, [])
    assert type_name(value) == "array[array]"
    for depth in (33, 1_000_000):
        with pytest.raises(ValueTypeError):
            typed("array[" * depth + "int8" + "]" * depth, [])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("array[uint8]", 1),
        ("array[string]", "abc"),
        ("array[string]", ["a", b"b"]),
        ("array[string]", [1]),
        ("array[uint8]", np.array(1)),
        ("array[uint8]", np.zeros((1, 1), "u1")),
        ("array[uint8]", {1}),
        ("array[uint8]", {1: 2}),
        ("array[uint8]", iter([1])),
        ("array[array]", [1]),
        ("array[array[uint8]]", [1]),
        ("string", b"a"),
        ("string", 1),
        ("bool", 1),
        ("bool", "true"),
    ],
)
def test_refuses_a_value_that_the_explicit_type_cannot_hold(name, value):
    with pytest.raises(ValueTypeError):
        typed(name, value)


@given(
    st.recursive(
        st.one_of(st.booleans(), st.integers(), st.floats(), st.text(), st.none(), st.binary()),
        lambda inner: st.lists(inner, max_size=4),
    )
)
def test_any_plain_value_raises_only_our_errors(value):
    try:
        typed = typed_value(value)
    except ValueTypeError:
        return
    again = typed_value(plain(typed) if not isinstance(typed, np.floating) else typed)
    assert bits(again) == bits(typed)


def test_every_pair_of_types_in_a_list_has_one_type_or_is_refused():
    samples = [True, 1, 1.0, "a", np.uint8(1), np.float32(1), np.str_("a"), [1], None, b"a"]
    for first, second in itertools.permutations(samples, 2):
        try:
            typed = typed_value([first, second])
        except ValueTypeError:
            continue
        names = {type_name(typed_value(first)), type_name(typed_value(second))}
        assert {type_name(typed)} == {f"array[{name}]" for name in names}
