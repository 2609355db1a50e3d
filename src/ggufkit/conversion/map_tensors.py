"""Gives every tensor of a checkpoint its GGUF name, order and operations; reads no data.

The order is llama.cpp's: tensors come in the order of their sources. All stacked tensors of a
layer come at the position of the layer's last expert.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final, Generic, TypeVar

from ggufkit.conversion.architecture.architecture import Architecture
from ggufkit.conversion.architecture.config import ConfigFacts
from ggufkit.conversion.architecture.expressions import Lookup
from ggufkit.conversion.architecture.name_rules import ALL, FIRST, PRESENT, NameIndex, Step, Target
from ggufkit.conversion.tensors.moves import concat, renamed, stack
from ggufkit.conversion.tensors.operations import perform
from ggufkit.errors import CheckpointError, GGUFError, brief, first_names
from ggufkit.models.model import Tensor
from ggufkit.models.sources import retyped

ITEM: Final = re.compile(r"\{([\w.]+)\[i\]\}")  # in a target: the list
_NUMBER: Final = re.compile(r"\{i(?: \+ (\w+))?\}")  # in a name to replace


# A tensor, or the factors of one in an adapter: both have `name` and `elements`.
Item = TypeVar("Item", bound=Any)


@dataclass(frozen=True)
class Moves(Generic[Item]):
    """The operations on the items of a checkpoint when they are mapped."""

    perform: Callable[[Item, str, list[Any]], Item]  # the operation of a name
    stack: Callable[[str, list[Item]], Item]  # experts
    concat: Callable[[str, list[Item]], Item]  # parts, along the first axis
    renamed: Callable[[Item, str], Item]


@dataclass(frozen=True)
class SourceTensor(Generic[Item]):
    """A source item: its position in the checkpoint, and its index among items to join."""

    position: int
    index: int
    item: Item
    target: Target


@dataclass
class TensorGroup(Generic[Item]):
    """The source tensors of one tensor of the GGUF file."""

    name: str
    stacks: bool
    layer: int | None
    sources: list[SourceTensor[Item]] = field(default_factory=list)

    @property
    def last(self) -> int:
        """The position of the last source."""
        return self.sources[-1].position


@dataclass
class TensorMapping(Generic[Item]):
    """The tensors of a GGUF file, the names that were skipped, and all problems."""

    tensors: list[Item] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    layers: set[int] = field(default_factory=set)
    sources: dict[str, str] = field(default_factory=dict)  # the last source of each tensor


def in_file_order(tensors: Iterable[Tensor], architecture: Architecture) -> list[Tensor]:
    """Return placed tensors with the `first` ones before and the `last` ones after all others."""
    first = architecture.first

    def rank(tensor: Tensor) -> tuple[bool, int]:
        matching = (
            index for index, pattern in enumerate(first) if fnmatchcase(tensor.name, pattern)
        )
        return tensor.name in architecture.last, next(matching, len(first))

    return sorted(tensors, key=rank)


def in_pattern_order(tensors: Iterable[Tensor], facts: ConfigFacts) -> list[Tensor]:
    """Return tensors with the `ordered` ones first, in the order of their patterns.

    Patterns with the same beginning before `{i}` give the tensors of a layer: these come layer by
    layer.
    """
    index = NameIndex(facts.architecture.rules)
    starts: dict[str, int] = {}
    places: dict[str, tuple[int, int]] = {}
    for place, rule in enumerate(facts.architecture.rules):
        places[rule.pattern] = starts.setdefault(rule.pattern.partition("{i}")[0], place), place

    def rank(tensor: Tensor) -> tuple[bool, int, int, int]:
        is_ordered = tensor.name.startswith(facts.architecture.ordered)
        name = rename(tensor.name, facts.architecture.rename, facts.lookup)
        matched = index.place(name) if is_ordered else None
        start, place = places[matched.rule.pattern] if matched else (0, 0)
        return not is_ordered, start, (matched and matched.layer) or 0, place

    return sorted(tensors, key=rank)


def map_tensors(tensors: Iterable[Tensor], facts: ConfigFacts) -> TensorMapping[Tensor]:
    """Return the tensors of the GGUF file; problems name each tensor without a place."""

    def stack_of_any(name: str, tensors: Sequence[Tensor]) -> Tensor:
        if facts.exactly and len({tensor.type for tensor in tensors}) > 1:
            tensors = [retyped(tensor, "F32") for tensor in tensors]
        return stack(name, tensors)

    act = functools.partial(perform, exactly=facts.exactly)
    return map_items(tensors, facts, Moves(act, stack_of_any, concat, renamed))


def map_items(items: Iterable[Item], facts: ConfigFacts, moves: Moves[Item]) -> TensorMapping[Item]:
    """Return the items of the GGUF file, moved by `moves`; problems as for `map_tensors`."""
    index = NameIndex(facts.architecture.rules)
    groups: dict[str, TensorGroup[Item]] = {}
    mapping: TensorMapping[Item] = TensorMapping()
    unmatched: list[str] = []
    skip = [with_fields(pattern, facts) for pattern in facts.architecture.skip]
    only = facts.architecture.only or ("*",)
    for position, item in enumerate(items):
        name = rename(item.name, facts.architecture.rename, facts.lookup)
        if _matches(name, skip) or not _matches(name, only):
            mapping.skipped.append(item.name)
            continue
        matched = index.place(name)
        if matched is None:
            unmatched.append(item.name)
            continue
        if not item.elements:
            mapping.problems.append(f"tensor {brief(item.name)} has no elements")
            continue
        if matched.layer is not None:
            mapping.layers.add(matched.layer)
        for target in matched.rule.targets:
            name = with_items(matched.fill(target.name), matched.layer, facts)
            if target.parts == FIRST and name in groups:
                continue
            group = groups.setdefault(name, TensorGroup(name, matched.rule.stacks, matched.layer))
            is_numbered = group.stacks or target.parts == ALL
            number = matched.expert if is_numbered else target.place
            group.sources.append(SourceTensor(position, number or 0, item, target))
    mapping.problems.extend(_about_unmatched(unmatched, facts.architecture.name))
    for group in _in_order(list(groups.values()), facts.architecture.stacks):
        try:
            mapping.tensors.append(_finished(group, facts, moves))
            mapping.sources[group.name] = group.sources[-1].item.name
        except GGUFError as error:  # noqa: PERF203 (each error is reported)
            mapping.problems.append(f"{group.name}: {error.message}")
    return mapping


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _about_unmatched(names: list[str], architecture: str) -> Iterator[str]:
    if len(names) == 1:
        yield f"tensor {brief(names[0])} is unknown to {architecture}"
    elif names:
        listed = first_names([brief(name) for name in names])
        yield f"{len(names)} tensors are unknown to {architecture}: {listed}"


def rename(name: str, table: Mapping[str, str], lookup: Lookup) -> str:
    """Return a name after the replacements of a table; `^` matches only at the beginning.

    `{i}` is a number, and `{i + field}` one that is larger by a field of the configuration.
    """
    for old, new in table.items():
        if "{i" in old:
            name = _renumbered(name, old, new, lookup)
        elif not old.startswith("^"):
            name = name.replace(old, new)
        elif name.startswith(old[1:]):
            name = new + name[len(old) - 1 :]
    return name


def _renumbered(name: str, old: str, new: str, lookup: Lookup) -> str:
    """Return a name with a number counted otherwise, the same name if it has no such number."""
    before, _, after = (
        re.escape(part) for part in _NUMBER.sub("\0", old.lstrip("^")).partition("\0")
    )
    match = re.search(f"{'^' if old.startswith('^') else ''}{before}(\\d+){after}", name)
    if not match:
        return name
    number = int(match[1]) - _offset(old, lookup)
    if number < 0:
        return name
    renumbered = _NUMBER.sub(str(number + _offset(new, lookup)), new)
    return name[: match.start()] + renumbered + name[match.end() :]


def _offset(template: str, lookup: Lookup) -> int:
    match = _NUMBER.search(template)
    value = lookup(match[1]) if match and match[1] else 0
    return value if isinstance(value, int) else 0


def with_items(text: str, number: int | None, facts: ConfigFacts) -> str:
    """Return text with fields of the configuration, and items of lists by a tensor's number."""
    return with_fields(ITEM.sub(lambda match: _item(match[1], number, facts), text), facts)


def _item(expression: str, number: int | None, facts: ConfigFacts) -> str:
    items = facts.value(expression)
    if not isinstance(items, list) or not 0 <= (number or 0) < len(items):
        raise CheckpointError(f"{expression} is {brief(items)}, but a tensor has number {number}")
    return str(items[number or 0])


def with_fields(text: str, facts: ConfigFacts) -> str:
    """Return text with each {name} replaced by that field of the configuration."""
    return re.sub(r"\{(\w{2,})\}", lambda match: str(facts.lookup(match[1])), text)


def _in_order(groups: list[TensorGroup[Item]], stacks: Sequence[str]) -> list[TensorGroup[Item]]:
    """Return the groups by position; `stacks` orders a layer's stacks, else their sources do."""
    ends: dict[int | None, int] = {}
    for group in groups:
        if group.stacks and group.layer is not None:
            ends[group.layer] = max(group.last, ends.get(group.layer, 0))
    names = {name: index - len(stacks) for index, name in enumerate(stacks)}
    return sorted(
        groups,
        key=lambda g: (
            (ends.get(g.layer, g.last), names.get(g.name.replace(f".{g.layer}.", ".{i}."), g.last))
            if g.stacks
            else (g.last, g.last)
        ),
    )


def _finished(group: TensorGroup[Item], facts: ConfigFacts, moves: Moves[Item]) -> Item:
    sources = sorted(group.sources, key=lambda source: source.index)
    indexes = [source.index for source in sources]
    target = sources[0].target
    needed = max(indexes[-1] + 1, target.parts)
    if target.parts == PRESENT:
        indexes = list(range(needed)) if len({*indexes}) == len(indexes) else indexes
    if len(indexes) != needed or indexes != list(range(needed)):
        names = ", ".join(repr(source.item.name) for source in sources[:4])
        what = "experts" if group.stacks else "parts"
        raise CheckpointError(f"it needs {needed} {what}, once each, but gets only {names}")
    items = [_stepped(part.item, part.target.steps, group.layer, facts, moves) for part in sources]
    if group.stacks:
        items = [moves.stack(group.name, items)]
    elif target.parts > 1 or target.parts in (ALL, PRESENT):
        items = [moves.concat(group.name, items)]
    tensor = _stepped(items[0], target.joined_steps, group.layer, facts, moves)
    return moves.renamed(tensor, group.name)


def _stepped(
    item: Item, steps: Iterable[Step], layer: int | None, facts: ConfigFacts, moves: Moves[Item]
) -> Item:
    for step in steps:
        arguments = [facts.value(argument, layer) for argument in step.arguments]
        if None in arguments:
            missing = ", ".join(step.arguments)
            raise CheckpointError(f"config.json lacks what {step.name}({missing}) needs")
        item = moves.perform(item, step.name, arguments)
    return item
