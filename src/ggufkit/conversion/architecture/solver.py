"""Solves expressions of architecture files: finds the fields that give a value.

A name gets the value; arithmetic with one unknown is undone; among alternatives, the solver chooses
the one that the architecture's other tables use. Known fields never change.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import numpy as np

from ggufkit.conversion.architecture import expressions
from ggufkit.conversion.architecture.expressions import whole
from ggufkit.conversion.architecture.functions import FUNCTIONS
from ggufkit.conversion.architecture.layer_lists import OPEN
from ggufkit.errors import GGUFError

_UNKNOWN_LEFT: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.sub,
    ast.Sub: operator.add,
    ast.Mult: operator.truediv,
    ast.Div: operator.mul,
    ast.FloorDiv: operator.mul,
}
_UNKNOWN_RIGHT: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.sub,
    ast.Sub: lambda value, operand: operand - value,
    ast.Mult: operator.truediv,
    ast.Div: lambda value, operand: operand / value,
    ast.FloorDiv: lambda value, operand: operand // value,
}


class Solver:
    """The fields found so far; among alternatives, names in the first `favoured` set win."""

    def __init__(
        self,
        functions: Mapping[str, Callable[..., Any]],
        defaults: Mapping[str, Any],
        favoured: Sequence[AbstractSet[str]],
    ) -> None:
        self.fields: dict[str, Any] = {"rope": {}}
        self._functions = functions
        self._defaults = defaults
        self._favoured = favoured

    def value(self, text: Any) -> Any:  # noqa: ANN401 (as TOML is)
        """Return the value of an expression, None if it cannot be computed yet."""
        return self._evaluated(expressions.parse(text)) if isinstance(text, str) else text

    def solve(self, text: Any, value: Any) -> None:  # noqa: ANN401
        """Set unknown fields such that the expression has the value.

        A value that the expression cannot have, such as text for a product, sets nothing.
        """
        if isinstance(text, str):
            with contextlib.suppress(TypeError, ValueError, ArithmeticError, AttributeError):
                self._solve(expressions.parse(text), value)

    def _evaluated(self, node: ast.expr) -> Any:  # noqa: ANN401
        try:
            return expressions.evaluate(ast.unparse(node), self.fields.get, self._functions)
        except (GGUFError, ValueError):
            return None

    def _solve(self, node: ast.expr, value: Any) -> None:  # noqa: ANN401
        if isinstance(node, ast.Name):
            self.fields.setdefault(node.id, value)
            self.solve(self._defaults.get(node.id), self.fields[node.id])
        elif isinstance(node, ast.Attribute):
            self._assign_inside(node, value)
        elif isinstance(node, ast.Call):
            self._solve_call(node, value)
        elif isinstance(node, ast.BoolOp) and isinstance(node.values[0], ast.Attribute):
            self._solve(node.values[0], value)  # written even where it is the default
        elif _is_same(self._evaluated(node), value):
            return
        elif isinstance(node, ast.BoolOp):
            self._solve(self._chosen(node), value)
        elif isinstance(node, ast.BinOp):
            self._solve_arithmetic(node, value)
        elif isinstance(node, ast.List) and isinstance(value, list | tuple):
            for item, part in zip(node.elts, value, strict=False):
                self._solve(item, part)

    def _assign_inside(self, node: ast.Attribute, value: Any) -> None:  # noqa: ANN401
        path: list[str] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            path.insert(0, inner.attr)
            inner = inner.value
        assert isinstance(inner, ast.Name)  # noqa: S101 (the language allows only names there)
        inside = self.fields.setdefault(inner.id, {})
        for name in path[:-1]:
            inside = inside.setdefault(name, {})
        inside.setdefault(path[-1], value)

    def _chosen(self, node: ast.BoolOp) -> ast.expr:
        """Return the alternative to solve: a favoured name, else the first name."""
        before = list(itertools.takewhile(self._is_unknown, node.values))
        names = [name for name in before if isinstance(name, ast.Name)]
        for group in self._favoured:
            favoured = [name for name in names if name.id in group]
            if favoured:
                return favoured[0]
        return (names or node.values)[0]

    def _is_unknown(self, node: ast.expr) -> bool:
        return not isinstance(node, ast.Name) or node.id not in self.fields

    def _solve_arithmetic(self, node: ast.BinOp, value: Any) -> None:  # noqa: ANN401
        if isinstance(value, bool) or not isinstance(value, int | float):
            return
        first, second = self._evaluated(node.left), self._evaluated(node.right)
        kind = type(node.op)
        is_left = first is None or (second is not None and not self._is_open(node.right))
        table, operand = (_UNKNOWN_LEFT, second) if is_left else (_UNKNOWN_RIGHT, first)
        if kind not in table or not isinstance(operand, int | float):
            return
        try:
            unknown = whole(table[kind](value, operand))
        except ArithmeticError:
            return
        self._solve(node.left if is_left else node.right, unknown)

    def _is_open(self, node: ast.expr) -> bool:
        """Whether an expression has a value only because it has alternatives."""
        choices = [part for part in ast.walk(node) if isinstance(part, ast.BoolOp)]
        return any(self._evaluated(choice.values[0]) is None for choice in choices)

    def _solve_call(self, node: ast.Call, value: Any) -> None:  # noqa: ANN401
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        row = FUNCTIONS.get(name)
        if row is None or row.undo is None:
            return
        arguments = [self._evaluated(argument) for argument in node.args]
        for argument, result in zip(node.args, row.undo(value, arguments), strict=False):
            if result is not OPEN:
                self._solve(argument, result)


def _is_same(value: Any, other: Any) -> bool:  # noqa: ANN401
    if isinstance(value, np.generic):
        value = value.item()
    return value is not None and bool(value == other)
