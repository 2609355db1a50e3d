"""Evaluates the expressions of architecture files: arithmetic over a checkpoint's configuration.

`hidden_size // num_attention_heads` computes; `n_embd or hidden_size` is the first that exists;
`attn_config.clip_qkv` looks into an object, `layer_types[0]` into a list; `[... for x in list]`
computes a list; `name(...)` calls one of a closed set of functions.
If a field is absent or null, the whole expression is None, and its entry is left out.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from ggufkit.errors import MISFORMED, CheckpointError, GGUFError, ValueTypeError, brief

Lookup = Callable[[str], Any]
Functions = Mapping[str, Callable[..., Any]]

_OPERATORS: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: lambda base, exponent: float(base) ** float(exponent),  # never a huge integer
}
NUMBER: Final = "i"  # the name for the number of a tensor's layer, or of an item
MAX_NUMBER: Final = 2.0**64  # above any sensible value of a field; also bounds arithmetic


@functools.cache
def parse(text: str) -> ast.expr:
    """Parse an expression; ValueError for syntax that is not part of the language."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"{text!r} is not an expression: {error}") from None
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED):
            raise ValueError(f"{text!r}: {type(node).__name__} is not allowed in an expression")  # noqa: TRY004 (an error in the text)
        if isinstance(node, ast.ListComp):
            first, *more = node.generators
            if more or first.ifs or not isinstance(first.target, ast.Name):
                raise ValueError(
                    f"{text!r}: a list is made with one name, from one list, and no if"
                )
    return tree


def evaluate(text: str, lookup: Lookup, functions: Functions) -> Any:  # noqa: ANN401 (as JSON is)
    """Return the value of an expression, None if a field that it needs is absent.

    Raises CheckpointError if arithmetic needs a number and the configuration has something else.
    """
    try:
        return _value(parse(text), lookup, functions)
    except ValueTypeError as error:
        raise CheckpointError(f"{text!r} cannot be computed: {error.message}") from None
    except GGUFError:
        raise
    except MISFORMED as error:
        raise CheckpointError(f"{text!r} cannot be computed: {error}") from None


def names(text: str) -> set[str]:
    """Return the names of the configuration that an expression reads."""
    tree = parse(text)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in called}


def arguments(text: str) -> list[str]:
    """Return the expressions that commas separate; ValueError for other syntax."""
    call = parse(f"arguments({text})")
    if not isinstance(call, ast.Call) or call.keywords:
        raise ValueError(f"{text!r} is not a list of expressions")
    return [ast.unparse(node) for node in call.args]


def alternatives(text: str) -> list[list[str]]:
    """Return the names of each `a or b or c` in an expression that joins only names."""
    groups = [node.values for node in ast.walk(parse(text)) if isinstance(node, ast.BoolOp)]
    members = ([item.id for item in group if isinstance(item, ast.Name)] for group in groups)
    return [names for names, group in zip(members, groups, strict=True) if len(names) == len(group)]


_ALLOWED: Final = (
    ast.Name, ast.Attribute, ast.Constant, ast.Call, ast.BinOp, ast.BoolOp, ast.Or, ast.UnaryOp,
    ast.USub, ast.Load, ast.List, ast.Subscript, ast.ListComp, ast.comprehension, ast.Store,
    *_OPERATORS,
)  # fmt: skip


def _value(node: ast.expr, lookup: Lookup, functions: Functions) -> Any:  # noqa: ANN401, PLR0911
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return lookup(node.id)
    if isinstance(node, ast.Attribute):
        whole = _value(node.value, lookup, functions)
        return whole.get(node.attr) if isinstance(whole, Mapping) else None
    if isinstance(node, ast.BoolOp):
        values = (_value(item, lookup, functions) for item in node.values)
        return next((value for value in values if value is not None), None)
    if isinstance(node, ast.Call):
        return _called(node, lookup, functions)
    if isinstance(node, ast.List):
        items = [_value(item, lookup, functions) for item in node.elts]
        return None if None in items else items
    if isinstance(node, ast.ListComp):
        return _listed(node, lookup, functions)
    if isinstance(node, ast.Subscript):
        return _item(node, lookup, functions)
    return _computed(node, lookup, functions)


def _called(node: ast.Call, lookup: Lookup, functions: Functions) -> Any:  # noqa: ANN401
    if not isinstance(node.func, ast.Name) or node.func.id not in functions:
        names = ", ".join(sorted(functions))
        raise CheckpointError(
            f"unknown function {ast.unparse(node.func)!r}", remedy=f"The functions are {names}"
        )
    arguments = [_value(node, lookup, functions) for node in node.args]
    if any(argument is None for argument in arguments):
        return None
    return functions[node.func.id](*arguments)


def _listed(node: ast.ListComp, lookup: Lookup, functions: Functions) -> list[Any] | None:
    """Return a value for each item of a list; `i` is the number of the item."""
    items, target = _value(node.generators[0].iter, lookup, functions), node.generators[0].target
    assert isinstance(target, ast.Name)  # noqa: S101 (`parse` refuses everything else)
    if items is None:
        return None
    if not isinstance(items, list):
        raise TypeError(f"{brief(items)} is not a list")

    def value_for(number: int, item: Any) -> Any:  # noqa: ANN401
        names = {target.id: item, NUMBER: number}
        return _value(node.elt, lambda n: names[n] if n in names else lookup(n), functions)

    return [value_for(number, item) for number, item in enumerate(items)]


def _item(node: ast.Subscript, lookup: Lookup, functions: Functions) -> Any:  # noqa: ANN401
    items, index = (_value(node, lookup, functions) for node in (node.value, node.slice))
    if items is None or index is None:
        return None
    if not isinstance(items, list):
        raise TypeError(f"{brief(items)} is not a list")
    return items[index] if 0 <= _number(index) < len(items) else None


def _computed(node: ast.expr, lookup: Lookup, functions: Functions) -> Any:  # noqa: ANN401
    if isinstance(node, ast.UnaryOp):
        inner = _value(node.operand, lookup, functions)
        return None if inner is None else -_number(inner)
    assert isinstance(node, ast.BinOp)  # noqa: S101 (`parse` refuses everything else)
    first = _value(node.left, lookup, functions)
    second = _value(node.right, lookup, functions)
    if first is None or second is None:
        return None
    return _OPERATORS[type(node.op)](_number(first), _number(second))


def _number(value: Any) -> int | float:  # noqa: ANN401
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{brief(value)} is not a number")
    if not abs(value) <= MAX_NUMBER:
        raise ArithmeticError(f"{brief(value)} is too large")
    return value


def shortest(value: Any) -> Any:  # noqa: ANN401 (as metadata is)
    """Return the shortest decimal number that is the same as float32."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return float(str(np.float32(value)))


def whole(number: float) -> int | float:
    """Return a number without a fraction as an integer."""
    return int(number) if number == int(number) else number
