"""Values of every type are read back unchanged, in every version and byte order."""

from __future__ import annotations

import mmap
import struct

import numpy as np
import pytest
from hypothesis import given

from ggufkit.errors import ClosedError, ValueTypeError
from ggufkit.format.encoding import CANONICAL, Encoding
from ggufkit.format.header import parse
from ggufkit.format.types import ValueType
from ggufkit.format.values import (
    MAX_ARRAY_DEPTH,
    Arrays,
    Strings,
    element_type,
    encode,
    type_name,
    value_type,
)
from ggufkit.system.mapped_file import MappedBytes, view
from spelled import FORMATS, NUMBERS, SPELLINGS, Spelling, spelling_id, values

DTYPES = {kind.name.lower(): kind.dtype for kind in ValueType}
EXTREMES = {
    "uint8": [0, 255],
    "int8": [-128, 127],
    "uint16": [0, 2**16 - 1],
    "int16": [-(2**15), 2**15 - 1],
    "uint32": [0, 2**32 - 1],
    "int32": [-(2**31), 2**31 - 1],
    "uint64": [0, 2**64 - 1],
    "int64": [-(2**63), 2**63 - 1],
    "bool": [False, True],
    "float32": [0.0, -0.0, 1.5, float("inf"), -float("inf"), 2.0**-149],
    "float64": [0.0, -0.0, 0.1, float("inf"), -float("inf"), 5e-324],
}
# Quiet and signalling NaNs, of either sign, with a payload: little-endian bits.
NANS = {
    "float32": ["0100c07f", "efbe80ff", "0100807f", "ffffffff"],
    "float64": ["010000000000f87f", "010000000000f07f", "efbeaddeefbefdff"],
}

each_spelling = pytest.mark.parametrize("spelling", SPELLINGS, ids=spelling_id)


def read(spelling, typed):
    """Return one value of a file as the package reads it."""
    data = spelling.file([("k", typed)])
    header = parse(data, len(data))
    assert not [finding for finding in header.findings if finding.severity == "error"]
    return header.metadata.typed("k")


def layout_of(spelling):
    return Encoding(spelling.byte_order, wide=spelling.version > 1)


def nested(depth, innermost=("uint8", [1, 2])):
    """Return the content of `depth` nested arrays."""
    content = innermost
    for _ in range(depth - 1):
        content = ("array", [content])
    return content


# Scalars.


@each_spelling
@pytest.mark.parametrize("kind", EXTREMES)
def test_extreme_numbers_keep_their_type(spelling, kind):
    for number in EXTREMES[kind]:
        value = read(spelling, (kind, number))
        assert value == number
        assert type_name(value) == kind
        assert encode(value, layout_of(spelling)) == spelling.value((kind, number))


@each_spelling
@pytest.mark.parametrize(
    ("kind", "bits"), [(k, b) for k, all_bits in NANS.items() for b in all_bits]
)
def test_nan_keeps_its_payload(spelling, kind, bits):
    typed = (kind, bytes.fromhex(bits))
    value = read(spelling, typed)
    assert np.isnan(value)
    assert encode(value, layout_of(spelling)) == spelling.value(typed)
    assert encode(value, CANONICAL) == Spelling().value(typed)


@each_spelling
def test_negative_zero_keeps_its_sign(spelling):
    assert np.signbit(read(spelling, ("float32", -0.0)))
    assert np.signbit(read(spelling, ("array", ("float64", [-0.0])))[0])


@each_spelling
@pytest.mark.parametrize(
    "text", ["", "a", "Ärger", "日本語", "\N{GRINNING FACE}", "a\0b", "\x7f\n"]
)
def test_text_is_read_back(spelling, text):
    value = read(spelling, ("string", text))
    assert value == text
    assert type(value) is str


@pytest.mark.parametrize(
    "raw", [b"\xff", b"a\x80b", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80"]
)
def test_keeps_invalid_utf8_byte_for_byte(raw):
    for spelling in SPELLINGS:
        text = read(spelling, ("string", raw))
        assert text.encode("utf-8", "surrogateescape") == raw
        assert encode(text, layout_of(spelling)) == spelling.value(("string", raw))
        strings = read(spelling, ("array", ("string", [b"ok", raw])))
        assert strings.raw(1) == raw
        assert strings[1] == text == strings.tolist()[1]
        assert encode(strings, CANONICAL) == Spelling().value(("array", ("string", [b"ok", raw])))


def test_scalars_are_numpy_scalars_bool_and_str():
    assert read(Spelling(), ("bool", True)) is True
    assert read(Spelling(), ("bool", False)) is False
    for kind in set(NUMBERS) - {"bool"}:
        value = read(Spelling(), (kind, 1))
        assert isinstance(value, np.generic)
        assert value.dtype == np.dtype(DTYPES[kind])


# Arrays.


@each_spelling
@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_are_read_only_views_of_the_file(spelling, kind):
    data = spelling.file([("k", ("array", (kind, EXTREMES[kind])))])
    array = parse(data, len(data)).metadata["k"]
    assert np.shares_memory(array, np.frombuffer(data, np.uint8))
    assert not array.flags.writeable
    assert array.dtype.newbyteorder("=") == np.dtype(DTYPES[kind])
    assert array.tolist() == EXTREMES[kind]


@each_spelling
@pytest.mark.parametrize("kind", [*NUMBERS, "string", "array"])
def test_empty_array_keeps_its_element_type(spelling, kind):
    value = read(spelling, ("array", (kind, [])))
    assert len(value) == 0
    assert value.tolist() == []
    assert type_name(value) == f"array[{kind}]"
    assert value_type(value) is ValueType.ARRAY
    assert encode(value, layout_of(spelling)) == spelling.value(("array", (kind, [])))


@each_spelling
@given(typed=values)
def test_writes_any_value_as_it_was_read(spelling, typed):
    value = read(spelling, typed)
    for other in SPELLINGS:
        assert encode(value, layout_of(other)) == other.value(typed)


@given(typed=values)
def test_values_from_different_files_are_equal(typed):
    first, *others = (read(spelling, typed) for spelling in SPELLINGS)
    for other in others:
        assert encode(first, CANONICAL) == encode(other, CANONICAL)
        if isinstance(first, Strings | Arrays):
            assert first == other


@pytest.mark.parametrize("depth", [2, 3, MAX_ARRAY_DEPTH])
def test_arrays_nest_up_to_the_limit(depth):
    for spelling in SPELLINGS:
        value = read(spelling, ("array", nested(depth)))
        for _ in range(depth - 1):
            assert isinstance(value, Arrays)
            (value,) = value
        assert value.tolist() == [1, 2]


def test_constructed_arrays_nest_up_to_the_limit():
    value = np.array([1, 2], np.uint8)
    for _ in range(MAX_ARRAY_DEPTH - 1):
        value = Arrays([value])
    assert encode(value, CANONICAL) == Spelling().value(("array", nested(MAX_ARRAY_DEPTH)))
    with pytest.raises(ValueTypeError, match="deeper than 32"):
        Arrays([value])


def test_arrays_read_from_a_file_count_towards_the_limit():
    deep = read(Spelling(), ("array", nested(MAX_ARRAY_DEPTH)))
    with pytest.raises(ValueTypeError, match="deeper than 32"):
        Arrays([deep])


def test_strings_are_a_sequence():
    words = ["", "a", "bb", "日本", "\N{GRINNING FACE}", "f"]
    for spelling in SPELLINGS:
        strings = read(spelling, ("array", ("string", words)))
        assert len(strings) == 6
        assert list(strings) == strings.tolist() == words
        for index in range(-6, 6):
            assert strings[index] == words[index]
            assert strings[np.int64(index)] == words[index]
        for cut in [slice(2), slice(2, 4), slice(-3, None), slice(None, None, -2), slice(5, 1)]:
            assert strings[cut] == words[cut]
        assert "bb" in strings
        assert "c" not in strings
        assert strings.index("f") == 5
        assert list(reversed(strings)) == words[::-1]


def test_arrays_are_a_sequence():
    content = ("array", [("uint8", [1, 2]), ("string", ["a"]), ("array", [("bool", [True])])])
    for spelling in SPELLINGS:
        arrays = read(spelling, ("array", content))
        assert len(arrays) == 3
        assert arrays.tolist() == [[1, 2], ["a"], [[True]]]
        assert arrays[-1].tolist() == [[True]]
        assert [inner.tolist() for inner in arrays[::-1]] == arrays.tolist()[::-1]
        assert [element_type(inner).name for inner in arrays] == ["UINT8", "STRING", "ARRAY"]


@pytest.mark.parametrize("index", [3, -4, 10**30])
def test_index_out_of_range_is_an_index_error(index):
    for sequence in (Strings(["a", "b", "c"]), Arrays([np.zeros(1, "u1")] * 3)):
        with pytest.raises(IndexError, match="out of range for 3"):
            sequence[index]


def test_index_that_is_not_an_integer_is_a_type_error():
    for sequence in (Strings(["a"]), Arrays([np.zeros(1, "u1")])):
        with pytest.raises(TypeError):
            sequence[0.0]


def test_decodes_one_string_without_the_others():
    # The second item announces more bytes than there are: whoever walks past it would stumble.
    good = Spelling().string("first")
    data = good + struct.pack("<Q", 1000)
    strings = Strings.over(data, 0, len(data), 2, CANONICAL)
    assert strings[0:1] == ["first"]


def test_equality_is_by_type_and_content():
    assert Strings(["a", "b"]) == Strings(["a", "b"]) == ["a", "b"] == Strings(("a", "b"))
    assert Strings(["a"]) != Strings(["a", "a"])
    assert Strings(["ab"]) != Strings(["a", "b"])
    assert Strings(["a"]) != "a"
    assert Arrays([np.zeros(2, "u1")]) == Arrays([np.zeros(2, "u1")])
    assert Arrays([np.zeros(2, "u1")]) != Arrays([np.zeros(2, "i1")])
    assert Arrays([Strings(["a"])]) != Strings(["a"])


def test_sequences_cannot_be_dictionary_keys():
    for sequence in (Strings(["a"]), Arrays([])):
        with pytest.raises(TypeError, match="unhashable"):
            hash(sequence)


def test_repr_shows_the_first_items_and_the_length():
    assert repr(Strings([])) == "Strings([], length=0)"
    assert repr(Strings("abcde")) == "Strings(['a', 'b', 'c', ...], length=5)"
    assert repr(Arrays([Strings(["x"])])) == "Arrays([Strings(['x'], length=1)], length=1)"


@pytest.mark.parametrize(
    "items", [[1], [b"a"], [None], ["\ud800"], ["ok", "\ude00\ud83d"]], ids=repr
)
def test_strings_refuse_items_that_are_not_text(items):
    with pytest.raises(ValueTypeError):
        Strings(items)


@pytest.mark.parametrize(
    "item",
    [[1], "a", 1, None, np.zeros((2, 2)), np.array(1), np.zeros(1, "f2"), np.zeros(1, "c8")],
    ids=repr,
)
def test_arrays_refuse_items_that_are_not_typed_arrays(item):
    with pytest.raises(ValueTypeError):
        Arrays([item])


@pytest.mark.parametrize("kind", FORMATS)
def test_type_ids_match_the_format(kind):
    assert ValueType[kind.upper()].id == FORMATS[kind][0]


# Closing.


@pytest.fixture
def mapped(tmp_path):
    path = tmp_path / "bytes"
    path.write_bytes(Spelling().string("one") + Spelling().string("two"))
    with path.open("rb") as file:
        return MappedBytes(file.fileno(), 0, access=mmap.ACCESS_READ)


def test_closed_map_cannot_be_read(mapped):
    strings = Strings.over(mapped, 0, len(mapped), 2, CANONICAL)
    arrays = Arrays.over(mapped, 0, len(mapped), 2, CANONICAL)
    assert strings[0] == "one"
    mapped.shut = True
    for use in (
        lambda: strings[1],
        lambda: strings[0:1],
        lambda: strings.raw(0),
        strings.tolist,
        lambda: strings.encoded(CANONICAL),
        lambda: arrays[0],
        view(mapped).__enter__,
    ):
        with pytest.raises(ClosedError, match="closed before"):
            use()
