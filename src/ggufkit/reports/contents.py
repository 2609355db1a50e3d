"""Gathers what a report says, as plain data: the same for HTML and Markdown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ggufkit.errors import FormatError, GGUFError
from ggufkit.inspection.diff import TensorChange, diff
from ggufkit.models.elsewhere import is_elsewhere
from ggufkit.system.text_file import Most, read_small
from ggufkit.system.threads import Progress
from ggufkit.view.compare_page import compared_keys
from ggufkit.view.faults_page import faults
from ggufkit.view.memory_page import memory, memory_facts
from ggufkit.view.metadata_page import metadata_rows
from ggufkit.view.overview import layer_grid, overview, treemap
from ggufkit.view.prompt_page import templates
from ggufkit.view.shown_model import ShownModel
from ggufkit.view.tensor_page import tensor_row

MAX_ROWS: Final = 5000  # of a table
CONTEXTS: Final = (2048, 8192, 32768, 131072)  # tokens, where the model allows as many


@dataclass(frozen=True)
class Errors:
    """How far a model is from the first one: tensors by damage, and how many are the same."""

    changes: list[TensorChange]
    same: int


@dataclass(frozen=True)
class QualityRow:
    """A model in the result of `eval`: its size, perplexity and mean divergence, if measured."""

    name: str
    nbytes: int
    perplexity: float | None
    divergence: float | None


@dataclass(frozen=True)
class Contents:
    """Everything that a report says of its first model, and of others compared with it."""

    overview: dict[str, Any]
    treemap: dict[str, Any]
    grid: dict[str, Any]
    faults: dict[str, Any]
    memory: list[dict[str, Any]]
    metadata: dict[str, Any]
    tensors: list[dict[str, Any]]
    templates: dict[str, str]
    comparisons: list[dict[str, Any]] = field(default_factory=list)
    errors: list[Errors] = field(default_factory=list)
    qualities: list[QualityRow] = field(default_factory=list)


def gather(  # noqa: PLR0913 (options of one report)
    first: ShownModel,
    others: Sequence[ShownModel] = (),
    *,
    data: bool = True,
    evaluation: Path | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Contents:
    """Return the contents of a report; with `data`, tensors of `others` are compared by value."""
    return Contents(
        overview=overview(first) | {"name": title(first)},
        treemap=treemap(first),
        grid=layer_grid(first),
        faults=faults(first),
        memory=list(_memory(first)),
        metadata=metadata_rows(first, "", 0, MAX_ROWS),
        tensors=[tensor_row(at, tensor) for at, tensor in first.tensor_rows[:MAX_ROWS]],
        templates=dict(templates(first)["templates"]),
        comparisons=[_compared(first, other) for other in others],
        errors=[_errors(first, other, threads, progress) for other in others] if data else [],
        qualities=[] if evaluation is None else read_evaluation(evaluation),
    )


def title(shown: ShownModel) -> str:
    """Return what a report calls a model: the name of its file, without folders of this machine."""
    if is_elsewhere(shown.name) or not shown.model.files:
        return shown.name
    return shown.model.files[0].path.name


def _compared(first: ShownModel, other: ShownModel) -> dict[str, Any]:
    found = compared_keys(first, other)
    names = (title(first), title(other))
    sides = [side | {"name": name} for side, name in zip(found["models"], names, strict=True)]
    return found | {"models": sides}


def _memory(shown: ShownModel) -> list[dict[str, Any]]:
    """Return what the model takes for a few contexts; nothing for what llama.cpp cannot run."""
    trained = memory_facts(shown)["trained_context"]
    if not trained:
        return []
    contexts = sorted({*(each for each in CONTEXTS if each < trained), trained})
    try:
        return [memory(shown, {"context": context}) for context in contexts]
    except GGUFError:
        return []


def _errors(
    first: ShownModel, other: ShownModel, threads: int | None, progress: Progress | None
) -> Errors:
    found = diff(first.model, other.model, threads=threads, progress=progress)
    changed = [change for change in found.tensors if change.deviation]
    changed.sort(key=_damage)
    both = sum(name in other.number_of for name in first.tensor_names)
    differ = sum(change.before is not None and change.after is not None for change in found.tensors)
    return Errors(changed, both - differ)


def _damage(change: TensorChange) -> float:
    """Return what sorts the most damaged tensor first: the ratio of signal to noise."""
    return change.deviation.snr_db if change.deviation else 0.0


# The result of `eval --json`.


def read_evaluation(path: Path) -> list[QualityRow]:
    """Return the models in a file that `ggufkit eval --json` printed; FormatError for others."""
    try:
        document = json.loads(read_small(path, Most.VALUES))
        base = [_quality(document["base"], is_base=True)] if document["base"] else []
        return [*base, *map(_quality, document["models"])]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise FormatError(
            f"{path} is not a result of `ggufkit eval --json`",
            remedy="Make it with `ggufkit eval ... --json`",
        ) from error


def _quality(row: dict[str, Any], *, is_base: bool = False) -> QualityRow:
    """Return a model of the document; the base does not diverge from itself."""
    divergence = row["divergence"]
    return QualityRow(
        name=str(row["name"]),
        nbytes=int(row["nbytes"]),
        perplexity=_number(row["perplexity"]["value"]),
        divergence=0.0 if is_base else _mean(divergence),
    )


def _mean(divergence: dict[str, Any] | None) -> float | None:
    return _number(divergence["kld"]["mean"]["value"]) if divergence else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
