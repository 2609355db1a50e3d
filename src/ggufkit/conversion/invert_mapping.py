"""Restores a checkpoint's tensors from a GGUF file: reads rules from target to pattern.

If a rule gives one tensor to several targets, a step of each target takes its part (`split`,
`part`, `every`, `rows`). Later steps are undone for each part, the parts are joined, and earlier
steps are undone for the whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from ggufkit.conversion.architecture.config import ConfigFacts
from ggufkit.conversion.architecture.name_rules import (
    FIRST,
    PRESENT,
    MatchedRule,
    NameRule,
    Step,
    Target,
    match_rule,
    outline,
)
from ggufkit.conversion.map_tensors import ITEM, rename, with_fields, with_items
from ggufkit.conversion.tensors.moves import concat, renamed, reshape, take
from ggufkit.conversion.tensors.operations import OPERATIONS, undo
from ggufkit.errors import CheckpointError, GGUFError, ShapeError, brief
from ggufkit.models.model import Tensor
from ggufkit.models.sources import in_order

MAX_EXPERTS: Final = 1 << 16  # far more than any model has; limits the work for a hostile file


class ConvertedTensor(NamedTuple):
    """A tensor of the GGUF file and the operations that made it."""

    tensor: Tensor
    steps: tuple[Step, ...]


class Candidate(NamedTuple):
    """A rule and one of its targets, whose name may match a tensor."""

    rule: NameRule
    regex: re.Pattern[str]
    target: Target


def invert_mapping(
    tensors: Mapping[str, Tensor], facts: ConfigFacts
) -> tuple[list[Tensor], list[str]]:
    """Return the checkpoint's tensors, and a problem for each that cannot be restored.

    Tensors that conversion generates are left out.
    """
    sources: list[Tensor] = []
    problems: list[str] = []
    architecture = facts.architecture
    converted = {name: t for name, t in tensors.items() if name not in architecture.generated}
    for match, names in _matches(converted, facts):
        if match is None:
            problems.append(f"tensor {brief(names[0])} is unknown to {architecture.path}")
            continue
        try:
            sources += _sources(match, [converted[name] for name in names], facts)
        except GGUFError as error:
            problems.append(f"{names[0]}: {error.message}")
    return sources, problems


def _matches(
    tensors: Mapping[str, Tensor], facts: ConfigFacts
) -> Iterator[tuple[MatchedRule | None, list[str]]]:
    """Yield each rule that made some of the tensors, once, with the names of these tensors.

    A name without a rule comes with None, one that several rules made parts of with each.
    """
    candidates = _candidates(facts)
    claimed: set[str] = set()
    for name in tensors:
        if name in claimed:
            continue
        matches, names = _match(name, tensors, candidates, facts)
        claimed.update(names)
        for match in matches:
            yield match, names


def _candidates(facts: ConfigFacts) -> dict[str, list[Candidate]]:
    candidates: dict[str, list[Candidate]] = {}
    for rule in facts.architecture.rules:
        for target in rule.targets:
            for template in _templates(target, facts):
                rivals = candidates.setdefault(outline(re.sub(r"\{[ix]\}", "0", template)), [])
                count = len(rivals) if target.parts == FIRST else 0
                rivals.insert(count, Candidate(rule, _regex(template), target))
    return candidates


def _templates(target: Target, facts: ConfigFacts) -> list[str]:
    """Return the names that a target may have: one for each kind of layer if there is a list."""
    listed = ITEM.search(target.name)
    items = facts.value(listed[1]) if listed else None
    kinds = {str(item) for item in items} if isinstance(items, list) else {""}
    return [with_fields(ITEM.sub(kind, target.name), facts) for kind in sorted(kinds)]


def _regex(template: str) -> re.Pattern[str]:
    parts = re.split(r"\{([ix])\}", template)
    groups = [
        f"(?P<{part}>\\d+)" if index % 2 else re.escape(part) for index, part in enumerate(parts)
    ]
    return re.compile("".join(groups))


def _match(
    name: str,
    tensors: Mapping[str, Tensor],
    candidates: Mapping[str, Sequence[Candidate]],
    facts: ConfigFacts,
) -> tuple[Sequence[MatchedRule | None], list[str]]:
    rivals = candidates.get(outline(name), ())
    for candidate in rivals:
        match = match_rule(candidate.rule, candidate.regex, name)
        if match is None:
            continue
        if facts.value(facts.architecture.one_way.get(match.rule.pattern, False), match.layer):
            continue
        if candidate.target.parts > 1:
            same = (rival for rival in rivals if rival.regex == candidate.regex)
            rules = [rival.rule for rival in same if rival.target.parts > 1]
            return [match._replace(rule=rule) for rule in rules], [name]
        targets = match.rule.targets
        names = [match.fill(with_items(t.name, match.layer, facts)) for t in targets]
        if name in names and all(part in tensors for part in names):
            return [match], names
    return [None], [name]


def _sources(match: MatchedRule, tensors: Sequence[Tensor], facts: ConfigFacts) -> Iterator[Tensor]:
    targets = match.rule.targets
    steps = [_steps(target.steps, match.layer, facts) for target in targets]
    table = {old: with_fields(new, facts) for old, new in facts.architecture.rename_back.items()}
    shape = tensors[0].shape
    if not match.rule.stacks:
        after = [_steps(target.joined_steps, match.layer, facts) for target in targets]
        wholes = [
            undone([ConvertedTensor(_little(t), a)]) for t, a in zip(tensors, after, strict=True)
        ]
        parts = [_part(t, target) for t, target in zip(wholes, targets, strict=True)]
        inputs = iter([(match.expert or 0, parts)])  # 0 for experts that are joined
    elif len(shape) < 2 or shape[0] > MAX_EXPERTS:  # noqa: PLR2004 (experts, and the axes of each)
        raise ShapeError(f"a tensor of shape {shape} is not a stack of experts")
    else:
        inputs = (
            (n, [reshape(_little(t)[n : n + 1], t.shape[1:]) for t in tensors])
            for n in range(shape[0])
        )
    for expert, parts in inputs:
        pieces = [ConvertedTensor(part, step) for part, step in zip(parts, steps, strict=True)]
        name = match._replace(expert=expert).fill(match.rule.pattern)
        yield renamed(undone(pieces), rename(name, table, facts.lookup))


def _part(tensor: Tensor, target: Target) -> Tensor:
    """Return the share of a joined tensor that a target had given, all shares being equal."""
    if target.place is None:
        return tensor
    if target.parts == PRESENT:
        raise CheckpointError(f"{tensor.name!r} does not show where the tensors in it begin")
    share = tensor.shape[0] // target.parts
    return tensor[target.place * share : (target.place + 1) * share]


def _little(tensor: Tensor) -> Tensor:
    return replace(tensor, source=in_order(tensor, "little"))


def _steps(steps: Iterable[Step], layer: int | None, facts: ConfigFacts) -> tuple[Step, ...]:
    """Return operations of a target; arguments that cannot be computed are None."""
    return tuple(
        Step(step.name, tuple(facts.value(argument, layer) for argument in step.arguments))
        for step in steps
    )


def undone(pieces: Sequence[ConvertedTensor]) -> Tensor:
    """Return the tensor that all pieces were cut from."""
    pieces = [p for p in pieces if all(OPERATIONS[step.name].uses_input for step in p.steps)]
    cuts = [_cut(piece.steps) for piece in pieces]
    if len(pieces) == 1:
        return _undo(pieces[0].tensor, pieces[0].steps)
    if None in cuts:
        raise CheckpointError(f"{pieces[0].tensor.name!r} and others have no way back")
    parts = [
        (piece.steps[cut], _undo(piece.tensor, piece.steps[cut + 1 :]))
        for piece, cut in zip(pieces, cuts, strict=True)
        if cut is not None
    ]
    return _undo(_joined(parts), pieces[0].steps[: cuts[0]])


def _cut(steps: Sequence[Step]) -> int | None:
    return next((index for index, step in enumerate(steps) if OPERATIONS[step.name].parts), None)


def _undo(tensor: Tensor, steps: Sequence[Step]) -> Tensor:
    if steps and not tensor.shape:
        raise ShapeError(f"{tensor.name!r} is one number, and no {steps[0].name} makes one")
    for step in reversed(steps):
        tensor = undo(tensor, step.name, step.arguments)
    return tensor


def _joined(parts: Sequence[tuple[Step, Tensor]]) -> Tensor:
    """Join parts in order: one after the other, or interleaved if they took every n-th row."""
    ordered = [tensor for _, tensor in sorted(parts, key=lambda part: part[0].arguments[0])]
    first = ordered[0]
    rule = OPERATIONS[parts[0][0].name].parts
    assert rule is not None  # noqa: S101 (`_cut` found it so)
    axis = rule.axis(first)
    outer = int(np.prod(first.shape[:axis], dtype=np.int64))
    counts = [tensor.shape[axis] for tensor in ordered]
    inner = first.shape[axis + 1 :]
    flat = [reshape(t, (outer * n, *inner)) for t, n in zip(ordered, counts, strict=True)]
    starts = np.cumsum([0, *(outer * n for n in counts)])
    blocks = [
        start + np.arange(outer * n).reshape(outer, n)
        for start, n in zip(starts, counts, strict=False)
    ]
    index = np.stack(blocks, axis=2) if rule.in_turns else np.concatenate(blocks, axis=1)
    shape = (*first.shape[:axis], sum(counts), *inner)
    return take(concat(first.name, flat), np.ascontiguousarray(index).reshape(-1), shape)
