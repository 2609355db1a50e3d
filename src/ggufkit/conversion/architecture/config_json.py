"""Rebuilds config.json from metadata: finds fields that give the values of an architecture's keys.

A name gets the value; arithmetic with one unknown is undone; among alternatives, the solver chooses
the one that the architecture's other tables use. Known fields never change.
"""

from __future__ import annotations

import ast
import contextlib
import operator
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from ggufkit.conversion.architecture import expressions
from ggufkit.conversion.architecture.architecture import Architecture, architectures, full_key
from ggufkit.conversion.architecture.config import FIELDS, ConfigFacts
from ggufkit.conversion.architecture.expressions import whole
from ggufkit.conversion.architecture.functions import FUNCTIONS, MODEL, bound
from ggufkit.conversion.architecture.layer_lists import OPEN
from ggufkit.conversion.architecture.pooling import pooling_files
from ggufkit.conversion.architecture.rope import rope_fields
from ggufkit.conversion.checkpoint.folder import Checkpoint
from ggufkit.conversion.checkpoint.safetensors import as_json
from ggufkit.conversion.tokenizer.special_tokens import NAMES
from ggufkit.errors import CheckpointError, GGUFError, brief
from ggufkit.format.coerce import plain
from ggufkit.format.key_types import SPECIAL_TOKENS
from ggufkit.models.model import Model, Tensors

_NULL: Final = "None"  # an expression that ends so writes null
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
_PASSES: Final = 4  # a field may depend on one that a later key gives


@dataclass(frozen=True)
class Draft(Checkpoint):
    """A planned checkpoint, with its files in memory."""

    contents: Mapping[str, bytes] = field(default_factory=dict)

    def path(self, name: str) -> Path | None:
        """Return the path that the file will have, None if missing."""
        return self.folder / name if name in self.contents else None

    def content(self, name: str) -> bytes | None:
        """Return a file's bytes, None if missing."""
        return self.contents.get(name)

    def names(self, folder: str, suffix: str) -> list[str]:
        """Return the sorted names of the files with a suffix in a folder."""
        names = (name.removeprefix(f"{folder}/") for name in self.contents
                 if name.startswith(f"{folder}/") and name.endswith(suffix))  # fmt: skip
        return sorted(names)


def candidates(model: Model, folders: Sequence[Path] = ()) -> list[Architecture]:
    """Return the architectures that may describe a model, the likeliest first.

    Raises CheckpointError if no architecture has the model's name.
    """
    name = str(model.metadata.get("general.architecture", ""))
    archs = architectures(folders, gguf_name=name)
    matches = [(stem, arch) for stem, arch in archs.items() if arch.name == name]
    matches.sort(key=lambda item: item[0] == name)  # other names are special cases
    choices = [arch for _, arch in matches]
    functions = bound(MODEL, model)
    fitting = [a for a in choices if expressions.evaluate(a.export_if, lambda _: None, functions)]
    if choices:
        return fitting or choices
    raise CheckpointError(
        f"the architecture {brief(name or '(none in the file)')} is unknown",
        remedy="`ggufkit archs` lists the known ones; a file can teach it, in a folder that you "
        "name (arch_path=...): docs/architectures.md",
    )


def rebuilt(model: Model, architecture: Architecture, files: Mapping[str, bytes]) -> Draft:
    """Return a checkpoint with the config.json of an architecture, and without tensors."""
    empty = Draft(Path("export"), {}, Tensors(), contents=files)
    bare = ConfigFacts(empty, architecture)
    functions = {**bare.functions, **bound(MODEL, model)}
    solver = Solver(functions, architecture.defaults, _favoured(architecture))
    for role in NAMES:
        key = f"tokenizer.ggml.{SPECIAL_TOKENS[role]}_token_id"
        number = plain(model.metadata.get(key, ""))
        if type(number) is int:
            solver.fields[f"{role}_token_id"] = number
    for _ in range(_PASSES):
        _solve(model, architecture, solver)
    config = _config(model, architecture, solver)
    keys = [full_key(architecture, key) for key in ("pooling_type", "embedding_length")]
    number, width = (plain(model.metadata[k]) if k in model.metadata else None for k in keys)
    extra = {name: as_json(content) for name, content in pooling_files(number, width).items()}
    return Draft(Path("export"), config, Tensors(), contents={**files, **extra})


def _favoured(architecture: Architecture) -> list[set[str]]:
    """Return the names that an architecture uses outside its metadata, and the usual ones."""
    texts = [*architecture.shapes.values(), *architecture.required]
    texts += [t for rule in architecture.rules for target in rule.targets
              for step in target.steps for t in step.arguments]  # fmt: skip
    names = {name for text in texts if text.count(" or ") == 0 or "[" in text
             for name in expressions.names(text)}  # fmt: skip
    for table in architecture.defaults_of.values():
        names.update(table)
    return [names, set(FIELDS["usual"])]


def _solve(model: Model, architecture: Architecture, solver: Solver) -> None:
    for key, text in entries(architecture).items():
        value = model.metadata.get(full_key(architecture, key))
        if value is not None and not key.startswith(("general.", "tokenizer.")):
            solver.solve(text, plain(value))
    for name, text in architecture.shapes.items():
        layers = range(len(model.tensors) if "{i}" in name else 1)
        names = (name.replace("{i}", str(layer)) for layer in layers)
        first = next((model.tensors[n] for n in names if n in model.tensors), None)
        solver.solve(text, list(first.shape) if first else [])
    if "token_embd.weight" in model.tensors:
        solver.fields.setdefault("vocab_size", model.tensors["token_embd.weight"].shape[0])


def entries(architecture: Architecture) -> dict[str, Any]:
    """Return the final expression of each key, after inheritance."""
    return dict((*architecture.early, *architecture.metadata))


def _config(model: Model, architecture: Architecture, solver: Solver) -> dict[str, Any]:
    solver.fields.update(rope_fields(solver.fields["rope"], model.tensors))
    for name, allowed in (*architecture.expects.items(), *architecture.usual.items()):
        usual = allowed[0] if isinstance(allowed, list) and allowed else 0
        if usual != 0 or isinstance(usual, bool):  # 0 means that the field is missing
            solver.solve(name, usual)
    for name, text in architecture.export.items():
        if (value := solver.value(text)) is not None:
            solver.fields.update(_placed(solver.fields, name.split("."), value))
    values = {
        k: v for k, v in solver.fields.items() if k not in FIELDS["internal"] and v is not None
    }
    texts = {name: text for name, text in architecture.export.items() if isinstance(text, str)}
    nulls = {name: None for name, text in texts.items() if text.endswith(_NULL)}
    values = nulls | values
    classes = values.pop("architectures", next(iter(architecture.classes), ""))
    return {"architectures": [classes], **dict(sorted(values.items()))}


def _placed(fields: Mapping[str, Any], names: Sequence[str], value: Any) -> dict[str, Any]:  # noqa: ANN401 (as JSON is)
    """Return fields with a value at the end of the names; missing objects are made.

    After `[]` each object of a list gets an item of the value.
    """
    first, *below = names
    if first.endswith("[]"):
        old_items = fields.get(first[:-2]) or [{} for _ in value]
        objects = (item if isinstance(item, dict) else {} for item in old_items)
        items = [_placed(part, below, item) for part, item in zip(objects, value, strict=True)]
        return {**fields, first[:-2]: items}
    old = fields.get(first)
    inner = old if isinstance(old, dict) else {}
    return {**fields, first: _placed(inner, below, value) if below else value}


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
        names: list[ast.Name] = []
        for value in node.values:
            if isinstance(value, ast.Name) and value.id in self.fields:
                break
            names += [value] if isinstance(value, ast.Name) else []
        for group in self._favoured:
            favoured = [name for name in names if name.id in group]
            if favoured:
                return favoured[0]
        return (names or node.values)[0]

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
