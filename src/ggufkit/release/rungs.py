"""The quantized files of a release: what each will be, and which of them make no sense."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ggufkit.errors import GGUFError, ValueTypeError
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
NO_DATA: Final = "importance data is missing; set calibration or imatrix"
SAME_TYPE: Final = "the model has this type already"
EXPECTED: Final = (NO_DATA, SAME_TYPE)  # reasons that are not problems
MOST_FALLBACKS: Final = 0.5  # of the tensors that a recipe quantizes
Refusal = tuple[str, str]  # the name of a rung that cannot be made, and the reason


@dataclass(frozen=True)
class Rung:
    """One quantized file; `label` is its name in settings."""

    label: str
    settings: Settings
    result: Quantization

    @property
    def name(self) -> str:
        """The name of the recipe, or the target size."""
        return name_of(self.label)

    @property
    def file(self) -> str:
        """The name of the file, before it is split."""
        return f"{self.settings.name}-{self.name}.gguf"

    @property
    def plan(self) -> Layout:
        """The layout of its files."""
        return layout(self.result.model, self.file, shard_size=self.settings.shard_bytes)

    @property
    def facts(self) -> dict[str, Any]:
        """What the card says of it."""
        quantized = [d for d in self.result.decisions if d.is_changed and d.after.type.is_quantized]
        return {
            "recipe": Path(self.label).name,  # of a recipe file with its ending
            "nbytes": self.plan.nbytes,
            "bits_per_weight": bits_per_weight(self.result.model.tensors.values()),
            "quantized": len(quantized),
            "fallbacks": sum(d.fell_from is not None for d in quantized),
            "memory": self.memory,
        }

    @property
    def memory(self) -> int | None:
        """The bytes that llama.cpp takes with CONTEXT tokens, None if ggufkit cannot tell."""
        try:
            return estimate(self.result.model, context=CONTEXT).total
        except GGUFError:
            return None


def name_of(label: str) -> str:
    """Return the name of a rung: its recipe, or its size."""
    return Path(label).stem if label.endswith(RECIPE_SUFFIX) else label


def decide_rungs(
    model: Model, settings: Settings, options: QuantizeOptions, content: str = UNREAD
) -> tuple[list[Rung], list[Refusal]]:
    """Return the rungs that can be made of a model, and those that cannot, with the reasons.

    `options` are those of `quantize`, and `content` the content digest of the model. Importance
    data that the settings promise, but `options` do not have yet, are assumed to cover everything.
    A target size is solved on samples of the tensors. Raises what `quantize` raises for a recipe,
    ShapeError for a target that is too small, and ValueTypeError if no rung can be made.
    """
    rungs: list[Rung] = []
    refusals: list[Refusal] = []
    for label in settings.rungs:
        rung = Rung(label, settings, _decided(model, label, settings, options, content))
        if rung.result.uncovered and not options.get("imatrix"):
            reason = "" if settings.imatrix or settings.calibration else NO_DATA
        else:
            reason = SAME_TYPE if rung.name == type_of(model) else _refusal(rung.result)
        if reason:
            refusals.append((rung.name, reason))
        else:
            rungs.append(rung)
    failed = [refusal for refusal in refusals if refusal[1] not in EXPECTED]
    if failed and not rungs:
        name, reason = failed[0]
        raise ValueTypeError(
            f"no rung can be made; {name}: {reason}",
            remedy="Name other rungs, or start from a checkpoint or a file in F32, F16 or BF16",
        )
    return rungs, refusals


def _decided(
    model: Model, label: str, settings: Settings, options: QuantizeOptions, content: str
) -> Quantization:
    goal = settings.target(label)
    recipe = None if goal else read_recipe(label) if label.endswith(RECIPE_SUFFIX) else label
    chosen: QuantizeOptions = {**options, "keep_order": False}
    if goal:
        chosen["types"] = target(model, **goal, imatrix=options.get("imatrix"))  # type: ignore[arg-type]
    return with_provenance(decide(model, recipe, **chosen), chosen, content)


def _refusal(result: Quantization) -> str:
    try:
        refuse(result, allow_requantize=False)
    except GGUFError as error:
        return error.message
    return ""


def doubts(rungs: Sequence[Rung]) -> Iterator[str]:
    """Yield a sentence for each rung that makes no sense for this model."""
    names_by_types: dict[tuple[str, ...], str] = {}
    for rung in rungs:
        facts = rung.facts
        if facts["fallbacks"] > MOST_FALLBACKS * max(facts["quantized"], 1):
            yield (
                f"{rung.name}: only {facts['quantized'] - facts['fallbacks']:,} of "
                f"{facts['quantized']:,} tensors get the types that the name promises; the rows of "
                "the others do not divide into their blocks"
            )
        types = tuple(decision.after.type.name for decision in rung.result.decisions)
        if types in names_by_types:
            yield f"{rung.name}: has the same types as {names_by_types[types]}"
        names_by_types.setdefault(types, rung.name)


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
