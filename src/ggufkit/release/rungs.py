"""The quantized files of a release: what each will be, and which of them make no sense."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from ggufkit.errors import GGUFError
from ggufkit.inspection.estimate import estimate
from ggufkit.models.model import Model, bits_per_weight
from ggufkit.output.layout import Layout, layout
from ggufkit.quantization.decision import Quantization
from ggufkit.quantization.provenance import UNREAD, with_provenance
from ggufkit.quantization.quantize import QuantizeOptions, decide, refuse
from ggufkit.quantization.recipe_files import RECIPE_SUFFIX, read_recipe
from ggufkit.quantization.target import target
from ggufkit.release.settings import Settings
from ggufkit.release.source import type_of

CONTEXT: Final = 8192  # tokens, for the memory that a file takes
NO_DATA: Final = "it needs importance data; set calibration or imatrix"
SAME_TYPE: Final = "the model has this type already"
EXPECTED: Final = (NO_DATA, SAME_TYPE)  # reasons that are not problems
MOST_FALLBACKS: Final = 0.5  # of the tensors that a recipe quantizes


@dataclass(frozen=True)
class Rung:
    """One quantized file: `label` is its name in settings, `stem` what all files begin with."""

    label: str
    stem: str
    result: Quantization
    shard_bytes: int

    @property
    def name(self) -> str:
        """The name of the recipe, or the target size."""
        return Path(self.label).stem if self.label.endswith(RECIPE_SUFFIX) else self.label

    @property
    def file(self) -> str:
        """The name of the file, before it is split."""
        return f"{self.stem}-{self.name}.gguf"

    @property
    def plan(self) -> Layout:
        """The layout of its files."""
        return layout(self.result.model, self.file, shard_size=self.shard_bytes)

    @property
    def facts(self) -> dict[str, Any]:
        """What the card says of it."""
        quantized = [d for d in self.result.decisions if d.is_changed and d.after.type.is_quantized]
        return {
            "recipe": self.name,
            "nbytes": self.plan.nbytes,
            "bits_per_weight": bits_per_weight(self.result.model.tensors.values()),
            "quantized": len(quantized),
            "fallbacks": sum(d.fell_from is not None for d in quantized),
            "memory": memory_of(self.result.model),
        }


class Refusal(NamedTuple):
    """A rung that cannot be made; it is a problem unless its reason is `EXPECTED`."""

    name: str
    reason: str
    is_problem: bool


def memory_of(model: Model) -> int | None:
    """Return the bytes that a model takes in llama.cpp with CONTEXT tokens, None if not known."""
    try:
        return estimate(model, context=CONTEXT).total
    except GGUFError:
        return None


def decide_rung(
    model: Model, label: str, settings: Settings, options: QuantizeOptions, content: str = UNREAD
) -> Rung:
    """Return what a rung of `model` will be; a target size is solved on samples of its tensors.

    `options` are those of `quantize`, and `content` the content digest of the model. Raises what
    `quantize` raises for a recipe, and ShapeError for a target that is too small.
    """
    goal = settings.target(label)
    recipe = None if goal else read_recipe(label) if label.endswith(RECIPE_SUFFIX) else label
    chosen: QuantizeOptions = {**options, "keep_order": False}
    if goal:
        chosen["types"] = target(model, **goal, imatrix=options.get("imatrix"))  # type: ignore[arg-type]
    result = with_provenance(decide(model, recipe, **chosen), chosen, content)
    return Rung(label, settings.name, result, settings.shard_bytes)


def decide_rungs(
    model: Model, settings: Settings, options: QuantizeOptions, content: str = UNREAD
) -> tuple[list[Rung], list[Refusal]]:
    """Return the rungs that can be made of a model, and those that cannot, with the reasons.

    If `options` have no importance data yet, but the settings promise some, it is assumed to cover
    everything. Raises as `decide_rung` does.
    """
    rungs: list[Rung] = []
    refusals: list[Refusal] = []
    promised = settings.imatrix or settings.calibration
    for label in settings.rungs:
        rung = decide_rung(model, label, settings, options, content)
        if rung.result.uncovered and not options.get("imatrix"):
            reason = "" if promised else NO_DATA
        elif rung.name == type_of(model):
            reason = SAME_TYPE
        else:
            reason = _refusal(rung.result)
        if reason:
            refusals.append(Refusal(rung.name, reason, is_problem=reason not in EXPECTED))
        else:
            rungs.append(rung)
    return rungs, refusals


def _refusal(result: Quantization) -> str:
    try:
        refuse(result, allow_requantize=False)
    except GGUFError as error:
        return error.message
    return ""


def doubts(rungs: Sequence[Rung]) -> Iterator[str]:
    """Yield a sentence for each rung that makes no sense for this model."""
    known: dict[tuple[str, ...], str] = {}
    for rung in rungs:
        facts = rung.facts
        if facts["fallbacks"] > MOST_FALLBACKS * max(facts["quantized"], 1):
            yield (
                f"{rung.name}: only {facts['quantized'] - facts['fallbacks']:,} of "
                f"{facts['quantized']:,} tensors get the types that the name promises; the rows of "
                "the others do not divide into their blocks"
            )
        types = tuple(decision.after.type.name for decision in rung.result.decisions)
        if types in known:
            yield f"{rung.name}: has the same types as {known[types]}"
        known.setdefault(types, rung.name)


def groups(rungs: Sequence[Rung], room: int | None) -> Iterator[list[Rung]]:
    """Yield the rungs to make in one pass each: together at most `room` bytes, if there is a limit.

    A rung that alone is larger comes alone.
    """
    group: list[Rung] = []
    for rung in rungs:
        total = sum(other.plan.nbytes for other in (*group, rung))
        if group and room is not None and total > room:
            yield group
            group = []
        group = [*group, rung]
    if group:
        yield group


def named(settings: Settings, stem: str) -> Settings:
    """Return the settings with the name of the files."""
    return replace(settings, name=settings.name or stem)
