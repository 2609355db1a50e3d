"""Place every tensor of a checkpoint: names, order and operations, with no data read.

The order is llama.cpp's: tensors come in the order of their sources, and all stacked tensors of a
layer where the last of its experts stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple

from ggufkit.conversion.architecture.config import ConfigFacts
from ggufkit.conversion.architecture.name_rules import FIRST, NameIndex, Placed, Target
from ggufkit.conversion.tensors.moves import concat, renamed, stack
from ggufkit.conversion.tensors.operations import perform
from ggufkit.errors import CheckpointError, GGUFError
from ggufkit.model.model import Tensor


class Arrival(NamedTuple):
    """A tensor on its way: where it came from and stands among what it is joined with."""

    position: int
    place: int
    tensor: Tensor
    target: Target


@dataclass
class Heap:
    """What arrived for one tensor of the GGUF file."""

    name: str
    stacks: bool
    layer: int | None
    arrivals: list[Arrival] = field(default_factory=list)

    @property
    def last(self) -> int:
        """The position of the last arrival."""
        return max(arrival.position for arrival in self.arrivals)


@dataclass
class Placement:
    """The tensors of a GGUF file, the names that were skipped, and all that is wrong."""

    tensors: list[Tensor] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    layers: set[int] = field(default_factory=set)


def place(tensors: Iterable[Tensor], facts: ConfigFacts) -> Placement:
    """Return the tensors of the GGUF file; problems name each tensor without a place."""
    index = NameIndex(facts.architecture.rules)
    heaps: dict[str, Heap] = {}
    done = Placement()
    skip = [with_fields(pattern, facts) for pattern in facts.architecture.skip]
    for position, tensor in enumerate(tensors):
        name = rename(tensor.name, facts.architecture.rename)
        if any(fnmatchcase(name, pattern) for pattern in skip):
            done.skipped.append(tensor.name)
            continue
        placed = index.place(name)
        if placed is None or not tensor.elements:
            lacks = "no elements" if placed else f"no place in {facts.architecture.name}"
            done.problems.append(f"tensor {tensor.name!r} has {lacks}")
            continue
        if placed.layer is not None:
            done.layers.add(placed.layer)
        for target in placed.rule.targets:
            name = _target_name(placed, target, facts)
            if target.parts != FIRST or name not in heaps:
                _arrive(heaps, placed, target._replace(name=name), position, tensor)
    for heap in _in_order(list(heaps.values())):
        _finish(heap, facts, done)
    return done


def rename(name: str, table: Mapping[str, str]) -> str:
    """Return a name with all of a table replaced; `^` binds what is replaced to the beginning."""
    for old, new in table.items():
        if not old.startswith("^"):
            name = name.replace(old, new)
        elif name.startswith(old[1:]):
            name = new + name[len(old) - 1 :]
    return name


def _target_name(placed: Placed, target: Target, facts: ConfigFacts) -> str:
    """Return the name of a target with its numbers, and with the fields that it names."""
    name = target.name.replace("{i}", str(placed.layer)).replace("{x}", str(placed.expert))
    return with_fields(name, facts)


def with_fields(text: str, facts: ConfigFacts) -> str:
    """Return text with the fields that it names in braces."""
    return re.sub(r"\{(\w{2,})\}", lambda found: str(facts.lookup(found[1])), text)


def _arrive(
    heaps: dict[str, Heap], placed: Placed, target: Target, position: int, tensor: Tensor
) -> None:
    stacks = placed.rule.stacks
    heap = heaps.setdefault(target.name, Heap(target.name, stacks, placed.layer))
    where = placed.expert if stacks else target.place
    heap.arrivals.append(Arrival(position, where or 0, tensor, target))


def _in_order(heaps: list[Heap]) -> list[Heap]:
    ends: dict[int | None, int] = {}
    for heap in heaps:
        if heap.stacks:
            ends[heap.layer] = max(heap.last, ends.get(heap.layer, 0))
    return sorted(heaps, key=lambda h: (ends[h.layer] if h.stacks else h.last, h.last))


def _finish(heap: Heap, facts: ConfigFacts, done: Placement) -> None:
    """Make the tensor of a heap, or tell what keeps it from being made."""
    arrivals = sorted(heap.arrivals, key=lambda arrival: arrival.place)
    places = [arrival.place for arrival in arrivals]
    needed = max(places[-1] + 1, arrivals[0].target.parts)
    if len(places) != needed or places != list(range(needed)):
        held = ", ".join(repr(arrival.tensor.name) for arrival in arrivals[:4])
        what = "experts" if heap.stacks else "parts"
        done.problems.append(f"{heap.name} needs {needed} {what}, once each, but gets only {held}")
        return
    try:
        made = [_stepped(arrival, facts) for arrival in arrivals]
        if heap.stacks:
            made = [stack(heap.name, made)]
        elif arrivals[0].target.parts > 1:
            made = [concat(heap.name, made)]
        done.tensors.append(renamed(made[0], heap.name))
    except GGUFError as error:
        done.problems.append(f"{heap.name}: {error.message}")


def _stepped(arrival: Arrival, facts: ConfigFacts) -> Tensor:
    tensor = arrival.tensor
    for step in arrival.target.steps:
        arguments = [facts.value(argument) for argument in step.arguments]
        if None in arguments:
            missing = ", ".join(step.arguments)
            raise CheckpointError(f"config.json lacks what {step.name}({missing}) needs")
        tensor = perform(tensor, step.name, arguments)
    return tensor
