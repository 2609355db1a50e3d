"""Restores a checkpoint's tensors from a GGUF file: reads rules from target to pattern.

Tensors are ordered so that converting them gives the file's order again: by name, in as few
checkpoint files as that needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, NamedTuple

from ggufkit.conversion.architecture.config import ConfigFacts
from ggufkit.conversion.architecture.name_rules import (
    FIRST,
    PRESENT,
    NameRule,
    Step,
    Target,
    outline,
)
from ggufkit.conversion.checkpoint.mxfp4 import in_converted_order
from ggufkit.conversion.place import ITEM, in_file_order, place, rename, with_fields, with_items
from ggufkit.conversion.tensors.inverses import Done, MadeTensor, undone
from ggufkit.conversion.tensors.moves import renamed, reshape
from ggufkit.errors import CheckpointError, GGUFError, ShapeError, brief
from ggufkit.models.model import Tensor
from ggufkit.models.sources import in_order

FEW: Final = 8  # so many files are acceptable, even if small
LARGE: Final = 256 << 20  # bytes of a file; of such large ones any number is acceptable
MAX_EXPERTS: Final = 1 << 16  # far more than any model has; bounds the claims of hostile files
_EXPERT: Final = re.compile(r"\.experts\.\d+\.")


class Candidate(NamedTuple):
    """A rule with a target whose name may be that of a tensor."""

    rule: NameRule
    regex: re.Pattern[str]
    target: Target


class Claim(NamedTuple):
    """A rule with the layer and the expert that a tensor's name gives."""

    rule: NameRule
    layer: str
    expert: str

    @property
    def number(self) -> int | None:
        """The number of the layer."""
        return int(self.layer) if self.layer else None


@dataclass
class Recovered:
    """The tensors of a checkpoint by file, and a problem for each that cannot be restored."""

    files: list[list[Tensor]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def recover(
    tensors: Mapping[str, Tensor],
    facts: ConfigFacts,
    passed: Iterable[str] = (),
    extra: Sequence[Tensor] = (),
) -> Recovered:
    """Return the checkpoint's tensors: `extra` ones too, not those that conversion generates."""
    done = Recovered()
    left = {name: tensor for name, tensor in tensors.items() if name not in set(passed)}
    found: list[tuple[int, Tensor]] = []
    for order, (claim, names) in enumerate(_claims(left, facts)):
        if claim is None:
            path = facts.architecture.path
            done.problems.append(f"tensor {brief(names[0])} has no place in {path}")
            continue
        made = [left[name] for name in names]
        try:
            found += [(order, tensor) for tensor in _sources(claim, made, facts)]
        except GGUFError as error:
            done.problems.append(f"{names[0]}: {error.message}")
    found += [(len(tensors), tensor) for tensor in extra]
    if not done.problems:
        done.files = _arranged(found, list(left), facts)
    return done


# Choose rules.


def _claims(
    tensors: Mapping[str, Tensor], facts: ConfigFacts
) -> Iterator[tuple[Claim | None, list[str]]]:
    """Yield each rule that made some of the tensors, once, with the names of these tensors.

    A name without a rule comes with None, one that several rules made parts of with each.
    """
    candidates = _candidates(facts)
    claimed: set[str] = set()
    for name in tensors:
        if name in claimed:
            continue
        claims, names = _claim(name, tensors, candidates, facts)
        claimed.update(names)
        for claim in claims:
            yield claim, names


def _candidates(facts: ConfigFacts) -> dict[str, list[Candidate]]:
    """Return the rules by the outline of each target; the last rule of a file comes first."""
    found: dict[str, list[Candidate]] = {}
    for rule in facts.architecture.rules:
        for target in rule.targets:
            for template in _templates(target, facts):
                known = found.setdefault(outline(re.sub(r"\{[ix]\}", "0", template)), [])
                at = len(known) if target.parts == FIRST else 0
                known.insert(at, Candidate(rule, _regex(template), target))
    return found


def _templates(target: Target, facts: ConfigFacts) -> list[str]:
    """Return the names that a target may have: one for each kind of layer if a list tells them."""
    listed = ITEM.search(target.name)
    items = facts.value(listed[1]) if listed else None
    kinds = {str(each) for each in items} if isinstance(items, list) else {""}
    return [with_fields(ITEM.sub(kind, target.name), facts) for kind in sorted(kinds)]


def _regex(template: str) -> re.Pattern[str]:
    parts = re.split(r"\{([ix])\}", template)
    named = [f"(?P<{part}>\\d+)" if at % 2 else re.escape(part) for at, part in enumerate(parts)]
    return re.compile("".join(named))


def _claim(
    name: str,
    tensors: Mapping[str, Tensor],
    candidates: Mapping[str, Sequence[Candidate]],
    facts: ConfigFacts,
) -> tuple[Sequence[Claim | None], list[str]]:
    known = candidates.get(outline(name), ())
    for candidate in known:
        match = candidate.regex.fullmatch(name)
        if match is None:
            continue
        numbers = match.groupdict()
        claim = Claim(candidate.rule, numbers.get("i") or "", numbers.get("x") or "")
        if facts.value(facts.architecture.one_way.get(claim.rule.pattern, False), claim.number):
            continue
        if candidate.target.parts > 1:
            joined = (each for each in known if each.regex == candidate.regex)
            rules = [each.rule for each in joined if each.target.parts > 1]
            return [claim._replace(rule=rule) for rule in rules], [name]
        layer = claim.number
        names = [_filled(with_items(t.name, layer, facts), claim) for t in claim.rule.targets]
        if name in names and all(each in tensors for each in names):
            return [claim], names
    return [None], [name]


def _filled(template: str, claim: Claim) -> str:
    return template.replace("{i}", claim.layer).replace("{x}", claim.expert)


# Undo rules.


def _sources(claim: Claim, tensors: Sequence[Tensor], facts: ConfigFacts) -> Iterator[Tensor]:
    """Yield the source tensors of a rule: one, or one for each expert of a stack."""
    targets = claim.rule.targets
    steps = [_steps(target.steps, claim.number, facts) for target in targets]
    table = {old: with_fields(new, facts) for old, new in facts.architecture.rename_back.items()}
    if not claim.rule.stacks:
        claim = claim._replace(expert=claim.expert or "0")  # of parts that are joined
        after = [_steps(target.joined_steps, claim.number, facts) for target in targets]
        wholes = [
            undone([MadeTensor(_little(t), done)]) for t, done in zip(tensors, after, strict=True)
        ]
        parts = [_part(t, target) for t, target in zip(wholes, targets, strict=True)]
        pieces = [MadeTensor(part, done) for part, done in zip(parts, steps, strict=True)]
        yield renamed(
            undone(pieces), rename(_filled(claim.rule.pattern, claim), table, facts.lookup)
        )
        return
    shape = tensors[0].shape
    if len(shape) < 2 or shape[0] > MAX_EXPERTS:  # noqa: PLR2004 (experts, and the axes of each)
        raise ShapeError(f"a tensor of shape {shape} is not a stack of experts")
    for number in range(shape[0]):
        pieces = [
            MadeTensor(_expert(t, number), done) for t, done in zip(tensors, steps, strict=True)
        ]
        pattern = claim.rule.pattern.replace("{x}", str(number))
        yield renamed(undone(pieces), rename(_filled(pattern, claim), table, facts.lookup))


def _part(tensor: Tensor, target: Target) -> Tensor:
    """Return the share of a joined tensor that a target had given, all shares being equal."""
    if target.place is None:
        return tensor
    if target.parts == PRESENT:
        raise CheckpointError(f"{tensor.name!r} does not tell where the tensors in it begin")
    share = tensor.shape[0] // target.parts
    return tensor[target.place * share : (target.place + 1) * share]


def _little(tensor: Tensor) -> Tensor:
    return replace(tensor, source=in_order(tensor, "little"))


def _expert(tensor: Tensor, number: int) -> Tensor:
    return reshape(_little(tensor)[number : number + 1], tensor.shape[1:])


def _steps(steps: Iterable[Step], layer: int | None, facts: ConfigFacts) -> tuple[Done, ...]:
    """Return operations of a target; arguments that cannot be computed are None."""
    return tuple(
        Done(step.name, tuple(facts.value(argument, layer) for argument in step.arguments))
        for step in steps
    )


# Order tensors.


def _arranged(
    found: Sequence[tuple[int, Tensor]], wanted: list[str], facts: ConfigFacts
) -> list[list[Tensor]]:
    """Return the tensors by file, such that converting them gives their original order."""
    by_name = sorted((tensor for _, tensor in found), key=lambda tensor: tensor.name)
    if _order([by_name], facts) == wanted:
        return [by_name]
    runs = _runs(_grouped(found))
    mean = sum(tensor.nbytes for tensor in by_name) / len(runs)
    is_fine = len(runs) <= FEW or mean >= LARGE
    return runs if is_fine and _order(runs, facts) == wanted else [by_name]


def _order(files: Sequence[Sequence[Tensor]], facts: ConfigFacts) -> list[str]:
    held = in_converted_order([tensor for file in files for tensor in file])
    placed = in_file_order(place(held, facts).tensors, facts.architecture)
    return [tensor.name for tensor in placed]


def _grouped(found: Sequence[tuple[int, Tensor]]) -> list[Tensor]:
    """Return tensors in the file's order, with a layer's experts together and sorted by name."""
    firsts: dict[str, int] = {}
    keyed = []
    for order, tensor in found:
        stem, expert, _ = _EXPERT.sub("\n", tensor.name, count=1).partition("\n")
        key = firsts.setdefault(stem, order) if expert else order
        keyed.append((key, tensor.name, tensor))
    return [tensor for *_, tensor in sorted(keyed, key=lambda each: each[:2])]


def _runs(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """Split a sequence before each name that is less than the one before."""
    runs = [[tensor] for tensor in tensors[:1]]
    for before, after in pairwise(tensors):
        if after.name < before.name:
            runs.append([])
        runs[-1].append(after)
    return runs
