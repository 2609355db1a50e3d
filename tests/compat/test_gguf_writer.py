"""GGUFWriter writes the bytes that gguf-py's class writes, and raises its errors."""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggufkit.compat import gguf as ours

WRITERS = (ours.GGUFWriter, gguf.GGUFWriter)
BIG, LITTLE = gguf.GGUFEndian.BIG, gguf.GGUFEndian.LITTLE
# Values for parameters of `add_*` methods, by name or by what they are annotated with.
ARGUMENTS = {
    "bool": True,
    "float": 0.5,
    "int": 3,
    "str": "text",
    "Sequence[bool]": [True, False],
    "Sequence[float]": [0.5, 1e-5],
    "Sequence[int]": [1, 2],
    "Sequence[str]": ["a", "b"],
    "PoolingType": gguf.PoolingType.MEAN,
    "RopeScalingType": gguf.RopeScalingType.YARN,
    "ExpertGatingFuncType": gguf.ExpertGatingFuncType.SOFTMAX,
    "Sequence[Mapping[str, str]]": [{"name": "default", "template": "x"}],
}
GENERAL = {"add_key_value", "add_tensor", "add_tensor_info", "add_shard_kv_data"}


def written(
    folder: Path, fill: Callable[[gguf.GGUFWriter], None], **options: object
) -> list[tuple[list[tuple[str, bytes]], str]]:
    """Return names and bytes of the files of both writers, and the error if there was one."""
    outputs = []
    for writer in WRITERS:
        target = folder / writer.__module__
        target.mkdir()
        error = ""
        with contextlib.closing(writer(target / "model.gguf", "llama", **options)) as target_writer:
            try:
                fill(target_writer)
                target_writer.write_header_to_file()
                target_writer.write_kv_data_to_file()
                target_writer.write_tensors_to_file()
            except Exception as raised:  # noqa: BLE001 (any error is the answer)
                error = repr(raised)
        files = [(path.name, path.read_bytes()) for path in sorted(target.iterdir())]
        outputs.append((files, error))
    return outputs


def assert_same(folder: Path, fill: Callable[[gguf.GGUFWriter], None], **options: object) -> None:
    mine, theirs = written(folder, fill, **options)
    assert mine == theirs
    assert mine[0]
    assert not mine[1]


def test_every_public_method_is_there():
    names = {name for name in dir(gguf.GGUFWriter) if not name.startswith("_")}
    assert names <= set(dir(ours.GGUFWriter))
    assert len([name for name in names if name.startswith("add_")]) > 150


@pytest.mark.parametrize("endianess", [LITTLE, BIG])
def test_all_keys_are_written_the_same(tmp_path, endianess):
    names = [name for name in dir(gguf.GGUFWriter) if name.startswith("add_")]

    def fill(writer: gguf.GGUFWriter) -> None:
        for name in sorted(set(names) - GENERAL):
            method = getattr(writer, name)
            method(
                *(
                    _argument(name, parameter)
                    for parameter in inspect.signature(method).parameters.values()
                )
            )

    assert_same(tmp_path, fill, endianess=endianess)


def _argument(method: str, parameter: inspect.Parameter) -> object:
    if parameter.name == "key":
        return f"key.{method}"
    kinds = str(parameter.annotation).split(" | ")
    if method == "add_array":
        return [1, 2]
    if method == "add_custom_alignment":
        return 64
    if parameter.name in {"scores", "types", "toktypes"}:
        return [1, 2]
    return next((ARGUMENTS[kind] for kind in kinds if kind in ARGUMENTS), ["a", "b"])


ITEMS = st.one_of(
    st.integers(-(2**33), 2**33),
    st.floats(),
    st.booleans(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.none(),
    st.lists(st.integers(0, 3), max_size=2),
)
ALIKE = st.one_of(
    *(
        st.lists(inner, max_size=5)
        for inner in (st.integers(-9, 9), st.floats(width=32), st.booleans())
    ),
    *(st.lists(inner, max_size=5) for inner in (st.text(max_size=4), st.binary(max_size=4))),
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=3), max_size=3),
)
ODD = st.one_of(
    st.binary(max_size=4),
    st.text(max_size=4),
    st.just(range(3)),
    st.just((1, 2)),
    st.just(np.arange(3)),
)


@given(
    value=ALIKE | ODD | st.lists(ITEMS, max_size=4),
    sub_type=st.none() | st.sampled_from(gguf.GGUFValueType),
    endianess=st.sampled_from([LITTLE, BIG]),
)
def test_arrays_of_anything_are_packed_the_same(value, sub_type, endianess):
    results = []
    for writer in WRITERS:
        packer = writer(None, "llama", endianess=endianess)
        arguments = (value, gguf.GGUFValueType.ARRAY)
        try:
            results.append(
                [
                    packer._pack_val(*arguments, add_vtype=True, sub_type=sub_type),
                    packer._pack_val(*arguments, False, sub_type),
                ]
            )
        except Exception as error:  # noqa: BLE001 (any error is the answer)
            results.append(type(error))
    assert results[0] == results[1]


def test_numbers_in_a_list_are_int32_and_too_large_ones_raise(tmp_path):
    def fill(writer: gguf.GGUFWriter) -> None:
        writer.add_array("ok", [1, 2])
        writer.add_array("large", [1, 2**31])

    (_, mine), (_, theirs) = written(tmp_path, fill)
    assert mine == theirs
    assert "'i' format requires" in mine


def test_empty_arrays_and_texts_are_left_out(tmp_path):
    def fill(writer: gguf.GGUFWriter) -> None:
        writer.add_array("empty", [])
        writer.add_string("none", "")
        writer.add_array("tokens", ["a"])

    assert_same(tmp_path, fill)
    reader = ours.GGUFReader(tmp_path / "gguf.gguf_writer" / "model.gguf")
    assert list(reader.fields)[3:] == ["general.architecture", "tokens"]


def test_repeated_keys_take_the_last_value(tmp_path):
    def fill(writer: gguf.GGUFWriter) -> None:
        writer.add_uint32("twice", 1)
        writer.add_string("twice", "second")

    assert_same(tmp_path, fill)


def test_repeated_tensors_raise(tmp_path):
    def fill(writer: gguf.GGUFWriter) -> None:
        writer.add_tensor("twice", np.zeros(3, np.float32))
        writer.add_tensor("twice", np.zeros(3, np.float32))

    (_, mine), (_, theirs) = written(tmp_path, fill)
    assert mine == theirs == """ValueError("Duplicated tensor name 'twice'")"""


def _tensors(writer: gguf.GGUFWriter) -> None:
    rng = np.random.default_rng(0)
    floats = rng.normal(size=(4, 64)).astype(np.float32)
    kind = gguf.GGMLQuantizationType
    writer.add_tensor("plain", floats)
    writer.add_tensor("half", floats.astype(np.float16))
    writer.add_tensor("whole", np.arange(7, dtype=np.int64))
    writer.add_tensor("quantized", ours.quantize(floats, kind.Q8_0), raw_dtype=kind.Q8_0)
    writer.add_tensor("shaped", floats, raw_shape=(2, 128))
    writer.add_tensor("bf16", ours.quantize(floats, kind.BF16), raw_dtype=kind.BF16)


OPTIONS = ("endianess", "use_temp_file", "split_max_tensors", "split_max_size", "small_first_shard")


@pytest.mark.parametrize(
    "values",
    [
        *itertools.product([LITTLE, BIG], [False, True], [0], [0], [False]),
        *itertools.product([LITTLE, BIG], [False], [0, 2], [0, 1500], [False, True]),
    ],
    ids=str,
)
def test_files_with_all_options_are_the_same(tmp_path, values):
    assert_same(tmp_path, _tensors, **dict(zip(OPTIONS, values, strict=True)))


def test_dry_run_prints_the_same_names_and_ends(tmp_path, capsys):
    printed = []
    for writer in WRITERS:
        dry = writer(tmp_path / "m.gguf", "llama", split_max_tensors=1, dry_run=True)
        _tensors(dry)
        with pytest.raises(SystemExit):
            dry.write_header_to_file()
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert printed[0].count("m-0000") == 6
    assert not list(tmp_path.iterdir())


def test_lazy_tensors_are_computed_one_by_one_while_they_are_written(tmp_path):
    events = []

    def fill(writer: gguf.GGUFWriter) -> None:
        for name in ("a", "b"):
            array = np.full((2, 32), len(name), np.float32)
            meta = gguf.LazyNumpyTensor.eager_to_meta(array)
            make = lambda data, name=name: (events.append(name), data)[1]  # noqa: E731
            lazy = gguf.LazyNumpyTensor(meta=meta, args=(array,), func=make)
            writer.add_tensor(
                name,
                ours.quantize(lazy, gguf.GGMLQuantizationType.Q8_0),
                raw_dtype=gguf.GGMLQuantizationType.Q8_0,
            )
        events.append("added")

    assert_same(tmp_path, fill)
    assert events == ["added", "a", "b"] * 2


def test_states_are_checked_as_in_gguf_py(tmp_path):
    for writer in WRITERS:
        fresh = writer(tmp_path / "m.gguf", "llama")
        with pytest.raises(ValueError, match="Expected output file to contain the header"):
            fresh.write_kv_data_to_file()


def test_tensor_data_can_be_written_one_by_one(tmp_path):
    contents = []
    for writer in WRITERS:
        path = tmp_path / "m.gguf"
        stream = writer(path, "llama", endianess=BIG)
        arrays = {"a": np.arange(5, dtype=np.float32), "b": np.arange(6, dtype=np.int16)}
        for name, array in arrays.items():
            stream.add_tensor_info(name, array.shape, array.dtype, array.nbytes)
        stream.write_header_to_file()
        stream.write_kv_data_to_file()
        stream.write_ti_data_to_file()
        for array in arrays.values():
            stream.write_tensor_data(array)
        stream.close()
        contents.append(path.read_bytes())
    assert contents[0] == contents[1]
    assert ours.GGUFReader(path).tensors[1].data.tolist() == list(range(6))


def test_parameters_are_counted_the_same():
    for writer in WRITERS:
        counter = writer(None, "llama")
        _tensors(counter)
        assert counter.get_total_parameter_count() == (4 * 64 * 5 + 7, 4 * 64 * 5 + 7, 0, 0)
