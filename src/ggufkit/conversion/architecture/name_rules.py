"""Maps the names of a checkpoint's tensors to GGUF's by rules.

In a pattern, `{i}` is the number of a layer, `{x}` the number of an expert, `{w}` is weight or
bias, and `{m}` one of the limits of a matrix's input and output. A target is a GGUF name, then
operations after `|`. If `{x}` is only in the pattern, the target stacks the experts. Operations
after `||` are done on what parts or experts make together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ggufkit.conversion.architecture import expressions
from ggufkit.conversion.tensors.operations import OPERATIONS

_PART: Final = {"{i}": r"(?P<i>\d+)", "{x}": r"(?P<x>\d+)"}
_SUFFIXES: Final = {
    "{w}": ("weight", "bias"),
    "{m}": ("input_min", "input_max", "output_min", "output_max"),
}
_MATRIX: Final = ".weight"  # the end of a matrix's name
_STEP: Final = re.compile(r"(?P<name>\w+)(\((?P<arguments>.*)\))?")


FIRST: Final = 0  # `parts` of a target that takes the first tensor that arrives
ALL: Final = -1  # `parts` of a target that joins all tensors in the order of their numbers
PRESENT: Final = -2  # `parts` of a target that joins whichever of its tensors exist
_PARTS: Final = {" first": FIRST, " joined": ALL}


class Step(NamedTuple):
    """One operation and its arguments: expressions in a rule, their values when it is undone."""

    name: str
    arguments: tuple[Any, ...]


class Target(NamedTuple):
    """Where a tensor goes: a template of a GGUF name, operations, and its place in a join."""

    name: str
    steps: tuple[Step, ...]
    place: int | None  # among the tensors to join, None without a join
    parts: int
    joined_steps: tuple[Step, ...] = ()  # after the join


@dataclass(frozen=True)
class NameRule:
    """A pattern and its targets; `stacks` says that experts are stacked."""

    pattern: str
    regex: re.Pattern[str]
    targets: tuple[Target, ...]
    stacks: bool


class MatchedRule(NamedTuple):
    """A tensor's match: the rule, and the layer and the expert in its name."""

    rule: NameRule
    layer: int | None
    expert: int | None

    def fill(self, template: str) -> str:
        """Return a template with these numbers."""
        return template.replace("{i}", str(self.layer)).replace("{x}", str(self.expert))


def match_rule(rule: NameRule, regex: re.Pattern[str], name: str) -> MatchedRule | None:
    """Return a rule with the numbers in a name, None if the expression does not match it."""
    match = regex.fullmatch(name)
    if match is None:
        return None
    numbers = {letter: int(digits) for letter, digits in match.groupdict().items()}
    return MatchedRule(rule, numbers.get("i"), numbers.get("x"))


def both_suffixes(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with each `{w}` row replaced by one for weight and one for bias."""
    rows: dict[str, Any] = {}
    for pattern, value in table.items():
        word = next((end for end in _SUFFIXES if end in pattern), "{w}")
        for suffix in _SUFFIXES[word] if word in pattern else ("",):
            rows[pattern.replace(word, suffix)] = _with_suffix(value, word, suffix)
    return rows


def scale_rules(rules: Iterable[NameRule], ends: Sequence[str]) -> Iterator[NameRule]:
    """Yield rules for the scales of matrices, whose names differ only in the end."""
    for rule in rules:
        name = rule.targets[0].name
        is_matrix = rule.pattern.endswith(_MATRIX) and name.endswith(_MATRIX)
        if is_matrix and len(rule.targets) == 1 and rule.targets[0].parts == 1:
            for end in ends:
                stacked = " || vector" if rule.stacks else ""
                target = f"{name.removesuffix(_MATRIX)}{end}{stacked}"
                yield _rule(f"{rule.pattern.removesuffix(_MATRIX)}{end}", target)


def _with_suffix(value: Any, word: str, suffix: str) -> Any:  # noqa: ANN401 (as TOML is)
    if isinstance(value, list):
        return [_with_suffix(item, word, suffix) for item in value]
    return value.replace(word, suffix) if isinstance(value, str) else value


def compile_rules(table: Mapping[str, Any]) -> list[NameRule]:
    """Return the rules of a table; ValueError for malformed ones."""
    return [_rule(pattern, value) for pattern, value in table.items()]


def _rule(pattern: str, value: Any) -> NameRule:  # noqa: ANN401 (as TOML is)
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"the target of {pattern!r} must be a string or a list of strings")
    regex = "".join(_PART.get(part, re.escape(part)) for part in re.split(r"(\{.\})", pattern))
    targets = tuple(_target(text) for text in texts)
    stacks = "{x}" in pattern and not any(
        "{x}" in target.name or target.parts == ALL for target in targets
    )
    return NameRule(pattern, re.compile(regex), targets, stacks)


def _target(text: str) -> Target:
    text, _, after = text.partition("||")
    name, *steps = (part.strip() for part in text.split("|"))
    joins = re.fullmatch(r"(?P<name>.+?)\s+part\s+(?P<place>\d+)(\s+of\s+(?P<parts>\d+))?", name)
    parsed = tuple(_step(step) for step in steps)
    joined = tuple(_step(step.strip()) for step in after.split("|") if after)
    for word, parts in _PARTS.items():
        if name.endswith(word):
            return Target(name.removesuffix(word), parsed, None, parts)
    if not joins:
        return Target(name, parsed, None, 1, joined)
    parts = int(joins["parts"] or PRESENT)
    return Target(joins["name"], parsed, int(joins["place"]) - 1, parts, joined)


def _step(text: str) -> Step:
    match = _STEP.fullmatch(text)
    if not match or match["name"] not in OPERATIONS:
        names = ", ".join(sorted(OPERATIONS))
        raise ValueError(f"{text!r} is not an operation; the operations are {names}")
    return Step(match["name"], tuple(expressions.arguments(match["arguments"] or "")))


class NameIndex:
    """Rules by the outline of their pattern, for a fast lookup among ten thousand tensors."""

    def __init__(self, rules: tuple[NameRule, ...]) -> None:
        """Group the rules by outline: the pattern with `#` for each number."""
        self._rules: dict[str, list[NameRule]] = {}
        for rule in rules:
            numbered = re.sub(r"\{[ix]\}", "0", rule.pattern)
            self._rules.setdefault(outline(numbered), []).append(rule)

    def place(self, name: str) -> MatchedRule | None:
        """Return the match of a tensor's name, None if no rule matches."""
        rules = self._rules.get(outline(name), ())
        return next((m for rule in rules if (m := match_rule(rule, rule.regex, name))), None)


def outline(name: str) -> str:
    """Return a tensor's name with `#` for each number."""
    return ".".join("#" if part.isdecimal() else part for part in name.split("."))
