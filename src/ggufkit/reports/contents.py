"""Gathers what a report says, as plain data: the same for HTML and Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from ggufkit.errors import GGUFError
from ggufkit.evaluation.quality_rows import QualityRow, read_evaluation
from ggufkit.inspection.diff import Deviation, diff
from ggufkit.inspection.summary import summarize
from ggufkit.models.model import Tensor
from ggufkit.models.remote_resolvers import is_remote
from ggufkit.system.threads import Progress
from ggufkit.view.compare_page import compared_keys
from ggufkit.view.faults_page import faults
from ggufkit.view.memory_page import memory, memory_facts
from ggufkit.view.metadata_page import metadata_rows
from ggufkit.view.overview import layer_grid, overview, treemap
from ggufkit.view.page_model import PageModel
from ggufkit.view.prompt_page import templates
from ggufkit.view.tensor_page import tensor_row

MAX_ROWS: Final = 5000  # of a table
CONTEXTS: Final = (2048, 8192, 32768, 131072)  # tokens, where the model allows as many


class Damage(NamedTuple):
    """A tensor of both models that differs, and by how much."""

    before: Tensor
    after: Tensor
    deviation: Deviation


@dataclass(frozen=True)
class Errors:
    """How far a model is from the first one: the most damaged first, and how many are the same."""

    damaged: list[Damage]
    same: int

    @property
    def relative(self) -> float | None:
        """The error of the tensors that differ, as a share of their values (root mean square)."""
        if not self.damaged:
            return 0.0
        noise = signal = 0.0
        for before, _, deviation in self.damaged:
            if math.isfinite(deviation.snr_db):
                squares = deviation.rmse * deviation.rmse * before.elements
                noise += squares
                signal += squares * 10 ** min(deviation.snr_db / 10, 200)
        return math.sqrt(noise / signal) if signal and math.isfinite(signal) else None


class FileRow(NamedTuple):
    """A model of the report: the name, the bytes on disk, the bits per weight."""

    name: str
    nbytes: int
    bits: float | None


@dataclass(frozen=True)
class Contents:
    """Everything that a report says of its first model, and of others compared with it."""

    files: list[FileRow]
    overview: dict[str, Any]
    treemap: dict[str, Any]
    grid: dict[str, Any]
    faults: dict[str, Any]
    memory: list[dict[str, Any]]
    metadata: dict[str, Any]
    tensors: list[dict[str, Any]]
    templates: dict[str, str]
    comparisons: list[dict[str, Any]]
    errors: list[Errors]
    qualities: list[QualityRow]


def gather(  # noqa: PLR0913 (options of one report)
    first: PageModel,
    others: Sequence[PageModel] = (),
    *,
    data: bool = True,
    evaluation: Path | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Contents:
    """Return the contents of a report; with `data`, tensors of `others` are compared by value."""
    return Contents(
        files=list(map(_file, (first, *others))),
        overview=overview(first) | {"name": title(first)},
        treemap=treemap(first),
        grid=layer_grid(first),
        faults=faults(first),
        memory=list(_memory(first)),
        metadata=metadata_rows(first, "", 0, MAX_ROWS),
        tensors=[tensor_row(row, tensor) for row, tensor in first.tensor_rows[:MAX_ROWS]],
        templates=dict(templates(first)["templates"]),
        comparisons=[compared_keys(first, other) for other in others],
        errors=[_errors(first, other, threads, progress) for other in others] if data else [],
        qualities=[] if evaluation is None else read_evaluation(evaluation),
    )


def title(page: PageModel) -> str:
    """Return what a report calls a model: the name of its file, without folders of this machine."""
    if is_remote(page.name) or not page.model.files:
        return page.name
    return page.model.files[0].path.name


def _file(page: PageModel) -> FileRow:
    return FileRow(title(page), page.nbytes_on_disk, summarize(page.model).bits_per_weight)


def _memory(page: PageModel) -> list[dict[str, Any]]:
    """Return what the model takes for a few contexts; nothing for what llama.cpp cannot run."""
    trained = memory_facts(page)["trained_context"]
    if not trained:
        return []
    contexts = sorted({*(length for length in CONTEXTS if length < trained), trained})
    try:
        return [memory(page, {"context": context}) for context in contexts]
    except GGUFError:
        return []


def _errors(
    first: PageModel, other: PageModel, threads: int | None, progress: Progress | None
) -> Errors:
    total = diff(first.model, other.model, threads=threads, progress=progress)
    damaged = [
        Damage(change.before, change.after, change.deviation)
        for change in total.tensors
        if change.before and change.after and change.deviation
    ]
    damaged.sort(key=lambda damage: damage.deviation.snr_db)
    both = sum(name in other.number_of for name in first.tensor_names)
    differ = sum(change.before is not None and change.after is not None for change in total.tensors)
    return Errors(damaged, both - differ)
