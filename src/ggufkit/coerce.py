"""Plain Python values to typed ones: by their own dtype, by a named type, or by default."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from ggufkit.errors import ValueTypeError
from ggufkit.types import ValueType
from ggufkit.values import CANONICAL, Array, Arrays, Strings, Value, dtype_type, encode_string

# What a plain int becomes: the first that holds it. Most counts in GGUF are uint32.
_INTEGERS: Final = (ValueType.UINT32, ValueType.INT32, ValueType.UINT64, ValueType.INT64)


def typed(type: str | ValueType, value: object) -> Value:
    """Return `value` as a value of the GGUF `type`, or raise ValueTypeError if it does not fit.

    `type` is a ValueType or its name in any case: "uint8" … "float64", "bool", "string",
    "array[uint64]", "array[string]", "array[array]" (each inner array typed on its own).
    Integers must be in range and floats are rounded to the nearest; nothing else is converted.
    """
    name = type.name if isinstance(type, ValueType) else str(type)
    folded = name.strip().upper()
    if folded.startswith("ARRAY[") and folded.endswith("]"):
        return _typed_elements(_value_type(folded[6:-1]), value)
    kind = _value_type(folded)
    if kind is ValueType.ARRAY:
        return typed_array(value)
    return _typed_scalar(kind, value)


def typed_value(value: object) -> Value:
    """Return `value` with a GGUF type: its own, or the documented default of a plain value.

    NumPy scalars and arrays keep their dtype. Of plain values, `bool` is bool, `str` string,
    `float` float32 (rounded to nearest; too large is an error), and `int` the first of uint32,
    int32, uint64 and int64 that holds it. A list or tuple is an array of the one type that holds
    all its items; an empty one has no type, so `typed("array[string]", [])` must say it.
    """
    if isinstance(value, Strings | Arrays | str | bool):
        return value
    if isinstance(value, np.generic):
        return _kept_scalar(value)
    if isinstance(value, int | float):
        return _typed_scalar(_default_type([value]), value)
    return typed_array(value)


def typed_array(value: object) -> Array:
    """Return `value` as a typed array, as `typed_value` does."""
    if isinstance(value, Strings | Arrays):
        return value
    if isinstance(value, np.ndarray):
        return _kept_array(value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return _typed_list(list(value))
    name = value.__class__.__name__
    raise ValueTypeError(
        f"a value of Python type {name} has no GGUF type",
        remedy="Use str, bool, int, float, a list of these, or NumPy scalars and arrays",
    )


def plain(value: Value) -> Any:  # noqa: ANN401 (as JSON is)
    """Return the value as plain Python: int, float, bool, str, or (nested) lists of these."""
    return value if isinstance(value, str | bool) else value.tolist()


def _value_type(name: str) -> ValueType:
    try:
        return ValueType[name]
    except KeyError:
        known = ", ".join(kind.name.lower() for kind in ValueType)
        raise ValueTypeError(
            f"unknown value type {name.lower()!r}", remedy=f"Use one of {known}, or array[...]"
        ) from None


def _kept_scalar(value: np.generic) -> Value:
    if isinstance(value, np.str_):
        return str(value)
    if isinstance(value, np.bool_):
        return bool(value)
    dtype_type(value.dtype)
    return value


def _kept_array(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | Strings:
    if array.ndim != 1:
        raise ValueTypeError(
            f"an array of {array.ndim} dimensions is no GGUF value",
            remedy="Use one dimension, or `list(array)` for an array of arrays",
        )
    if array.dtype.kind == "U":
        return Strings(array.tolist())
    dtype_type(array.dtype)
    frozen: np.ndarray[Any, Any] = array.copy()
    frozen.flags.writeable = False
    return frozen


def _typed_list(items: list[Any]) -> Array:
    if not items:
        raise ValueTypeError(
            "an empty list has no element type",
            remedy='Say it: typed("array[string]", []), or an empty NumPy array',
        )
    if all(isinstance(item, np.generic) for item in items):
        kinds = {dtype_type(item.dtype) for item in items if not isinstance(item, np.str_)}
        if len(kinds) == 1 and not isinstance(items[0], np.str_):
            return np.array(items, kinds.pop().dtype)
    if all(isinstance(item, str) for item in items):
        return Strings(items)
    if all(_is_array(item) for item in items):
        return Arrays(typed_array(item) for item in items)
    return _elements(_default_type(items), items)


def _is_array(item: object) -> bool:
    return isinstance(item, list | tuple | np.ndarray | Strings | Arrays)


def _default_type(items: list[Any]) -> ValueType:
    kinds = {item.__class__ for item in items}
    if kinds == {bool}:
        return ValueType.BOOL
    if kinds == {float}:
        return ValueType.FLOAT32
    if kinds == {int}:
        low, high = min(items), max(items)
        for kind in _INTEGERS:
            limits = np.iinfo(str(kind.dtype))
            if limits.min <= low and high <= limits.max:
                return kind
        raise ValueTypeError(f"no GGUF integer type holds {low if low < 0 else high}")
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise ValueTypeError(
        f"one GGUF array cannot hold values of {names}",
        remedy="Make all items one type, or say it: typed('array[float32]', items)",
    )


def _typed_elements(kind: ValueType, value: object) -> Value:
    if isinstance(value, np.ndarray | Strings | Arrays):
        items: list[Any] = value.tolist() if not isinstance(value, Arrays) else list(value)
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
        items = list(value)
    else:
        raise ValueTypeError(f"{value!r} is no array", remedy="Give a list")
    if kind is ValueType.ARRAY:
        return Arrays(typed_array(item) for item in items)
    return _elements(kind, items)


def _elements(kind: ValueType, items: list[Any]) -> np.ndarray[Any, Any] | Strings:
    if kind is ValueType.STRING:
        return Strings(str(_typed_scalar(kind, item)) for item in items)
    array = np.array([_typed_scalar(kind, item) for item in items], kind.dtype)
    array.flags.writeable = False
    return array


def _typed_scalar(kind: ValueType, value: object) -> bool | str | np.generic:
    item = value.item() if isinstance(value, np.generic) else value
    if kind is ValueType.STRING and isinstance(item, str):
        encode_string(item, CANONICAL)
        return item
    if kind is ValueType.BOOL and isinstance(item, bool):
        return item
    if kind.dtype and kind is not ValueType.BOOL and not isinstance(item, bool):
        number = _number(np.dtype(kind.dtype), item)
        if number is not None:
            return number
    raise ValueTypeError(
        f"{value!r} does not fit the GGUF type {kind.name.lower()}",
        remedy="Give a value of that type, or name another type",
    )


def _number(dtype: np.dtype[Any], item: object) -> np.generic | None:
    if dtype.kind == "f":
        return _float(dtype, item) if isinstance(item, int | float) else None
    limits = np.iinfo(dtype)
    if isinstance(item, int) and limits.min <= item <= limits.max:
        integer: np.generic = dtype.type(item)
        return integer
    return None


def _float(dtype: np.dtype[Any], item: float) -> np.generic | None:
    try:
        wide = float(item)
    except OverflowError:
        return None
    with np.errstate(over="ignore"):
        number: np.generic = dtype.type(wide)
    if math.isinf(float(number)) and not math.isinf(wide):
        return None
    if item.__class__ is int and int(number) != item:
        return None
    return number
