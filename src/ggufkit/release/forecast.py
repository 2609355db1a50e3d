"""What a release would do: files with sizes, times from this machine's rates, disk, what lacks."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from ggufkit.errors import GGUFError
from ggufkit.format.values import whole_number
from ggufkit.llama_cpp.library import library
from ggufkit.models.model import Model
from ggufkit.quants import codec
from ggufkit.release.journal import Facts
from ggufkit.release.publish import publisher
from ggufkit.release.refusals import missing, require_room, require_sensible
from ggufkit.release.rungs import Rung, decide_rungs, doubts, groups
from ggufkit.release.runner import ReleaseJob
from ggufkit.release.sidecars import layouts_of, sidecars_of
from ggufkit.release.source import ReleaseSource, about
from ggufkit.system.cpu import worker_count

ROWS, WIDTH = 32, 4096  # of a sample that is encoded
TOKEN_BYTES: Final = 4  # of text, on average
SIDE: Final = 1024  # of the matrices whose product shows the speed of this machine
DISK_BYTES: Final = 500e6  # per second: of a usual disk
RUN_SECONDS: Final = 5.0  # to load a small file and generate some tokens


def forecast(job: ReleaseJob) -> dict[str, Any]:
    """Return what `release(job)` would do, as plain data; nothing is written.

    Raises as `release` does for settings and sources that cannot be used.
    """
    require_sensible(job)
    notes: list[str] = []
    source = ReleaseSource(job.source, job.settings, notes.append)
    with source.open() as model:
        rungs, refusals = decide_rungs(model, job.settings, {})
        extras = [*source.layouts(model), *layouts_of(sidecars_of(source), model)]
        base = sum(extra.nbytes for extra in extras)
        steps = list(_steps(job, model, rungs, base))
        source_facts = about(source, model.metadata)
    left_out: dict[str, list[str]] = {}
    for name, reason in refusals:
        left_out.setdefault(reason, []).append(name)
    batches = groups(rungs, None if job.disk is None else max(job.disk - base, 0))
    largest = max((sum(r.plan.nbytes for r in batch) for batch in batches), default=0)
    return {
        "source": job.source,
        "files": [
            {"file": rung.plan.files[0].name, "shards": len(rung.plan.files), **rung.facts}
            for rung in rungs
        ],
        "others": [{"file": extra.files[0].name, "nbytes": extra.nbytes} for extra in extras],
        "left_out": [f"{', '.join(names)}: {reason}" for reason, names in left_out.items()],
        "doubts": list(doubts(rungs)),
        "missing": list(_missing(job, source_facts, rungs, base)),
        "notes": notes,
        "steps": [{"step": step, "seconds": round(seconds, 1)} for step, seconds in steps],
        "disk": base + largest,
    }


def _missing(
    job: ReleaseJob, source_facts: Facts, rungs: Sequence[Rung], base: int
) -> Iterator[str]:
    settings = job.settings
    yield from missing(job, source_facts)
    needs: list[Callable[[], object]] = [lambda: require_room(job, rungs, base)]
    needs += [library] if settings.calibration or settings.texts or settings.run else []
    needs += [lambda: publisher(job.upload, public=job.public)] if job.upload else []
    for need in needs:
        try:
            need()
        except GGUFError as error:  # noqa: PERF203 (each need)
            yield f"{error.message}: {error.remedy}"


def _steps(
    job: ReleaseJob, model: Model, rungs: Sequence[Rung], base: int
) -> Iterator[tuple[str, float]]:
    """Yield the steps that take long, with their seconds."""
    settings = job.settings
    token_seconds = 2 * _active(model) / _flops()

    def reading(text: str, chunks: int) -> float:
        tokens = Path(text).stat().st_size / TOKEN_BYTES
        return min(tokens, chunks * settings.context or tokens) * token_seconds

    if base:
        yield "convert", base / DISK_BYTES
    if settings.calibration:
        yield "importance data", reading(settings.calibration, settings.calibration_chunks)
    yield f"quantize {len(rungs)} files", _quantizing(rungs, job.threads)
    nbytes = sum(rung.plan.nbytes for rung in rungs)
    yield "check", nbytes / DISK_BYTES
    if settings.run:
        yield "run in llama.cpp", len(rungs) * RUN_SECONDS + nbytes / DISK_BYTES
    for text in settings.texts:
        seconds = reading(text, settings.text_chunks)
        yield f"measure on {Path(text).name}", seconds * (len(rungs) + 1)


def _active(model: Model) -> float:
    """Return the parameters that one token meets: of experts, those that are used."""
    keys = (f"{model.architecture}.expert_{key}" for key in ("used_count", "count"))
    used, count = (whole_number(model.metadata.get(key)) for key in keys)
    share = used / count if used and count else 1.0
    return sum(
        tensor.elements * (share if "_exps" in name else 1.0)
        for name, tensor in model.tensors.items()
    )


def _seconds(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return max(time.perf_counter() - begun, 1e-6)


def _flops() -> float:
    """Return how many operations per second a product of matrices reaches here."""
    matrix = np.ones((SIDE, SIDE), np.float32)
    np.matmul(matrix, matrix)
    return 2.0 * SIDE**3 / _seconds(lambda: np.matmul(matrix, matrix))


def _quantizing(rungs: Sequence[Rung], threads: int | None) -> float:
    """Return the seconds of encoding, from the rate of one thread for each type, with weights."""
    rows = np.random.default_rng(0).standard_normal((ROWS, WIDTH), np.float32)
    elements: Counter[str] = Counter()
    for rung in rungs:
        for decision in rung.result.decisions:
            if decision.is_changed and decision.after.type.is_quantized:
                elements[decision.after.type.name] += decision.after.elements
    options: dict[str, Any] = {"imatrix": np.ones(WIDTH, np.float32), "threads": 1}
    return sum(
        number / rows.size * _seconds(functools.partial(codec.quantize, rows, name, **options))
        for name, number in elements.items()
    ) / worker_count(threads)
