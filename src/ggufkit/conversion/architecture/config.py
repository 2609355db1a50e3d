"""Looks up fields of a checkpoint's configuration, and computes the key-values from them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

import ggufkit._toml as _toml
from ggufkit.conversion.architecture import expressions, rope
from ggufkit.conversion.architecture.architecture import (
    Architecture,
    ConfigEntries,
    full_key,
    merged,
)
from ggufkit.conversion.architecture.functions import FACTS, bound
from ggufkit.conversion.checkpoint.folder import Checkpoint
from ggufkit.conversion.tensors.operations import OF_TORCH, has_torch
from ggufkit.errors import CheckpointError, GGUFError, brief
from ggufkit.format.coerce import typed
from ggufkit.format.values import TypedValue
from ggufkit.system.threads import Notify

FIELDS: Final = _toml.read(__file__, "config_fields.toml")
_COMPUTING: Final = re.compile("|".join(FIELDS["computing"]))
_SETTLED: Final = re.compile("|".join((*FIELDS["training"], *FIELDS["stated_elsewhere"])))
_ELEMENTS: Final = {bool: "bool", str: "string", int: "int32", float: "float32"}  # of arrays
IGNORED: Final = "ignored"  # in `expects`: llama.cpp computes without the field


class ConfigFacts:
    """The fields of a configuration, with defaults of its class, and the functions on them."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        architecture: Architecture,
        more: Mapping[str, Any] | None = None,
        *,
        exactly: bool = False,
    ) -> None:
        """Add defaults to the configuration; CheckpointError if it contradicts itself.

        `more` are objects of other files, for expressions to look into. `exactly` leaves out the
        defaults that llama.cpp's converter does not have.
        """
        self.checkpoint = checkpoint
        self.architecture = architecture
        self.exactly = exactly
        self.more: Mapping[str, Any] = more or {}
        self.fields: dict[str, Any] = {
            **merged(checkpoint.config, architecture.config),
            **self.more,
        }
        if checkpoint.target is not None:
            self.fields["target"] = merged(checkpoint.target.config, "text_config")
        self.read: set[str] = {"rope_parameters"}
        self.functions: dict[str, Callable[..., Any]] = bound(FACTS, self)
        self._rope: dict[str, Any] | None = None
        self._add_defaults()
        for name, table in architecture.parts.items():
            self.fields[name] = self._part(table)

    def _part(self, table: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return an object of the configuration with defaults, None if it is absent."""
        parent = self.value(table.get("of"))
        if not isinstance(parent, Mapping) or not parent:
            return None
        part = dict(parent)
        for name, default in table.items():
            if name != "of" and part.get(name) is None:
                present = {key: value for key, value in part.items() if value is not None}
                inner = {**self.more, **present}.get
                is_text = isinstance(default, str)
                part[name] = (
                    expressions.evaluate(default, inner, self.functions) if is_text else default
                )
        return part

    def _add_defaults(self) -> None:
        model_type = str(self.fields.get("model_type", ""))
        defaults = self.architecture.defaults
        of_class = self.architecture.defaults_of.get(model_type, {})
        if self.exactly:
            is_known = self.checkpoint.config.get("model_type") in known_types()
            of_class = _without(of_class, self.architecture.departures) if is_known else {}
            defaults = _without(defaults, self.architecture.departures)
        table = {**defaults, **of_class}
        # Fields are read by their other names too, before a default hides these.
        present = {name for name, value in self.fields.items() if value is not None}
        names = alternatives(self.architecture)
        for field in table.keys() - present:
            other = next((name for name in names.get(field, ()) if name in present), None)
            if other is not None:
                self.fields[field] = self.lookup(other)
                self.read.add(field)
        constants = {name: value for name, value in table.items() if not isinstance(value, str)}
        self.fields = {**constants, **self.fields}
        # A null field means the same in all classes, but an absent field has a default by class.
        for name, value in (*table.items(), *defaults.items()):
            if isinstance(value, str) and self.fields.get(name) is None:
                self.fields[name] = self.value(value)

    def lookup(self, name: str) -> Any:  # noqa: ANN401 (as JSON is)
        """Return a field of the configuration, None if it is absent or null."""
        if name == "rope":
            if self._rope is None:
                self._rope = rope.facts(self.fields)
                self.read.update(rope.FIELDS)
            return self._rope
        self.read.add(name)
        return self.fields.get(name)

    def value(self, expression: Any, number: int | None = None) -> Any:  # noqa: ANN401 (as TOML is)
        """Return the value of an expression, or of a constant of an architecture file.

        `number` is the number of a tensor's layer; the expression calls it `i`.
        """
        if not isinstance(expression, str):
            return expression
        return expressions.evaluate(
            expression,
            lambda name: number if name == expressions.NUMBER else self.lookup(name),
            self.functions,
        )

    def problems(self, what: str = "config.json", say: Notify = lambda _: None) -> Iterator[str]:
        """Yield the fields that `what` lacks, and those that llama.cpp would not respect.

        llama.cpp's converter ignores the latter: `exactly`, they are notes.
        """
        targets = [target for rule in self.architecture.rules for target in rule.targets]
        steps = (step for target in targets for step in (*target.steps, *target.joined_steps))
        names = {step.name for step in steps}.union(self.architecture.generated.values())
        if self.exactly and not has_torch() and names & {*OF_TORCH, "sinusoids"}:
            say("PyTorch is not installed: exponentials are the nearest floats, not PyTorch's")
        for text in self.architecture.required:
            if self._quietly(text) is None:
                yield f"{what} lacks {text}"
        for name, value, values in self._others(self.architecture.expects):
            allowed = " or ".join(repr(one) for one in values if one is not None) or "nothing"
            text = f"{name} is {brief(value)}, but llama.cpp always computes with {allowed}"
            if self.exactly:
                say(text)
            else:
                yield text

    def _others(self, table: Mapping[str, list[Any] | str]) -> Iterator[tuple[str, Any, list[Any]]]:
        for name, allowed in table.items():
            value = self._quietly(name)
            values = allowed if isinstance(allowed, list) else [self._quietly(allowed)]
            if value is not None and allowed != IGNORED and value not in values:
                yield name, value, values

    def unread(self) -> list[str]:
        """Return fields that may change the model, but that llama.cpp's converter ignores too."""
        read = self.read | self.architecture.expects.keys() | self.architecture.usual.keys()
        fields = merged(self.checkpoint.config, self.architecture.config)
        unusual = (name for name, _, _ in self._others(self.architecture.usual))
        return [
            *unusual,
            *(n for n, value in fields.items() if n not in read and _may_change_model(n, value)),
        ]

    def _quietly(self, text: str) -> Any:  # noqa: ANN401
        """Return a value, None if it cannot be computed: its use reports the error."""
        try:
            return self.value(text)
        except GGUFError:
            return None


def _may_change_model(name: str, value: Any) -> bool:  # noqa: ANN401 (as JSON is)
    if name in FIELDS["changing"]:
        return value not in (None, False)
    is_empty = value is not True and value in (None, False, 0, 1, "", [], {})
    return bool(_COMPUTING.search(name)) and not _SETTLED.search(name) and not is_empty


@functools.cache
def known_types() -> frozenset[str]:
    """Return the values of `model_type` whose defaults llama.cpp's converter has: transformers'.

    The converter reads config.json alone for types that transformers 4.57 does not know, and for
    hybrids of Mamba 2.
    """
    text = Path(__file__).with_name("transformers_types.txt").read_text("utf-8")
    return frozenset(text.split())


def _without(table: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in table.items() if name not in names}


def alternatives(architecture: Architecture) -> dict[str, list[str]]:
    """Return the other names of each field: expressions join them to it with `or`."""
    entries = (*architecture.early, *architecture.metadata, *architecture.defaults.items())
    texts = [text for _, text in entries if isinstance(text, str)]
    groups: dict[str, list[str]] = {}
    for group in (group for text in texts for group in expressions.alternatives(text)):
        names = [name for name in group if name not in FIELDS["other_meanings"]]
        for name in names:
            groups.setdefault(name, []).extend(names)
    return groups


# Key-values, with the types of llama.cpp's converter.
def parameters(facts: ConfigFacts, table: ConfigEntries) -> tuple[dict[str, TypedValue], list[str]]:
    """Return the architecture's key-values in order, and the keys that cannot be computed."""
    values: dict[str, TypedValue] = {}
    problems: list[str] = []
    for key, expression in table:
        full = full_key(facts.architecture, key)
        try:
            value = facts.value(expression)
            if value is not None and not _is_null(expression, facts):
                values[full] = _typed(value)
        except GGUFError as error:
            problems.append(f"{full}: {error.message}")
    return values, problems


def _is_null(expression: Any, facts: ConfigFacts) -> bool:  # noqa: ANN401 (as TOML is)
    """Whether config.json has null for the first of the names that an expression joins by `or`."""
    groups = expressions.alternatives(expression) if isinstance(expression, str) else ()
    present = (next((name for name in names if name in facts.fields), "") for names in groups)
    return any(first and facts.fields[first] is None for first in present)


def _typed(value: Any) -> TypedValue:  # noqa: ANN401 (as JSON is)
    """Return a value with the type that llama.cpp's converter gives such values."""
    if isinstance(value, bool | str | np.generic | np.ndarray):
        return value
    if isinstance(value, int):
        return typed("uint32", value)
    if isinstance(value, list) and value:
        fits = (n for kind, n in _ELEMENTS.items() if all(isinstance(item, kind) for item in value))
        return typed(f"array[{next(fits, 'float32')}]", value)
    raise CheckpointError(f"{brief(value)} is not a valid metadata value")
