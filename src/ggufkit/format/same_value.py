"""Convert a value to the type that llama.cpp reads, if that is exact."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ggufkit.format.values import TypedValue

_DTYPES: Final = {
    "uint16": np.uint16,
    "uint32": np.uint32,
    "int32": np.int32,
    "float32": np.float32,
    "bool": np.bool_,
}


def same_value(value: TypedValue, type_name: str) -> object | None:
    """Return the same number or numbers in another type; None if that type cannot hold them."""
    item = type_name.removeprefix("array[").removesuffix("]")
    is_array = isinstance(value, np.ndarray)
    if item not in _DTYPES or is_array != (item != type_name):
        return None
    if not isinstance(value, np.ndarray | np.generic | bool):
        return None
    before = np.asarray(value)
    with np.errstate(all="ignore"):
        after: np.ndarray[Any, Any] = before.astype(_DTYPES[item])
        is_same = (after == before) & (after.astype(before.dtype) == before)
    return after[()] if is_same.all() else None
