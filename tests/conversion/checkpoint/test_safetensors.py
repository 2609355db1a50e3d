from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggufkit.conversion.checkpoint.safetensors import (
    MAX_HEADER_BYTES,
    MAX_PROBLEMS,
    open_safetensors,
    parse_header,
)
from ggufkit.errors import CheckpointError, TensorTypeError
from tensors_file import safetensors_bytes

PAIR = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.arange(4, dtype=np.float16)}


def opened(tmp_path, data):
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    return open_safetensors(path)


def problems(tmp_path, data):
    with pytest.raises(CheckpointError) as caught:
        opened(tmp_path, data)
    return caught.value.problems


def header(text, data=b""):
    return len(text).to_bytes(8, "little") + text + data


def test_tensors_are_sorted_by_name_and_keep_their_elements(tmp_path):
    _, tensors = opened(tmp_path, safetensors_bytes(PAIR))
    assert [tensor.name for tensor in tensors] == ["a", "b"]
    for tensor in tensors:
        assert np.array_equal(tensor.numpy(), PAIR[tensor.name])


def test_tensors_are_spans_of_the_file_that_the_kernel_copies(tmp_path):
    file, tensors = opened(tmp_path, safetensors_bytes(PAIR))
    for tensor in tensors:
        assert tensor.source.span.file is file
        assert tensor.source.span.nbytes == PAIR[tensor.name].nbytes


def test_reads_scalars_and_empty_tensors(tmp_path):
    arrays = {"empty": np.zeros((0, 3), np.float32), "one": np.array(7, np.int64)}
    _, tensors = opened(tmp_path, safetensors_bytes(arrays))
    assert [(t.shape, t.nbytes) for t in tensors] == [((0, 3), 0), ((), 8)]


def test_metadata_of_the_header_is_not_a_tensor(tmp_path):
    _, tensors = opened(tmp_path, header(b'{"__metadata__": {"format": "pt"}}'))
    assert tensors == []


def test_refuses_a_file_shorter_than_its_length_field(tmp_path):
    assert "length" in problems(tmp_path, b"\1" * 7)[0]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (bytes(600), "zeros"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 271\n", "git lfs pull"),
        (b"<!DOCTYPE html><html>Sign in</html>", "web page"),
        (b"Entry not found, and nothing but this text is here", "text that begins"),
        (b"GGUF" + bytes(40), "GGUF file already"),
    ],
)
def test_names_what_the_file_is_and_how_to_get_the_right_one(tmp_path, data, message):
    (problem,) = problems(tmp_path, data)
    assert message in problem
    assert "not a GGUF" not in problem


def test_refuses_a_file_that_ends_in_its_header(tmp_path):
    assert "ends in the header" in problems(tmp_path, header(b"{}")[:-1])[0]


def test_refuses_a_header_beyond_the_limit(tmp_path):
    data = (MAX_HEADER_BYTES + 1).to_bytes(8, "little") + bytes(64)
    assert "larger than the limit" in problems(tmp_path, data)[0]


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{", b"\xff{}", b"[" * 100_000, b'{"a": 1, "a": 2}', b"7"]
)
def test_refuses_a_header_that_is_not_a_plain_json_object(tmp_path, text):
    assert problems(tmp_path, header(text))


def test_names_a_duplicate_tensor(tmp_path):
    entry = b'{"dtype": "I8", "shape": [0], "data_offsets": [0, 0]}'
    message = problems(tmp_path, header(b'{"x": %s, "x": %s}' % (entry, entry)))
    assert "'x'" in message[0]
    assert "twice" in message[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "F13"}, "dtype"),
        ({"dtype": ["F32"]}, "dtype"),
        ({"shape": [3, 3]}, "needs 36 bytes, not 24"),
        ({"shape": [-2, -3]}, "not a shape"),
        ({"shape": [True, 6]}, "not a shape"),
        ({"shape": [2.0, 3]}, "not a shape"),
        ({"shape": "23"}, "not a shape"),
        ({"shape": [1] * 65}, "not a shape"),
        ({"shape": [2**62] * 60}, "needs"),
        ({"data_offsets": [24, 0]}, "pair of start and end"),
        ({"data_offsets": [0]}, "pair of start and end"),
        ({"extra": 1}, "must have only"),
    ],
)
def test_names_a_contradictory_entry(tmp_path, change, message):
    messages = problems(tmp_path, safetensors_bytes(PAIR, b=change))
    assert any("'b'" in text and message in text for text in messages)


def test_lists_all_problems_at_once(tmp_path):
    wrong = {"a": {"dtype": "F13"}, "b": {"shape": [9]}}
    assert len(problems(tmp_path, safetensors_bytes(PAIR, **wrong))) == 2


def test_truncated_file_is_one_problem_for_any_number_of_missing_tensors(tmp_path):
    many = {f"t{n:03}": np.zeros(4, np.float32) for n in range(200)}
    (problem,) = problems(tmp_path, safetensors_bytes(many)[:-1600])
    assert "100 of 200 tensors are incomplete" in problem


def test_refuses_truncated_data(tmp_path):
    assert "truncated" in problems(tmp_path, safetensors_bytes(PAIR)[:-1])[0]


def test_refuses_bytes_that_belong_to_no_tensor(tmp_path):
    assert problems(tmp_path, safetensors_bytes(PAIR) + b"\0")


def test_names_overlaps_and_gaps():
    def entry(start, stop):
        return {"dtype": "I8", "shape": [stop - start], "data_offsets": [start, stop]}

    text = json.dumps({"x": entry(0, 4), "y": entry(2, 6), "z": entry(7, 9)}).encode()
    _, messages = parse_header(text, 9)
    assert [text for text in messages if "overlap" in text and "'x'" in text and "'y'" in text]
    assert [text for text in messages if "gap" in text and "'z'" in text]


@given(st.data())
def test_mutated_header_gives_entries_or_problems_and_no_other_exception(data):
    text = bytearray(safetensors_bytes(PAIR)[8:-32])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(text) - 1))
        text[place] = data.draw(st.integers(0, 255))
    entries, messages = parse_header(bytes(text), 32)
    assert messages or all(0 <= entry.start <= entry.stop <= 32 for entry in entries)


def test_number_of_reported_problems_is_limited():
    text = json.dumps({str(number): 0 for number in range(3000)}).encode()
    assert len(parse_header(text, 0)[1]) == MAX_PROBLEMS
    overlapping = {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}
    text = json.dumps({str(number): overlapping for number in range(3000)}).encode()
    assert len(parse_header(text, 1)[1]) == MAX_PROBLEMS


def test_message_about_nested_values_is_short():
    nested = []
    for _ in range(7):
        nested = [nested] * 6
    entry = {"dtype": nested, "shape": [1], "data_offsets": [0, 1]}
    (problem,) = parse_header(json.dumps({"a": entry}).encode(), 1)[1][:1]
    assert len(problem) < 300


@pytest.mark.parametrize("kind", ["F4", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F6_E2M3", "F6_E3M2"])
def test_a_type_that_is_not_read_does_not_block_the_others(tmp_path, kind):
    bits = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}.get(kind, 8)
    entries = {
        "a": {"dtype": kind, "shape": [2, 4], "data_offsets": [0, bits]},
        "b": {"dtype": "F32", "shape": [1], "data_offsets": [bits, bits + 4]},
    }
    data = bytes(bits) + np.float32(3).tobytes()
    _, (unread, tensor) = opened(tmp_path, header(json.dumps(entries).encode(), data))
    assert (unread.shape, unread.nbytes, tensor.numpy().tolist()) == ((2, 4), bits, [3])
    with pytest.raises(TensorTypeError):
        unread.numpy()
