"""Improve the types for a target size by trying them on a text.

Sensitivities are measured for single groups, but errors interact. So whole choices of types are
tried in a loaded model: the best types by several losses, and the recipes that fit. Then the
sensitivity of one group after the other is raised or lowered, and a change that predicts the text
better stays. Each try solves the problem of sizes again, so all results have the target size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from ggufkit.evaluation.reading import CONTEXT
from ggufkit.evaluation.scores import ScoreValues
from ggufkit.evaluation.statistics import interval
from ggufkit.evaluation.variants import Variants
from ggufkit.format.types import TensorType
from ggufkit.models.model import Model
from ggufkit.models.open import open as open_model
from ggufkit.quantization.file_keys import hessian_keys
from ggufkit.quantization.losses.sensitivities import Losses, Sensitivity, losses_by_kind
from ggufkit.quantization.quantize import QuantizeOptions, decide, hessian_of
from ggufkit.quantization.recipes import RECIPES
from ggufkit.quantization.sensitivity import require_plain
from ggufkit.quantization.target import SizeProblem, opened_sensitivity, size_problem
from ggufkit.system.descriptors import AnyPath
from ggufkit.system.threads import Progress

if TYPE_CHECKING:
    from typing_extensions import Unpack

STEPS: Final = 24  # passes over the text, after the first choices
FACTORS: Final = (2.0, 0.5)  # for the sensitivity of a group
RECIPES_TRIED: Final = 2  # of those that fit, the largest
CONFIDENCE: Final = 0.68  # confidence: one standard error, for a change that costs nothing
Types = Mapping[str, TensorType]


@dataclass(frozen=True)
class Trial:
    """A choice of types: what it was, and its mean divergence from the unquantized model."""

    what: str
    divergence: float
    is_kept: bool


@dataclass(frozen=True)
class Repaired:
    """The best types that were found, and all trials in their order."""

    types: dict[str, TensorType]
    trials: tuple[Trial, ...]


@dataclass
class _Trials:
    """The best choice so far, and how others are tried."""

    divergence_of: Callable[[Types], ScoreValues]
    progress: Callable[[int], None]
    types: dict[str, TensorType] = field(default_factory=dict)
    best: ScoreValues | None = None
    trials: list[Trial] = field(default_factory=list)

    def attempt(self, what: str, types: Types) -> bool:
        """Try types; keep them if the text shows that they are better than the best so far."""
        divergence = self.divergence_of(types)
        is_kept = self.best is None
        if self.best is not None:  # better by more than chance? The figures are of chunks.
            middle, reach = interval(divergence - self.best, CONFIDENCE)
            is_kept = middle + (0.0 if math.isinf(reach) else reach) < 0
        if is_kept:
            self.best, self.types = divergence, dict(types)
        self.trials.append(Trial(what, float(divergence.mean()), is_kept))
        self.progress(len(self.trials))
        return is_kept


@dataclass
class _LoadedTypes:
    """A loaded model as it is quantized now: only tensors whose types change are made again."""

    variants: Variants
    model: Model
    options: QuantizeOptions
    types: dict[str, TensorType] = field(default_factory=dict)

    def divergence(self, types: Types) -> ScoreValues:
        chosen: QuantizeOptions = {**self.options, "types": types}
        quantized = decide(self.model, **chosen).model
        for name, kind in types.items():
            if self.variants.uses(name) and self.types.get(name) != kind:
                self.variants.change(name, quantized.tensors[name].numpy())
                self.types[name] = kind
        values: ScoreValues = self.variants.predict().field("divergence").mean(axis=1)
        return values


def repair(  # noqa: PLR0913 (the options of `target` and `evaluate`)
    path: AnyPath,
    text: AnyPath,
    *,
    nbytes: int | None = None,
    bpw: float | None = None,
    sensitivity: Sensitivity | AnyPath,
    steps: int = STEPS,
    context: int = CONTEXT,
    chunks: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    **options: Unpack[QuantizeOptions],
) -> Repaired:
    """Return types for a target size that predict a text best, and what was tried.

    `text` should differ from the text of the `sensitivity`. It is read once for each try: by
    the choice of `target` with and without sensitivities, by recipes that fit, and for `steps`
    changes. `options` go to `quantize`. Raises what `target` and `evaluate` raise.
    """
    opened = opened_sensitivity(sensitivity)
    assert opened is not None  # noqa: S101 (for mypy)
    hessian = hessian_of(options)
    if hessian:  # opened and read once, for all tries
        options["hessian"] = hessian
        options["imatrix"] = options.get("imatrix") or hessian.importance()
    with (
        open_model(path) as model,
        Variants(
            require_plain(model, path), text, context=context, chunks=chunks, threads=threads
        ) as variants,
    ):
        problem = size_problem(
            model,
            nbytes=nbytes,
            bpw=bpw,
            imatrix=options.get("imatrix"),
            override_kv={**(options.get("override_kv") or {}), **dict(hessian_keys(hessian))},
            threads=threads,
        )
        starts = _first_choices(opened, problem.options)
        recipes = list(_recipes_that_fit(model, problem, options))
        total = len(starts) + len(recipes) + steps
        tried = _Trials(
            _LoadedTypes(variants, model, options).divergence,
            lambda count: progress(count, total) if progress else None,
        )
        survivors = [
            losses for what, losses in starts.items() if tried.attempt(what, problem.types(losses))
        ]
        for name, types in recipes:
            tried.attempt(f"recipe {name}", types)
        # The last of `survivors` is the best of them: each was better than those before.
        _change_groups(tried, problem, opened, survivors[-1], steps)
    if progress:
        progress(total, total)
    return Repaired(tried.types, tuple(tried.trials))


def _first_choices(sensitivity: Sensitivity, names: Collection[str]) -> dict[str, Losses]:
    measured, by_kind = sensitivity.losses(names), losses_by_kind(names)

    def mean(name: str, error: float) -> float:
        return math.sqrt(measured[name](error) * by_kind[name](error))

    return {
        "measured sensitivities": measured,
        "sensitivities by kind": by_kind,
        "the mean of both": {name: partial(mean, name) for name in names},
    }


def _recipes_that_fit(
    model: Model, problem: SizeProblem, options: QuantizeOptions
) -> Iterator[tuple[str, Types]]:
    recipes = []
    for name, recipe in RECIPES.items():
        result = decide(model, recipe, imatrix=options.get("imatrix"))
        if result.uncovered:
            continue
        tensors = (d.after for d in result.decisions if d.after.name in problem.options)
        types = {tensor.name: tensor.type for tensor in tensors}
        nbytes = problem.nbytes_of(types)
        if nbytes is not None and nbytes <= problem.allowance:
            recipes.append((nbytes, name, types))
    recipes.sort(key=lambda pair: pair[0], reverse=True)
    for _, name, types in recipes[:RECIPES_TRIED]:
        yield name, types


def _change_groups(
    tried: _Trials, problem: SizeProblem, sensitivity: Sensitivity, losses: Losses, steps: int
) -> None:
    groups = [group for group in sensitivity.groups if group.levels]
    changed = dict(losses)
    remaining = steps
    for group in sorted(groups, key=lambda g: -g.levels[-1].divergence):
        for factor in FACTORS:
            other = {**changed, **_scaled(changed, group.tensors, factor)}
            types = problem.types(other)
            if types == tried.types:
                continue
            if not remaining:
                return
            remaining -= 1
            if tried.attempt(f"{group.name} x {factor:g}", types):
                changed = other
                break


def _scaled(losses: Losses, names: Collection[str], factor: float) -> Losses:
    def scaled(loss: Callable[[float], float], error: float) -> float:
        return factor * loss(error)

    return {name: partial(scaled, losses[name]) for name in names if name in losses}
