"""The steps of each rung: quantize, check, run in llama.cpp, measure."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from ggufkit.checks.check import check
from ggufkit.errors import GGUFError
from ggufkit.evaluation import evaluate as evaluation
from ggufkit.inspection.compute_buffer import is_encoder
from ggufkit.output.write import write_many
from ggufkit.quantization.recipe_files import RECIPE_SUFFIX
from ggufkit.release import trial
from ggufkit.release.journal import Facts, digest_of, identity_of
from ggufkit.release.rungs import Rung
from ggufkit.release.runner import Runner, StepOutcome
from ggufkit.system.cpu import worker_count
from ggufkit.validation.plain_values import plain_values

# A step that proves a rung: its name, what it depends on, what is done with the file, and the text
# that it is measured on, if any.
Proof = tuple[str, tuple[object, ...], Callable[[Path], Facts], str]
# Measures a model, a text and a base file with options of `evaluate`, on any machine.
Measure = Callable[[Sequence[Path], dict[str, Any]], Facts]


def require_sound(path: Path, threads: int | None, accepted: Container[str] = ()) -> None:
    """Raise GGUFError for a file with an error, unless its rule is `accepted`."""
    findings = check(path, data=True, threads=threads)
    new = [f for f in findings if f.severity == "error" and f.rule not in accepted]
    if new:
        raise GGUFError(f"{path.name}: {new[0].message}")


class RungSteps:
    """Makes the rungs of a base model, and proves them."""

    def __init__(self, run: Runner, base: Facts) -> None:
        self.run: Runner = run
        self.base: Facts = base
        counts = {"chunks": run.settings.text_chunks, "threads": run.job.threads}
        self._options: dict[str, Any] = counts | {"resume": True}
        self._tasks: dict[tuple[Path, str], Future[Facts]] = {}  # on the cluster
        self._broken = {finding.rule for finding in check(base["path"])}  # by the base model itself

    def make(self, group: Sequence[Rung]) -> None:
        """Quantize the rungs that are not there, in one pass over the base model."""
        run = self.run
        needs = [self._is_needed(rung) for rung in group]
        for rung, is_needed in zip(group, needs, strict=True):
            run.tell("begun" if is_needed else "skipped", f"quantize {rung.name}")
        missing = list(itertools.compress(group, needs))
        if not missing:
            return
        models = [(rung.result.model, run.folder / rung.file) for rung in missing]
        with run.bar("quantizing") as progress:
            outputs = write_many(models, progress=progress, executor=run.executor, **run.writing)
        for rung, paths in zip(missing, outputs, strict=True):
            step = f"quantize {rung.name}"
            run.journal.record(step, self._key(rung), paths, rung.facts)
            run.tell("done", step, files=[path.name for path in paths])

    def prepare(self, rungs: Sequence[Rung]) -> None:
        """Write the base files that measuring needs, before room for the rungs is computed."""
        if any(map(self._is_needed, rungs)):
            for text in self.run.settings.texts:
                self._write_logits(text)

    def _is_needed(self, rung: Rung) -> bool:
        """Whether a rung is to be made: it is not there, or was removed before it was proven."""
        if not self.run.journal.is_done(f"quantize {rung.name}", self._key(rung)):
            return True
        is_there = all(path.exists() for path in self.files(rung))
        return not is_there and not all(
            self.run.is_done(step, inputs) for step, inputs, *_ in self._proofs(rung)
        )

    def files(self, rung: Rung) -> list[Path]:
        """Return the files of a rung."""
        return self.run.journal.files(f"quantize {rung.name}")

    def _key(self, rung: Rung) -> str:
        run = self.run
        digests = run.journal.digests()
        data = sorted(
            (path.name, digests[path.name]) for path in run.journal.files("importance data")
        )
        recipe = identity_of(Path(rung.label)) if rung.label.endswith(RECIPE_SUFFIX) else rung.label
        settings = (run.settings.search, run.settings.shard_bytes, run.settings.name)
        return digest_of(self.base["content"], recipe, data, *settings)

    def _proofs(self, rung: Rung) -> Iterator[Proof]:
        all_digests, settings = self.run.journal.digests(), self.run.settings
        digests = [all_digests[name] for name in sorted(path.name for path in self.files(rung))]
        yield f"check {rung.name}", (digests,), self._check, ""
        if settings.run and not is_encoder(rung.result.model):
            yield f"run {rung.name}", (digests,), self._run, ""
        for text in settings.texts:
            inputs = (digests, *self._reading(text))
            act = functools.partial(self._measured, text)
            yield f"measure {rung.name} on {Path(text).name}", inputs, act, text

    def prove(self, group: Sequence[Rung]) -> list[Rung]:
        """Return the rungs that are sound: check them, run them, measure them on each text."""
        running = [rung for rung in group if self._are_proven(rung, is_measured=False)]
        if executor := self.run.executor:
            self._begin_measuring(running, executor)
        return [rung for rung in running if self._are_proven(rung, is_measured=True)]

    def _are_proven(self, rung: Rung, *, is_measured: bool) -> bool:
        """Whether a rung stands the proofs with a text, or those without."""
        proofs = (proof for proof in self._proofs(rung) if bool(proof[-1]) == is_measured)
        return all(self._is_proven(rung, *proof) for proof in proofs)

    def _is_proven(
        self,
        rung: Rung,
        step: str,
        inputs: tuple[object, ...],
        act: Callable[[Path], Facts],
        text: str,
    ) -> bool:
        if text and not self.run.is_done(step, inputs):
            self._write_logits(text)

        def make() -> StepOutcome:
            return (), act(self.files(rung)[0])

        return self.run.trying(step, inputs, make)

    def _check(self, path: Path) -> Facts:
        require_sound(path, self.run.job.threads, self._broken)
        return {}

    def _run(self, path: Path) -> Facts:
        trial.require_runs(path, worker_count(self.run.job.threads))
        return {}

    def _reading(self, text: str) -> tuple[object, ...]:
        settings = self.run.settings
        place = identity_of(Path(text))
        return place, settings.text_chunks, settings.context, self.base["content"]

    def _begin_measuring(self, rungs: Sequence[Rung], executor: Executor) -> None:
        """Submit to the cluster what is not measured yet; `_measured` waits for it."""
        for rung in rungs:
            for step, inputs, _, text in self._proofs(rung):
                if text and not self.run.is_done(step, inputs):
                    self._write_logits(text)
                    path = self.files(rung)[0]
                    paths = (path, Path(text), self._logits(text))
                    # Tasks for one file would share the checkpoint next to it.
                    options = self._options | {"resume": False}
                    self._tasks[path, text] = _submit(executor, _measure, paths, options)

    def _measured(self, text: str, path: Path) -> Facts:
        """Return the figures of a file on a text, compared with the base model."""
        if task := self._tasks.pop((path, text), None):
            return self.run.results([task], "measuring")[0]
        paths = (path, Path(text), self._logits(text))
        return self._figures(_measure, "measuring", paths, self._options)

    def _figures(
        self, measure: Measure, doing: str, paths: Sequence[Path], options: dict[str, Any]
    ) -> Facts:
        if executor := self.run.executor:
            return self.run.results([_submit(executor, measure, paths, options)], doing)[0]
        with self.run.bar(doing, in_bytes=False) as progress:
            return measure(paths, options | {"progress": progress})

    def _logits(self, text: str) -> Path:
        return self.run.work / f"{digest_of(*self._reading(text))[:16]}.kld"

    def _write_logits(self, text: str) -> None:
        """Write the base file of a text, unless it is there: a step of its own, of no one file."""
        logits, step, settings = self._logits(text), f"base on {Path(text).name}", self.run.settings

        def make() -> StepOutcome:
            paths = (self.base["path"], Path(text), logits)
            options = self._options | {"context": settings.context}
            return (), self._figures(_read_base, "reading", paths, options)

        if not logits.exists():
            self.run.journal.steps.pop(step, None)  # the file went with those of an earlier run
        self.run.step(step, self._reading(text), make)


def _submit(
    executor: Executor, measure: Measure, paths: Sequence[Path], options: dict[str, Any]
) -> Future[Facts]:
    return executor.submit(measure, [path.absolute() for path in paths], options)


def _read_base(paths: Sequence[Path], options: dict[str, Any]) -> Facts:
    """Write the base file of a model on a text; return the figures of the model."""
    model, text, target = paths
    result = evaluation.evaluate((), text, base=model, base_logits=target, **options)
    return _facts(result, result.base) if result.base else {}


def _measure(paths: Sequence[Path], options: dict[str, Any]) -> Facts:
    """Return the figures of a model on a text, compared with a base file."""
    model, text, logits = paths
    result = evaluation.evaluate([model], text, base_logits=logits, **options)
    return _facts(result, result.models[0])


def _facts(result: evaluation.Evaluation, quality: evaluation.Quality) -> Facts:
    """Return the figures of one model as JSON has them, without a path of this machine."""
    counts = {key: getattr(result, key) for key in ("context", "chunks", "positions")}
    return counts | {"quality": plain_values(quality) | {"name": Path(quality.name).name}}
