"""Find out which small mistakes in a module its tests notice.

    python tools/mutate.py MODULE COUNT TESTS...
    python tools/mutate.py ggufkit.quantization.recipes 8 tests/quantization

Each mutant has one change in one function: another comparison, a number that is one higher, a
reversed condition, or a statement less. The tests are collected once. For each mutant, a forked
process changes the code of the function, and runs the tests up to the first failure. A mutant that
no test notices needs a test, unless it has the same effect. Programs that tests start are not
changed.
"""

from __future__ import annotations

import ast
import copy
import functools
import importlib
import inspect
import itertools
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Final

import pytest
from _pytest.runner import runtestprotocol

OTHER: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
DROPPED: Final = (ast.Expr, ast.AugAssign, ast.Raise)


def change(node: ast.AST) -> str:
    """Change a node in place; return what was changed, or nothing."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in OTHER:
        node.ops[0] = OTHER[type(node.ops[0])]()
        return "another comparison"
    if isinstance(node, ast.Constant) and type(node.value) is int:
        node.value += 1
        return "a number one higher"
    if isinstance(node, ast.If | ast.IfExp):
        node.test = ast.UnaryOp(ast.Not(), node.test)
        return "a reversed condition"
    body = getattr(node, "body", None)
    for i, statement in enumerate(body if isinstance(body, list) else ()):
        is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if isinstance(statement, DROPPED) and not is_text:
            body[i] = ast.copy_location(ast.Pass(), statement)
            return f"a dropped {type(statement).__name__}"
    return ""


def codes_of(tree: ast.Module, path: str) -> dict[str, CodeType]:
    """Return the code of all functions of a module and its classes, by their names."""
    codes = {}
    waiting = [("", compile(tree, path, "exec"))]
    while waiting:
        prefix, code = waiting.pop()
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                codes[prefix + constant.co_name] = constant
                waiting.append((f"{prefix}{constant.co_name}.", constant))
    return codes


def mutants(path: str) -> Iterator[tuple[str, str, CodeType]]:
    """Yield place, name of the function and its changed code, in any order but always the same."""
    tree = ast.parse(Path(path).read_text("utf-8"))
    original = codes_of(tree, path)
    nodes = [*enumerate(ast.walk(tree))]
    random.Random(Path(path).name).shuffle(nodes)  # noqa: S311 (the same ones each time)
    for number, node in nodes:
        if not change(copy.deepcopy(node)):
            continue
        changed = copy.deepcopy(tree)
        what = change([*ast.walk(changed)][number])
        for name, code in codes_of(ast.fix_missing_locations(changed), path).items():
            if code != original[name] and "." not in name.partition(".")[2]:
                yield f"{path}:{getattr(node, 'lineno', '?')}: {what}", name, code
                break


def function_named(module: ModuleType, name: str) -> FunctionType | None:
    """Return a function or method of a module, without what decorates it."""
    member = functools.reduce(
        lambda owner, part: getattr(owner, part, None), name.split("."), module
    )
    member = member.fget if isinstance(member, property) else member
    member = inspect.unwrap(member) if callable(member) else member
    member = getattr(member, "__func__", member)
    return member if isinstance(member, FunctionType) else None


class Mutate:
    """Runs the collected tests once for each mutant."""

    def __init__(self, module: str, count: int) -> None:
        self.module = importlib.import_module(module)
        usable = (m for m in mutants(str(self.module.__file__)) if self.is_usable(*m[1:]))
        self.mutants = [*itertools.islice(usable, count)]

    def is_usable(self, name: str, code: CodeType) -> bool:
        """Whether the function of this name can get the code."""
        function = function_named(self.module, name)
        return function is not None and function.__code__.co_freevars == code.co_freevars

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Print for each mutant which test notices it."""
        for place, name, code in self.mutants:
            sys.stdout.flush()
            child = os.fork()
            if child == 0:
                function_named(self.module, name).__code__ = code
                try:
                    print(f"{place} in {name}: {first_failure(session.items)}", flush=True)
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
        return True


def first_failure(items: list[pytest.Item]) -> str:
    """Run tests up to the first that fails; return its name."""
    for item, following in itertools.zip_longest(items, items[1:]):
        if any(report.failed for report in runtestprotocol(item, log=False, nextitem=following)):
            return f"noticed by {item.nodeid}"
    return "NOT NOTICED"


if __name__ == "__main__":
    plugin = Mutate(sys.argv[1], int(sys.argv[2]))
    sys.exit(pytest.main(["-q", "-s", "-p", "no:cacheprovider", *sys.argv[3:]], plugins=[plugin]))
