"""The steps of each rung: quantize, check, run in llama.cpp, measure."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, NamedTuple

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


class Proof(NamedTuple):
    """A step that proves a rung: its name, what it depends on, and what is done with the file."""

    step: str
    inputs: tuple[object, ...]
    act: Callable[[Path], Facts]


class RungSteps:
    """Makes the rungs of a base model, and proves them."""

    def __init__(self, run: Runner, base: Facts, rules: frozenset[str]) -> None:
        """Take the facts of the base model, and the rules of `check` that it breaks itself."""
        self.run: Runner = run
        self.base: Facts = base
        self.rules: frozenset[str] = rules

    def make(self, group: Sequence[Rung], executor: Executor | None) -> None:
        """Quantize the rungs that are not there, in one pass over the base model."""
        run = self.run
        missing = []
        for rung in group:
            if self._is_needed(rung):
                missing.append(rung)
            else:
                run.tell("skipped", f"quantize {rung.name}")
        if not missing:
            return
        for rung in missing:
            run.tell("begun", f"quantize {rung.name}", nbytes=rung.plan.nbytes)
        with run.bar("quantizing") as progress:
            outputs = write_many(
                [(rung.result.model, run.folder / rung.file) for rung in missing],
                shard_size=run.settings.shard_bytes,
                threads=run.job.threads,
                progress=progress,
                executor=executor,
                resume=True,
            )
        for rung, paths in zip(missing, outputs, strict=True):
            step = f"quantize {rung.name}"
            run.journal.record(step, self._key(rung), paths, rung.facts)
            run.tell("done", step, files=[path.name for path in paths])

    def prepare(self, rungs: Sequence[Rung]) -> None:
        """Write the base files that measuring needs, before room for the rungs is computed."""
        if any(map(self._is_needed, rungs)):
            for text in self.run.settings.texts:
                self._logits(text)

    def _is_needed(self, rung: Rung) -> bool:
        """Whether a rung is to be made: it is not there, or was removed before it was proven."""
        if not self.run.journal.is_done(f"quantize {rung.name}", self._key(rung)):
            return True
        is_there = all(path.exists() for path in self.files(rung))
        return not is_there and not all(
            self.run.journal.is_done(proof.step, digest_of(proof.step, *proof.inputs))
            for proof in self._proofs(rung)
        )

    def files(self, rung: Rung) -> list[Path]:
        """Return the files of a rung."""
        return self.run.files(f"quantize {rung.name}")

    def _key(self, rung: Rung) -> str:
        """Return the digest of what a rung is made from."""
        run = self.run
        data = run.journal.steps.get("importance data", {}).get("files", {})
        recipe = identity_of(Path(rung.label)) if rung.label.endswith(RECIPE_SUFFIX) else rung.label
        digests = sorted((name, file["sha256"]) for name, file in data.items())
        settings = (run.settings.search, run.settings.shard_bytes, run.settings.name)
        return digest_of(self.base["content"], recipe, digests, *settings)

    def _digests(self, rung: Rung) -> list[str]:
        files = self.run.journal.steps[f"quantize {rung.name}"]["files"]
        return [file["sha256"] for _, file in sorted(files.items())]

    def _proofs(self, rung: Rung) -> Iterator[Proof]:
        """Yield the steps that prove a rung."""
        digests, settings = self._digests(rung), self.run.settings
        yield Proof(f"check {rung.name}", (digests,), self._check)
        if settings.run and not is_encoder(rung.result.model):
            yield Proof(f"run {rung.name}", (digests,), self._run)
        for text in settings.texts:
            inputs = (digests, *self._reading(text))
            act = functools.partial(self._measured, text)
            yield Proof(f"measure {rung.name} on {Path(text).name}", inputs, act)

    def prove(self, rung: Rung) -> bool:
        """Check a rung, let llama.cpp run it, and measure it on each text; whether it is sound."""
        return all(self._is_proven(rung, proof) for proof in self._proofs(rung))

    def _is_proven(self, rung: Rung, proof: Proof) -> bool:
        def make() -> StepOutcome:
            return (), proof.act(self.files(rung)[0])

        return self.run.trying(proof.step, lambda: self.run.step(proof.step, proof.inputs, make))

    def _check(self, path: Path) -> Facts:
        findings = check(path, data=True, threads=self.run.job.threads)
        new = [f for f in findings if f.severity == "error" and f.rule not in self.rules]
        if new:
            raise GGUFError(f"{path.name}: {new[0].message}")
        return {}

    def _run(self, path: Path) -> Facts:
        trial.require_runs(path, worker_count(self.run.job.threads))
        return {}

    # Quality.

    def _reading(self, text: str) -> tuple[object, ...]:
        settings = self.run.settings
        place = identity_of(Path(text))
        return place, settings.text_chunks, settings.context, self.base["content"]

    def _measured(self, text: str, path: Path) -> Facts:
        """Return the figures of a file on a text, compared with the base model."""
        with self.run.bar("measuring", in_bytes=False) as progress:
            result = evaluation.evaluate(
                [path],
                text,
                base_logits=self._logits(text),
                chunks=self.run.settings.text_chunks,
                threads=self.run.job.threads,
                resume=True,
                progress=progress,
            )
        return _facts(result, result.models[0])

    def _logits(self, text: str) -> Path:
        """Return the base file of a text, which is written when it is first needed."""
        inputs = self._reading(text)
        path = self.run.work / f"{digest_of(*inputs)[:16]}.gguf"
        step = f"base on {Path(text).name}"

        def make() -> StepOutcome:
            result = self._base_file(text, path)
            quality = result.base
            return (), _facts(result, quality) if quality else {}

        if not path.exists() and not path.with_suffix(".kld").exists():
            self.run.journal.record(step, "", *make())
        self.run.tell("skipped" if path.exists() else "done", step)
        return path if path.exists() else path.with_suffix(".kld")

    def _base_file(self, text: str, path: Path) -> evaluation.Evaluation:
        """Write a small base file; a large one for models that have no small one."""
        settings = self.run.settings
        options: dict[str, Any] = {"base": self.base["path"], "context": settings.context}
        options |= {"chunks": settings.text_chunks, "threads": self.run.job.threads}
        with self.run.bar("reading", in_bytes=False) as progress:
            try:
                return evaluation.evaluate((), text, base_logits=path, progress=progress, **options)
            except GGUFError:
                large = path.with_suffix(".kld")
                return evaluation.evaluate(
                    (), text, base_logits=large, resume=True, progress=progress, **options
                )


def _facts(result: evaluation.Evaluation, quality: evaluation.Quality) -> Facts:
    """Return the figures of one model as JSON has them, without a path of this machine."""
    plain = plain_values(quality) | {"name": Path(quality.name).name}
    return {
        "context": result.context,
        "chunks": result.chunks,
        "positions": result.positions,
        "quality": plain,
    }
