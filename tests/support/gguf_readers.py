"""Compare what two readers of gguf-py's interface say about one file."""

from __future__ import annotations

from typing import Any

import numpy as np


def assert_same_reader(ours: Any, theirs: Any) -> None:
    assert ours.byte_order == theirs.byte_order
    assert ours.endianess == theirs.endianess
    assert ours.alignment == theirs.alignment
    assert ours.data_offset == theirs.data_offset
    assert list(ours.fields) == list(theirs.fields)
    for key, field in theirs.fields.items():
        assert_same_field(ours.fields[key], field)
        assert_same_field(ours.get_field(key), field)
    assert len(ours.tensors) == len(theirs.tensors)
    for index, tensor in enumerate(theirs.tensors):
        assert_same_tensor(ours.get_tensor(index), tensor)


def assert_same_field(ours: Any, theirs: Any) -> None:
    assert contents(ours) == contents(theirs)  # before the parts are made, and after
    assert tuple(ours)[:2] == tuple(theirs)[:2]
    offset, name, parts, data, types = ours
    assert (offset, name) == (theirs.offset, theirs.name)
    assert len(parts) == len(ours.parts) == len(theirs.parts)
    for mine, other in zip(parts, theirs.parts, strict=True):
        assert_same_array(mine, other)
    assert data == ours.data == ours[3] == theirs.data
    assert types == ours.types == theirs.types
    assert contents(ours) == contents(theirs)


def contents(field: Any) -> list[str]:
    """Return a field's contents: all, one by one, and parts; or the error of each."""
    chosen = [slice(None), slice(1, None, 2), slice(-2, None), *range(-2, 3)]
    return [_tried(lambda which=which: repr(field.contents(which))) for which in chosen]


def _tried(function: Any) -> str:
    try:
        return function()
    except Exception as error:  # noqa: BLE001 (any error is the answer)
        return type(error).__name__


def assert_same_tensor(ours: Any, theirs: Any) -> None:
    assert ours._fields == theirs._fields
    for name in ("name", "tensor_type", "n_elements", "n_bytes", "data_offset"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert_same_array(ours.shape, theirs.shape)
    assert_same_array(ours.data, theirs.data)
    assert type(ours.data) is type(theirs.data)
    assert_same_field(ours.field, theirs.field)


def assert_same_array(ours: np.ndarray, theirs: np.ndarray) -> None:
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    assert ours.tobytes() == theirs.tobytes()
    assert ours.flags.writeable == theirs.flags.writeable
