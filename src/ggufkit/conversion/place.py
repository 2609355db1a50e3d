"""Gives every tensor of a checkpoint its GGUF name, order and operations; reads no data.

The order is llama.cpp's: tensors come in the order of their sources. All stacked tensors of a
layer come at the position of the layer's last expert.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final, Generic, Protocol, TypeVar

from ggufkit.conversion.architecture.architecture import Architecture
from ggufkit.conversion.architecture.config import ConfigFacts
from ggufkit.conversion.architecture.expressions import Lookup
from ggufkit.conversion.architecture.name_rules import (
    ALL,
    FIRST,
    PRESENT,
    NameIndex,
    Placed,
    Step,
    Target,
)
from ggufkit.conversion.tensors.moves import concat, renamed, stack
from ggufkit.conversion.tensors.operations import perform
from ggufkit.errors import CheckpointError, GGUFError, brief
from ggufkit.models.model import Tensor

SHOWN: Final = 5  # names in a problem
ITEM: Final = re.compile(r"\{([\w.]+)\[i\]\}")  # in a target: the list
_NUMBER: Final = re.compile(r"\{i(?: \+ (\w+))?\}")  # in a name to replace


class Placeable(Protocol):
    """What has a place in a GGUF file: a tensor, or the factors of one in an adapter."""

    @property
    def name(self) -> str:
        """The name in the checkpoint."""

    @property
    def elements(self) -> int:
        """The number of elements."""


Item = TypeVar("Item", bound=Placeable)


class Moves(Protocol[Item]):
    """What is done with the items of a checkpoint on the way to their place."""

    def perform(self, item: Item, name: str, arguments: list[Any], /) -> Item:
        """Do the operation `name`."""

    def stack(self, name: str, items: list[Item], /) -> Item:
        """Stack experts."""

    def concat(self, name: str, items: list[Item], /) -> Item:
        """Join parts along the first axis."""

    def renamed(self, item: Item, name: str, /) -> Item:
        """Give an item its final name."""


class TensorMoves:
    """The moves of plain tensors."""

    def perform(self, item: Tensor, name: str, arguments: list[Any], /) -> Tensor:
        """Do the operation `name`."""
        return perform(item, name, arguments)

    def stack(self, name: str, items: list[Tensor], /) -> Tensor:
        """Stack experts."""
        return stack(name, items)

    def concat(self, name: str, items: list[Tensor], /) -> Tensor:
        """Join parts along the first axis."""
        return concat(name, items)

    def renamed(self, item: Tensor, name: str, /) -> Tensor:
        """Give a tensor its final name."""
        return renamed(item, name)


@dataclass(frozen=True)
class Arrival(Generic[Item]):
    """A source item: its position in the checkpoint, and its place among items to join."""

    position: int
    place: int
    item: Item
    target: Target


@dataclass
class Heap(Generic[Item]):
    """The source tensors of one tensor of the GGUF file."""

    name: str
    stacks: bool
    layer: int | None
    arrivals: list[Arrival[Item]] = field(default_factory=list)

    @property
    def last(self) -> int:
        """The position of the last arrival."""
        return max(arrival.position for arrival in self.arrivals)


@dataclass
class Placement(Generic[Item]):
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
        matching = (at for at, pattern in enumerate(first) if fnmatchcase(tensor.name, pattern))
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
    for at, rule in enumerate(facts.architecture.rules):
        places[rule.pattern] = starts.setdefault(rule.pattern.partition("{i}")[0], at), at

    def rank(tensor: Tensor) -> tuple[bool, int, int, int]:
        is_ordered = tensor.name.startswith(facts.architecture.ordered)
        name = rename(tensor.name, facts.architecture.rename, facts.lookup)
        placed = index.place(name) if is_ordered else None
        start, at = places[placed.rule.pattern] if placed else (0, 0)
        return not is_ordered, start, (placed and placed.layer) or 0, at

    return sorted(tensors, key=rank)


def place(tensors: Iterable[Tensor], facts: ConfigFacts) -> Placement[Tensor]:
    """Return the tensors of the GGUF file; problems name each tensor without a place."""
    return place_items(tensors, facts, TensorMoves())


def place_items(items: Iterable[Item], facts: ConfigFacts, moves: Moves[Item]) -> Placement[Item]:
    """Return the items of the GGUF file, moved by `moves`; problems as for `place`."""
    index = NameIndex(facts.architecture.rules)
    heaps: dict[str, Heap[Item]] = {}
    done: Placement[Item] = Placement()
    unplaced: list[str] = []
    skip = [with_fields(pattern, facts) for pattern in facts.architecture.skip]
    only = facts.architecture.only or ("*",)
    for position, item in enumerate(items):
        name = rename(item.name, facts.architecture.rename, facts.lookup)
        if _matches(name, skip) or not _matches(name, only):
            done.skipped.append(item.name)
            continue
        placed = index.place(name)
        if placed is None:
            unplaced.append(item.name)
            continue
        if not item.elements:
            done.problems.append(f"tensor {brief(item.name)} has no elements")
            continue
        if placed.layer is not None:
            done.layers.add(placed.layer)
        for target in placed.rule.targets:
            name = _target_name(placed, target, facts)
            if target.parts == FIRST and name in heaps:
                continue
            heap = heaps.setdefault(name, Heap(name, placed.rule.stacks, placed.layer))
            is_numbered = heap.stacks or target.parts == ALL
            where = placed.expert if is_numbered else target.place
            heap.arrivals.append(Arrival(position, where or 0, item, target))
    done.problems.extend(_about_unplaced(unplaced, facts.architecture.name))
    for heap in _in_order(list(heaps.values()), facts.architecture.stacks):
        try:
            done.tensors.append(_finished(heap, facts, moves))
            done.sources[heap.name] = max(heap.arrivals, key=lambda each: each.position).item.name
        except GGUFError as error:  # noqa: PERF203 (each error is reported)
            done.problems.append(f"{heap.name}: {error.message}")
    return done


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _about_unplaced(names: list[str], architecture: str) -> Iterator[str]:
    """Yield one line for all tensors that the architecture does not know."""
    if len(names) == 1:
        yield f"tensor {brief(names[0])} has no place in {architecture}"
    elif names:
        shown = ", ".join(brief(name) for name in names[:SHOWN])
        more = ", ..." if len(names) > SHOWN else ""
        yield f"{len(names)} tensors have no place in {architecture}: {shown}{more}"


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
    found = re.search(f"{'^' if old.startswith('^') else ''}{before}(\\d+){after}", name)
    if not found:
        return name
    number = int(found[1]) - _offset(old, lookup)
    if number < 0:
        return name
    made = _NUMBER.sub(str(number + _offset(new, lookup)), new)
    return name[: found.start()] + made + name[found.end() :]


def _offset(template: str, lookup: Lookup) -> int:
    found = _NUMBER.search(template)
    value = lookup(found[1]) if found and found[1] else 0
    return value if isinstance(value, int) else 0


def _target_name(placed: Placed, target: Target, facts: ConfigFacts) -> str:
    """Return the name of a target with its numbers and fields filled in."""
    name = target.name.replace("{i}", str(placed.layer)).replace("{x}", str(placed.expert))
    return with_items(name, placed.layer, facts)


def with_items(text: str, number: int | None, facts: ConfigFacts) -> str:
    """Return text with fields of the configuration, and items of lists by a tensor's number."""
    return with_fields(ITEM.sub(lambda each: _item(each[1], number, facts), text), facts)


def _item(expression: str, number: int | None, facts: ConfigFacts) -> str:
    """Return the item of a list of the configuration that a tensor's number points to."""
    items = facts.value(expression)
    if not isinstance(items, list) or not 0 <= (number or 0) < len(items):
        raise CheckpointError(f"{expression} is {brief(items)}, but a tensor has number {number}")
    return str(items[number or 0])


def with_fields(text: str, facts: ConfigFacts) -> str:
    """Return text with each {name} replaced by that field of the configuration."""
    return re.sub(r"\{(\w{2,})\}", lambda found: str(facts.lookup(found[1])), text)


def _in_order(heaps: list[Heap[Item]], stacks: Sequence[str]) -> list[Heap[Item]]:
    """Return the heaps by position; `stacks` orders a layer's stacks, else their sources do."""
    ends: dict[int | None, int] = {}
    for heap in heaps:
        if heap.stacks and heap.layer is not None:
            ends[heap.layer] = max(heap.last, ends.get(heap.layer, 0))
    names = {name: place - len(stacks) for place, name in enumerate(stacks)}
    return sorted(
        heaps,
        key=lambda h: (
            (ends.get(h.layer, h.last), names.get(h.name.replace(f".{h.layer}.", ".{i}."), h.last))
            if h.stacks
            else (h.last, h.last)
        ),
    )


def _finished(heap: Heap[Item], facts: ConfigFacts, moves: Moves[Item]) -> Item:
    """Return the tensor of a heap; GGUFError if it cannot be made."""
    arrivals = sorted(heap.arrivals, key=lambda arrival: arrival.place)
    places = [arrival.place for arrival in arrivals]
    target = arrivals[0].target
    needed = max(places[-1] + 1, target.parts)
    if target.parts == PRESENT:
        places = list(range(needed)) if len({*places}) == len(places) else places
    if len(places) != needed or places != list(range(needed)):
        held = ", ".join(repr(arrival.item.name) for arrival in arrivals[:4])
        what = "experts" if heap.stacks else "parts"
        raise CheckpointError(f"it needs {needed} {what}, once each, but gets only {held}")
    made = [_stepped(each.item, each.target.steps, heap.layer, facts, moves) for each in arrivals]
    if heap.stacks:
        made = [moves.stack(heap.name, made)]
    elif target.parts > 1 or target.parts in (ALL, PRESENT):
        made = [moves.concat(heap.name, made)]
    done = _stepped(made[0], target.joined_steps, heap.layer, facts, moves)
    return moves.renamed(done, heap.name)


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
