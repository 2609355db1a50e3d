"""Style rules that no linter checks: sizes, nesting, and unchanged arguments."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src/ggufkit"
MOST_LINES = 400  # of a file
MOST_BODY_LINES = 40  # of a function, from the first statement after its docstring on
MOST_PARAMETERS = 8
MOST_NESTING = 3
# Public functions whose keyword-only options are their interface, in one place with their text.
MANY_OPTIONS = {
    *("compute_imatrix", "convert", "edit", "estimate", "evaluate", "export", "repair", "select"),
    *("load", "measure_sensitivity"),
    "target",
}
BLOCKS = (ast.For, ast.While, ast.If, ast.With, ast.Try, ast.Match)
FILLED = {
    *("add", "append", "appendleft", "clear", "discard", "extend", "fill", "insert", "pop"),
    *("popitem", "popleft", "remove", "reverse", "setdefault", "sort", "update"),
}
# What is there to be filled: their `add` counts or collects, and `fill` reads into memory lent.
SINKS = {
    "findings": {"add"},
    "done": {"add"},
    "tally": {"add"},
    "file": {"fill"},
    "session": {"clear"},
}

# What still changes an argument, and must not grow: file by file.
CHANGING = {
    "conversion/architecture/config_json.py": {"_config", "_solve"},
    "conversion/tensors/row_sources.py": {"_turn_tiles"},
    "conversion/tokenizer/hub_tokenizer.py": {"_add"},
}


def functions():
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                yield path.relative_to(PACKAGE).as_posix(), node


FUNCTIONS = list(functions())


def parameters(function):
    parameters = function.args
    positional = [*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs]
    several = [variadic for variadic in (parameters.vararg, parameters.kwarg) if variadic]
    return [
        parameter.arg
        for parameter in (*positional, *several)
        if parameter.arg not in {"self", "cls"}
    ]


def body_lines(function):
    first = function.body[1] if ast.get_docstring(function) and function.body[1:] else None
    begin = (first or function.body[0]).lineno
    return (function.end_lineno or begin) - begin + 1


def nesting(statements):
    return max((_depth(statement) for statement in statements), default=0)


def _depth(statement):
    if not isinstance(statement, BLOCKS):
        return 0
    branches = [getattr(statement, field, []) for field in ("body", "finalbody")]
    branches += [handler.body for handler in getattr(statement, "handlers", [])]
    branches += [case.body for case in getattr(statement, "cases", [])]
    inner = 1 + max(map(nesting, branches), default=0)
    other = getattr(statement, "orelse", [])
    is_elif = isinstance(statement, ast.If) and len(other) == 1 and isinstance(other[0], ast.If)
    return max(inner, nesting(other) + (0 if is_elif or not other else 1))


def root(node):
    """Return the name whose attribute, or attribute's item, a node is, and the way there."""
    way = []
    while isinstance(node, ast.Attribute | ast.Subscript):
        way.append(getattr(node, "attr", ""))
        node = node.value
    return (node.id, [node.id, *way]) if isinstance(node, ast.Name) else ("", way)


def changes(function):
    """Yield the line of each statement that changes an argument of the function."""
    names = {*parameters(function)} - {function.args.kwarg and function.args.kwarg.arg}
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(
            node.ctx, ast.Store | ast.Del
        ):
            name, way = root(node)
            name = "" if "meta" in way else name  # which click lends to commands as a store
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name, way = root(node.func.value)
            is_sink = node.func.attr in set().union(*(SINKS.get(role, ()) for role in way))
            name = name if node.func.attr in FILLED and not is_sink else ""
        else:
            continue
        if name in names:
            yield node.lineno


def test_no_file_is_too_long():
    lines = {
        path.relative_to(PACKAGE).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in PACKAGE.rglob("*.py")
    }
    assert not {path: count for path, count in lines.items() if count > MOST_LINES}


def test_no_function_is_too_long():
    sizes = {(path, function.name): body_lines(function) for path, function in FUNCTIONS}
    assert not {where: lines for where, lines in sizes.items() if lines > MOST_BODY_LINES}


def test_only_commands_take_many_parameters():
    counts = {
        (path, function.name): len(parameters(function))
        for path, function in FUNCTIONS
        if not (path.startswith("cli/commands/") and function.decorator_list)
    }
    many = {where for where, count in counts.items() if count > MOST_PARAMETERS}
    assert {name for _, name in many} == MANY_OPTIONS


@pytest.mark.parametrize("name", sorted(MANY_OPTIONS))
def test_long_parameter_lists_are_keyword_only(name):
    functions = [
        candidate
        for path, candidate in FUNCTIONS
        if candidate.name == name
        and len(parameters(candidate)) > MOST_PARAMETERS
        and not path.startswith(("cli/", "models/verbs.py"))
    ]
    assert functions
    assert all(len(function.args.args) <= 2 for function in functions)


def test_no_function_nests_too_deep():
    depths = {(path, function.name): nesting(function.body) for path, function in FUNCTIONS}
    assert not {where: depth for where, depth in depths.items() if depth > MOST_NESTING}


def test_no_function_changes_its_arguments():
    changed = {
        (path, function.name): lines
        for path, function in FUNCTIONS
        if (lines := list(changes(function)))
    }
    known = {(path, name) for path, names in CHANGING.items() for name in names}
    assert not {where: lines for where, lines in changed.items() if where not in known}


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("def f(a):\n a.append(1)", [2]),
        ("def f(a):\n a['x'] = 1\n del a['y']", [2, 3]),
        ("def f(a):\n a.b.c += 1", [2]),
        ("def f(self, **a):\n self.b = a.pop('c')", []),
        ("def f(findings):\n findings.add(1)", []),
        ("def f(a):\n b = list(a)\n b.append(1)", []),
    ],
)
def test_finds_a_changed_argument(text, lines):
    assert sorted(changes(ast.parse(text).body[0])) == lines
