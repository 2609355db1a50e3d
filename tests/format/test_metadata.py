"""Metadata is an ordered, immutable mapping that decodes values on demand."""

from __future__ import annotations

import json
from collections.abc import Mapping

import gguf
import numpy as np
import pytest
import yaml
from hypothesis import given

import ggufkit
from ggufkit.errors import MissingKeyError, ValueTypeError
from ggufkit.format import metadata as metadata_module
from ggufkit.format import values as values_module
from ggufkit.format.encoding import CANONICAL, Encoding
from ggufkit.format.header import parse
from ggufkit.format.metadata import Metadata
from spelled import SPELLINGS, Spelling, metadata, spelling_id


def opened(spelling, pairs):
    data = spelling.file(pairs)
    return parse(data, len(data)).metadata


@pytest.mark.parametrize("spelling", SPELLINGS, ids=spelling_id)
@given(pairs=metadata)
def test_writes_any_metadata_as_it_was_read(spelling, pairs):
    read = opened(spelling, pairs)
    for other in SPELLINGS:
        encoding = Encoding(other.byte_order, wide=other.version > 1)
        assert read.encode(encoding) == other.pairs(pairs)


@given(pairs=metadata)
def test_decoding_and_encoding_again_gives_the_same_metadata(pairs):
    for spelling in SPELLINGS:
        read = opened(spelling, pairs)
        mapping = Metadata(list(read.typed_items()))
        assert mapping == read
        assert mapping.encode(CANONICAL) == Spelling().pairs(pairs)
        assert [mapping.type_name(key) for key in mapping] == [read.type_name(key) for key in read]


@given(pairs=metadata)
def test_saving_and_opening_gives_the_same_metadata(pairs, tmp_path_factory):
    mapping = Metadata(list(opened(Spelling(), pairs).typed_items()))
    path = tmp_path_factory.getbasetemp() / "metadata.gguf"
    ggufkit.save(path, {}, mapping)
    with ggufkit.open(path) as model:
        assert model.metadata == mapping
        assert list(model.metadata) == [key for key, _ in pairs]
    assert path.read_bytes() == Spelling().file(pairs)


def test_opening_decodes_no_values(tmp_path, monkeypatch):
    content = ("array", ("string", ["a"] * 1000))
    path = tmp_path / "lazy.gguf"
    path.write_bytes(Spelling().file([("words", content), ("numbers", ("array", ("int8", [1])))]))

    def forbidden(*_, **__):
        pytest.fail("a value was decoded")

    for name in ("decode_scalar", "decode_array"):
        monkeypatch.setattr(metadata_module, name, forbidden)
    for name in ("strings", "string_index", "array_index"):
        monkeypatch.setattr(values_module._native, name, forbidden)
    with ggufkit.open(path) as model:
        assert list(model.metadata) == ["words", "numbers"]
        assert model.metadata.type_name("words") == "array[string]"
        changed = model.metadata.updated({"new": 1}).without("numbers")
        ggufkit.write(model.replace(metadata=changed), tmp_path / "copy.gguf")


def test_metadata_is_a_mapping():
    mapping = Metadata({"b": 1, "a": "text", "c": [1, 2]})
    assert isinstance(mapping, Mapping)
    assert list(mapping) == list(mapping.keys()) == ["b", "a", "c"]
    assert len(mapping) == 3
    assert "a" in mapping
    assert "z" not in mapping
    assert 5 not in mapping
    assert mapping.get("z") is None
    assert mapping["b"] == 1
    assert dict(mapping)["a"] == "text"
    assert [type(value) for value in mapping.values()] == [int, str, np.ndarray]
    assert not Metadata()


def test_pairs_keep_their_order():
    assert list(Metadata([("z", 1), ("a", 2)])) == ["z", "a"]


def test_updated_keeps_the_order_and_appends_new_keys():
    mapping = Metadata({"a": 1, "b": 2, "c": 3})
    changed = mapping.updated({"d": 4, "b": "two"})
    assert list(changed) == ["a", "b", "c", "d"]
    assert changed["b"] == "two"
    assert mapping["b"] == 2
    assert list(mapping) == ["a", "b", "c"]


def test_updating_from_metadata_copies_undecoded_values():
    data = Spelling().file([("words", ("array", ("string", ["a"])))])
    read = parse(data, len(data)).metadata
    for mapping in (Metadata(read), Metadata({"a": 1}).updated(read)):
        assert mapping._entries["words"] is read._entries["words"]


def test_without_refuses_unknown_keys_unless_they_may_be_missing():
    mapping = Metadata({"a": 1, "b": 2})
    assert list(mapping.without("a", "zzz", missing_ok=True)) == ["b"]
    with pytest.raises(MissingKeyError, match="no key 'zzz'"):
        mapping.without("a", "zzz")
    with pytest.raises(TypeError, match="keys must be a string"):
        mapping.without(["a"])
    assert list(mapping) == ["a", "b"]
    assert mapping.without() == mapping


def test_equality_compares_keys_order_types_and_bytes():
    mapping = Metadata({"a": 1, "b": 2})
    assert mapping == Metadata({"a": np.uint32(1), "b": 2})
    assert mapping != Metadata({"b": 2, "a": 1})
    assert mapping != Metadata({"a": np.uint8(1), "b": 2})
    assert mapping != Metadata({"a": 1})
    assert mapping != {"a": 1, "b": 2}
    assert Metadata({"a": np.float32("nan")}) == Metadata({"a": np.float32("nan")})
    assert Metadata({"a": 0.0}) != Metadata({"a": -0.0})


def test_metadata_is_unhashable_and_read_only():
    mapping = Metadata({"a": 1})
    with pytest.raises(TypeError, match="unhashable"):
        hash(mapping)
    with pytest.raises(TypeError, match="item assignment"):
        mapping["a"] = 2
    with pytest.raises(AttributeError):
        mapping.update({"a": 2})


def test_repr_shows_keys_and_types():
    mapping = Metadata({"a": 1, "b": ["x"]})
    assert repr(mapping) == "Metadata(a: uint32, b: array[string])"


def test_error_for_a_missing_key_names_the_nearest():
    mapping = Metadata({"general.architecture": "llama", "llama.block_count": 2})
    with pytest.raises(MissingKeyError, match=r"Did you mean 'general\.architecture'") as caught:
        mapping["general.architekture"]
    assert isinstance(caught.value, KeyError)
    for miss in ("zzz", 5, None, ("a",)):
        with pytest.raises(MissingKeyError, match="the model has no key"):
            mapping[miss]
    with pytest.raises(MissingKeyError):
        mapping.type_name("zzz")


@pytest.mark.parametrize(
    "key", ["", "a\0b", 5, None, b"key", "\ud800", chr(0xDCFF), "k" * 65536, "ä" * 32768], ids=repr
)
def test_refuses_impossible_keys(key):
    with pytest.raises(ValueTypeError):
        Metadata({key: 1})
    with pytest.raises(ValueTypeError):
        Metadata().updated({key: 1})


@pytest.mark.parametrize("key", ["k" * 65535, "Schlüssel", "with space", "."])
def test_accepts_unusual_keys_that_the_format_allows(key, tmp_path):
    ggufkit.save(tmp_path / "key.gguf", {}, {key: 1})
    with ggufkit.open(tmp_path / "key.gguf") as model:
        assert list(model.metadata) == [key]


def test_error_for_a_refused_value_names_its_key():
    with pytest.raises(ValueTypeError, match=r"^general\.name: a value of Python type bytes") as it:
        Metadata({"general.name": b"x"})
    assert "Use str" in it.value.remedy


# One door for what a command needs.


def test_text_and_integer_return_values_of_their_type():
    metadata = Metadata({"a.text": "x", "a.number": np.int16(-3)})
    assert (metadata.text("a.text"), metadata.integer("a.number")) == ("x", -3)


@pytest.mark.parametrize("value", ["x", True, 1.5, ["x"], [1, 2], []])
def test_error_for_a_value_of_another_type_names_key_type_and_remedy(value):
    metadata = Metadata({"a.b": value if value != [] else ggufkit.typed("array[string]", [])})
    type_name = metadata.type_name("a.b")
    with pytest.raises(ValueTypeError) as error:
        metadata.integer("a.b")
    assert f"a.b is of type {type_name}, but it must be a whole number" in str(error.value)
    assert "ggufkit edit" in error.value.remedy
    if not isinstance(value, str):
        with pytest.raises(ValueTypeError, match="must be a string"):
            metadata.text("a.b")


# Numbers of Python.

SCALARS = {
    **{f"u{bits}": np.dtype(f"uint{bits}").type(2**bits - 1) for bits in (8, 16, 32, 64)},
    **{f"i{bits}": np.dtype(f"int{bits}").type(-(2 ** (bits - 1))) for bits in (8, 16, 32, 64)},
    "f32": np.float32(1e-5),
    "f64": np.float64(1e-5),
    "flag": True,
    "text": "text",
}


def test_scalars_are_values_of_python():
    mapping = Metadata(SCALARS)
    assert {type(value) for value in mapping.values()} == {int, float, bool, str}
    assert mapping["u32"] * 2**40 == (2**32 - 1) * 2**40
    assert mapping["f32"] == mapping["f64"] == 1e-5
    assert [type(mapping.typed(key)) for key in mapping] == [
        type(value) for value in SCALARS.values()
    ]


def test_dict_goes_through_json_and_yaml():
    lists = {"scores": np.array([0.1, 2], np.float32), "deep": [[1], ["a"]], "none": np.zeros(0)}
    mapping = Metadata(SCALARS | lists)
    document = mapping.to_dict()
    assert json.loads(json.dumps(document)) == document
    assert yaml.safe_load(yaml.safe_dump(document)) == document
    assert document["scores"] == [0.1, 2.0]
    assert document["deep"] == [[1], ["a"]]


@given(pairs=metadata)
def test_unchanged_values_are_written_back_in_their_types(pairs):
    read = opened(Spelling(), pairs)
    changed = read.updated(dict(read.items()))
    assert [changed.type_name(key) for key in changed] == [read.type_name(key) for key in read]
    if all(value == value for value in read.values() if isinstance(value, float)):  # noqa: PLR0124
        assert changed == read


def test_plain_value_keeps_the_type_of_its_key_if_it_fits():
    mapping = Metadata(SCALARS).updated({"u8": 7, "i64": 7, "f32": 2, "f64": 0.1, "u16": 70_000})
    kinds = [mapping.type_name(key) for key in ("u8", "i64", "f32", "f64", "u16")]
    assert kinds == ["uint8", "int64", "float32", "float64", "uint32"]
    assert mapping["f64"] == 0.1
    assert mapping.updated({"u8": "text"}).type_name("u8") == "string"
    assert mapping.updated({"u8": np.int8(1)}).type_name("u8") == "int8"
    arrays = Metadata({"bytes": np.zeros(2, np.uint8)}).updated({"bytes": [1, 2, 3]})
    assert arrays.type_name("bytes") == "array[uint8]"


GETTERS = ("text", "integer", "number", "boolean", "texts", "numbers")


def test_typed_getters_return_values_of_their_type():
    mapping = Metadata(SCALARS | {"words": ["a"], "numbers": [1, 2]})
    assert (mapping.integer("u8"), mapping.number("u8"), mapping.number("f64")) == (255, 255, 1e-5)
    assert (mapping.text("text"), mapping.boolean("flag")) == ("text", True)
    assert (mapping.texts("words"), mapping.numbers("numbers").tolist()) == (["a"], [1, 2])


@pytest.mark.parametrize("getter", GETTERS)
@pytest.mark.parametrize("default", [None, "", 3, []])
def test_typed_getters_return_a_default_for_a_missing_key(getter, default):
    assert getattr(Metadata(), getter)("no", default) is default


@pytest.mark.parametrize("getter", GETTERS)
def test_typed_getters_without_a_default_refuse_a_missing_key(getter):
    with pytest.raises(MissingKeyError, match="no"):
        getattr(Metadata(), getter)("no")


@pytest.mark.parametrize("getter", GETTERS)
def test_typed_getters_refuse_values_of_another_type(getter):
    mapping = Metadata({"deep": [[1]]})
    with pytest.raises(ValueTypeError, match=r"deep is of type array\[array\], but it must be"):
        getattr(mapping, getter)("deep")


def test_whole_number_getter_refuses_truth_and_fractions():
    for key in ("flag", "f32"):
        with pytest.raises(ValueTypeError, match="but it must be a whole number"):
            Metadata(SCALARS).integer(key)


def test_plain_values_of_known_keys_have_the_types_that_llama_cpp_reads():
    plain = {
        "tokenizer.ggml.token_type": [1, 2],
        "tokenizer.ggml.scores": [0, -1],
        "tokenizer.ggml.bos_token_id": 1,
        "x.count": [1, 2],
    }
    metadata = ggufkit.model({}, plain).metadata
    assert [metadata.type_name(key) for key in plain] == [
        "array[int32]", "array[float32]", "uint32", "array[uint32]",
    ]  # fmt: skip


def test_union_keeps_the_types_of_other_keys():
    metadata = ggufkit.model({}, {"a": np.uint8(1)}).metadata | {"b": "x"}
    assert [metadata.type_name(key) for key in metadata] == ["uint8", "string"]


def test_dict_comes_back_with_the_types_that_gguf_py_writes(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_block_count(2)
    writer.add_head_count([2, 4])
    writer.add_tags(["a"])
    writer.add_token_list(["a", "b"])
    writer.add_token_types([1, 2])
    writer.add_token_scores([0.0, -1.0])
    writer.add_bool("x.flag", True)
    writer.add_array("x.sizes", [1, -2])
    for step in ("header_to_file", "kv_data_to_file", "tensors_to_file"):
        getattr(writer, f"write_{step}")()
    writer.close()
    with ggufkit.open(tmp_path / "m.gguf") as model:
        assert Metadata.from_dict(model.metadata.to_dict()) == model.metadata


@given(pairs=metadata)
def test_dict_comes_back_exactly_with_names_of_types(pairs):
    before = opened(Spelling(3, "little"), pairs)
    types = {key: before.type_name(key) for key in before}
    try:
        after = Metadata.from_dict(before.to_dict(), types)
    except ValueTypeError:  # NaN, and arrays of arrays, do not survive JSON
        return
    assert [after.type_name(key) for key in after] == [*types.values()]


def test_list_of_nothing_is_an_array_of_strings():
    assert Metadata.from_dict({"x.tags": []}).type_name("x.tags") == "array[string]"
