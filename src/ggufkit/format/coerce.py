"""Turn plain Python values into typed ones: by their dtype, by a named type, or by default."""

from __future__ import annotations

import math
import re
from typing import Any, Final

import numpy as np

from ggufkit.errors import ValueTypeError, brief
from ggufkit.format import values
from ggufkit.format.encoding import CANONICAL, encode_string
from ggufkit.format.types import ValueType
from ggufkit.format.values import TypedValue

# A plain int becomes the first of these that holds it. Most counts in GGUF are uint32.
_INTEGERS: Final = (ValueType.UINT32, ValueType.INT32, ValueType.UINT64, ValueType.INT64)
_NOTATION: Final = re.compile(r"(?P<outer>(?:ARRAY\[)*)(?P<inner>[A-Z0-9]+)(?P<end>\]*)")
_SEQUENCES: Final = (list, tuple, range)  # ordered, sized, and without a type of their own
_ARRAYS: Final = (np.ndarray, values.Strings, values.Arrays)


def typed(type: str | ValueType, value: object) -> TypedValue:
    """Return `value` as a value of the GGUF `type`, or raise ValueTypeError if it does not fit.

    `type` is a ValueType or its name in any case: "uint8" … "float64", "bool", "string",
    "array[uint64]", "array[string]", "array[array[int8]]", or "array" for elements typed by
    default. Integers must be in range. A float type takes floats, rounded to nearest, but not to
    infinity nor from non-zero to zero, and integers that it holds exactly. Nothing else is
    converted.
    """
    depth, kind = _notation(type.name if isinstance(type, ValueType) else str(type))
    if depth:
        return _array_of(kind, depth, value)
    return typed_array(value) if kind is ValueType.ARRAY else _typed_scalar(kind, value)


def typed_value(value: object) -> TypedValue:
    """Return `value` with a GGUF type: its own, or the documented default of a plain value.

    NumPy scalars and arrays keep their dtype. Of plain values, `bool` is bool, `str` string,
    `float` float32 (rounded to nearest; one that is too large or too small for it is an error),
    and `int` the first of uint32, int32, uint64 and int64 that holds it. A list, tuple or range
    is an array of the one type that holds all its items; an empty one has no type, so
    `typed("array[string]", [])` must say it. Raises ValueTypeError for anything else.
    """
    if isinstance(value, np.generic):
        if isinstance(value, np.str_):
            return _typed_scalar(ValueType.STRING, value)
        if isinstance(value, np.bool_):
            return bool(value)
        values.dtype_type(value.dtype)
        return value
    if isinstance(value, bool | int | float | str):
        return _typed_scalar(_default_type([value]), value)
    return typed_array(value)


def typed_array(value: object) -> values.Array:
    """Return `value` as a typed array, as `typed_value` does."""
    return _array(value, 1)


def plain(value: TypedValue | values.Value) -> Any:  # noqa: ANN401 (as JSON is)
    """Return the value as plain Python: int, float, bool, str, or (nested) lists of these."""
    if isinstance(value, np.generic):
        return values.python_value(value)
    return value.tolist() if isinstance(value, _ARRAYS) else value


def plain_exactly(value: TypedValue | values.Value) -> Any:  # noqa: ANN401 (as JSON is)
    """Return the value as `plain` does, with items of float32 arrays as their shortest decimals."""
    if isinstance(value, np.ndarray) and value.dtype == np.float32:
        return [values.python_value(number) for number in value]
    if isinstance(value, values.Arrays):
        return [plain_exactly(inner) for inner in value]
    return plain(value)


def _notation(name: str) -> tuple[int, ValueType]:
    """Return the depth of nested arrays in a type's name, and the innermost type."""
    match = _NOTATION.fullmatch(name.strip().upper())
    depth = len(match["end"]) if match else 0
    if match and match["outer"] == "ARRAY[" * depth and match["inner"] in ValueType.__members__:
        return _checked_depth(depth), ValueType[match["inner"]]
    names = ", ".join(kind.name.lower() for kind in ValueType)
    raise ValueTypeError(
        f"unknown value type {brief(name)}", remedy=f"Use one of {names}, or array[...] of one"
    )


def _checked_depth(depth: int) -> int:
    if depth > values.MAX_ARRAY_DEPTH:
        raise ValueTypeError(
            f"arrays are nested deeper than {values.MAX_ARRAY_DEPTH} levels",
            remedy="Use fewer levels",
        )
    return depth


def _array(value: object, depth: int) -> values.Array:
    if isinstance(value, values.Strings | values.Arrays):
        return value
    if isinstance(value, np.ndarray):
        return _kept_array(value)
    if isinstance(value, _SEQUENCES):
        depth = _checked_depth(depth)
        items = list(value)
        if not items:
            raise ValueTypeError(
                "an empty list has no element type",
                remedy='Use typed("array[string]", []) or an empty NumPy array',
            )
        if all(isinstance(item, (*_ARRAYS, *_SEQUENCES)) for item in items):
            return values.Arrays(_array(item, depth + 1) for item in items)
        kind = _default_type(items)
        if kind is ValueType.STRING:
            return values.Strings(items)
        return frozen(np.array([_typed_scalar(kind, item) for item in items], kind.dtype))
    raise ValueTypeError(
        f"a value of Python type {value.__class__.__name__} has no GGUF type",
        remedy="Use str, bool, int, float, a list of these, or NumPy scalars and arrays",
    )


def _kept_array(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | values.Strings:
    if array.ndim != 1:
        raise ValueTypeError(
            f"an array of {array.ndim} dimensions cannot be a GGUF value",
            remedy="Use one dimension, or `list(array)` for an array of arrays",
        )
    if array.dtype.kind == "U":
        return values.Strings(array.tolist())
    values.dtype_type(array.dtype)
    return frozen(array.copy())


def frozen(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a read-only view of an array."""
    view: np.ndarray[Any, Any] = array.view()
    view.flags.writeable = False
    return view


def _default_type(items: list[Any]) -> ValueType:
    """Return the one type that holds all items; no item is an array."""
    kinds = {_kind_of(item) for item in items}
    if len(kinds) > 1:
        names = ", ".join(sorted({item.__class__.__name__ for item in items}))
        raise ValueTypeError(
            f"one GGUF array cannot hold values of {names}",
            remedy='Make all items one type, or use typed("array[float32]", items)',
        )
    kind = kinds.pop()
    return kind if isinstance(kind, ValueType) else _integer_type(items)


def _kind_of(item: object) -> ValueType | type[int]:
    """Return the type of an item, or `int` if it depends on all items."""
    if isinstance(item, str):
        return ValueType.STRING
    if isinstance(item, np.generic):
        return values.dtype_type(item.dtype)
    if isinstance(item, bool):
        return ValueType.BOOL
    if isinstance(item, float):
        return ValueType.FLOAT32
    if isinstance(item, int):
        return int
    raise ValueTypeError(
        f"an item of Python type {item.__class__.__name__} has no GGUF type",
        remedy="Use str, bool, int, float, or NumPy scalars",
    )


def _integer_type(items: list[int]) -> ValueType:
    low, high = min(items), max(items)
    for kind in _INTEGERS:
        limits = np.iinfo(str(kind.dtype))
        if limits.min <= low and high <= limits.max:
            return kind
    span = brief(high) if low == high else f"both {brief(low)} and {brief(high)}"
    raise ValueTypeError(f"no GGUF integer type holds {span}")


def _array_of(kind: ValueType, depth: int, value: object) -> values.Array:
    """Return `value` as an array of `kind`, nested `depth` times."""
    if isinstance(value, np.ndarray) and value.ndim == 1 and _is_already(kind, value.dtype):
        return _kept_array(value)
    items = _items(value)
    if depth > 1:
        return values.Arrays(_array_of(kind, depth - 1, item) for item in items)
    if kind is ValueType.ARRAY:
        return values.Arrays(typed_array(item) for item in items)
    if kind is ValueType.STRING:
        return values.Strings(str(_typed_scalar(kind, item)) for item in items)
    return frozen(np.array([_typed_scalar(kind, item) for item in items], kind.dtype))


def _items(value: object) -> list[Any]:
    """Return the items of an array; items of NumPy arrays keep their dtype."""
    if isinstance(value, (*_SEQUENCES, values.Strings, values.Arrays)) or (
        isinstance(value, np.ndarray) and value.ndim
    ):
        return list(value)
    raise ValueTypeError(f"{brief(value)} is not an array", remedy="Give a list or a NumPy array")


def _typed_scalar(kind: ValueType, value: object) -> bool | str | np.generic:
    if isinstance(value, np.generic) and _is_already(kind, value.dtype):
        return value if kind is not ValueType.BOOL else bool(value)
    item = value
    if isinstance(value, np.generic) and value.dtype.kind in "biufU":  # a date's may be an int
        item = value.item()
    if kind is ValueType.STRING and isinstance(item, str):
        encode_string(item, CANONICAL)
        return str.__str__(item)  # also for members of a str enum
    if kind is ValueType.BOOL and isinstance(item, bool):
        return item
    if kind.dtype and kind is not ValueType.BOOL and not isinstance(item, bool):
        number = _number(np.dtype(kind.dtype), item)
        if number is not None:
            return number
    raise ValueTypeError(
        f"{brief(value)} does not fit the GGUF type {kind.name.lower()}",
        remedy="Give a value of that type, or name another type",
    )


def _is_already(kind: ValueType, dtype: np.dtype[Any]) -> bool:
    return kind.dtype is not None and dtype.newbyteorder("=") == np.dtype(kind.dtype)


def _number(dtype: np.dtype[Any], item: object) -> np.generic | None:
    if dtype.kind == "f":
        return _float(dtype, item) if isinstance(item, int | float) else None
    limits = np.iinfo(dtype)
    if isinstance(item, int) and limits.min <= item <= limits.max:
        integer: np.generic = dtype.type(item)
        return integer
    return None


def _float(dtype: np.dtype[Any], item: float) -> np.generic | None:
    """Return `item` rounded to nearest; None if it overflows, vanishes or is an inexact integer."""
    try:
        wide = float(item)
    except OverflowError:
        return None
    with np.errstate(over="ignore", under="ignore"):
        number: np.generic = dtype.type(wide)
    rounded = float(number)
    if math.isinf(rounded) != math.isinf(wide) or (rounded == 0) != (wide == 0):
        return None
    if isinstance(item, int) and int(rounded) != item:
        return None
    return number
