"""Runs a release from the source to the last upload."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from ggufkit.errors import MISFORMED, FormatError, GGUFError, OutputError, brief
from ggufkit.inspection.file_digest import digest_line
from ggufkit.llama_cpp.library import library
from ggufkit.models.model import Model
from ggufkit.models.open import open as open_model
from ggufkit.output.layout import Layout
from ggufkit.quantization.provenance import content_digest
from ggufkit.quantization.quantize import QuantizeOptions
from ggufkit.release import trial
from ggufkit.release.card import CARD, CHART, card_of, chart_of, document_of, evaluations
from ggufkit.release.importance import count_tokens, quantize_options
from ggufkit.release.journal import JOURNAL, Facts, Journal, read_journal
from ggufkit.release.publish import Publisher, is_same, publisher, repository_of
from ggufkit.release.refusals import (
    bytes_in,
    missing,
    require_room,
    require_sensible,
    room_for,
)
from ggufkit.release.rung_steps import RungSteps, require_sound
from ggufkit.release.rungs import EXPECTED, Rung, decide_rungs, groups
from ggufkit.release.runner import Bar, ReleaseJob, Runner, StepOutcome, Tell
from ggufkit.release.sidecars import Sidecar, layouts_of, sidecars_of
from ggufkit.release.source import ReleaseSource, about, type_of
from ggufkit.system.cluster import cluster as executor_of
from ggufkit.system.cpu import worker_count
from ggufkit.system.hidden_files import RESUME, RESUME_JOURNAL, hidden
from ggufkit.system.staging import remove_leftover, sweep, write_whole

SUMS = "SHA256SUMS"
_PATHS = ("calibration", "imatrix", "drafts", "adapters")  # settings that the card must not show


def release(job: ReleaseJob, tell: Tell, bar: Bar) -> list[str]:
    """Make and publish all files of a release; return the problems of single files.

    The other files are made all the same. `tell` and `bar` show what happens. Raises OutputError if
    another run has the folder, if other files of the same names are published, or if `disk` is too
    small; ValueTypeError for settings that do not go together; MissingExtraError; and what the
    steps raise for the source.
    """
    require_sensible(job)
    place = publisher(job.upload, public=job.public) if job.upload else None
    if job.settings.calibration or job.settings.texts:
        library()  # raises if the extra is missing, before long work
    with contextlib.closing(Journal(job.folder)) as journal:
        run = _Release(job, journal, tell, bar)
        run.work.mkdir(exist_ok=True)
        with contextlib.ExitStack() as opened:
            if job.cluster:
                run.executor = opened.enter_context(executor_of(job.cluster))
            run.make_all(place)
        return run.problems


class _Release(Runner):
    """The steps after another, and what is published."""

    def make_all(self, place: Publisher | None) -> None:
        self.place: Publisher | None = place
        settings, journal = self.settings, self.journal
        source = ReleaseSource(self.job.source, settings, lambda text: self.tell("note", text=text))
        sidecars = sidecars_of(source)
        are_made = {"base", *(sidecar.step for sidecar in sidecars)} <= journal.steps.keys()
        if source.is_local_file or not are_made:  # before long work
            with source.open() as model:
                rungs, _ = decide_rungs(model, settings, {})
                others = [*source.layouts(model), *layouts_of(sidecars, model)]
                self.refuse_foreign([*others, *(rung.plan for rung in rungs)])
                require_room(self.job, rungs, sum(other.nbytes for other in others))
                for text in missing(self.job, about(source, model.metadata)):
                    self.tell("note", text=f"missing: {text}")
        base = self.base_model(source)
        self.sidecars = list(filter(self.sidecar, sidecars))
        options = quantize_options(self, base, count_tokens(self, base))
        steps = RungSteps(self, base)
        sound: list[str] = []
        with open_model(base["path"]) as model:
            rungs = self.rungs(model, options, base["content"])
            self.refuse_foreign([rung.plan for rung in rungs], self.others())
            if self.job.disk is not None:
                steps.prepare(rungs)
            room = room_for(self.job, rungs, bytes_in(self.folder))
            for group in groups(rungs, room):
                steps.make(group)
                proven = steps.prove(group)
                self.publish([file for rung in proven for file in steps.files(rung)], "Add files")
                sound += [rung.name for rung in proven]
                removed = group if self.job.disk is not None else []
                for file in itertools.chain.from_iterable(map(steps.files, removed)):
                    file.unlink(missing_ok=True)
        self.finish(base, sound)

    def base_model(self, source: ReleaseSource) -> Facts:
        """Convert or fetch the model, unless it is a file on this disk; return its facts.

        `path` is where it is, `content` its content digest.
        """
        settings = self.settings

        def make() -> StepOutcome:
            with source.open() as model:
                facts = about(source, model.metadata) | {"parameters": model.parameters}
                path = self.folder / f"{settings.name}-{type_of(model)}.gguf"
                paths = [] if source.is_local_file else self.written(model, path)
            place = paths[0] if paths else Path(source.name)
            with open_model(place) as model, self.bar("hashing") as progress:
                content = content_digest(model, self.job.threads, progress)
            return paths, facts | {"file": place.name, "content": content}

        choices = (settings.outtype, settings.name, settings.shard_bytes)
        facts = self.step("base", (source.identity, *choices), make)
        path = Path(source.name) if source.is_local_file else self.folder / facts["file"]
        return facts | {"path": path}

    def sidecar(self, sidecar: Sidecar) -> bool:
        """Make a file that goes with the model, if there is one; whether that went well."""

        def make() -> StepOutcome:
            model = sidecar.open()
            if model is None:
                return [], {}
            with model:
                paths = self.written(model, self.folder / sidecar.file(model))
                facts = sidecar.facts(model)
            require_sound(paths[0], self.job.threads)
            if self.settings.run and sidecar.runs_alone(model):
                trial.require_runs(paths[0], worker_count(self.job.threads))
            return paths, facts

        return self.trying(sidecar.step, sidecar.inputs, make)

    def others(self) -> list[Path]:
        """Return the files to publish that are no rungs."""
        steps = [*(sidecar.step for sidecar in self.sidecars), "importance data"]
        if self.settings.keep_base:
            steps.insert(0, "base")
        files = itertools.chain.from_iterable(map(self.journal.files, steps))
        return [path for path in files if path.name != f"{self.settings.name}.hessian.gguf"]

    def rungs(self, model: Model, options: QuantizeOptions, content: str) -> list[Rung]:
        """Return the rungs to make, and tell which are left out."""
        rungs, refusals = decide_rungs(model, self.settings, options, content)
        for name, reason in refusals:
            if reason in EXPECTED:
                self.tell("note", text=f"{name} is left out: {reason}")
            else:
                self.problem(name, reason)
        return rungs

    def is_own(self, name: str, digest: str) -> bool:
        """Whether a published digest belongs to this release's file of the same name."""
        sha256 = self.journal.digests().get(name)
        return sha256 is not None and is_same(digest, self.folder / name, sha256)

    def refuse_foreign(self, layouts: Iterable[Layout], paths: Iterable[Path] = ()) -> None:
        """Raise OutputError for published files that are not of this release."""
        if self.place is None or self.job.replace:
            return
        names = [file.name for layout in layouts for file in layout.files]
        names += [path.name for path in paths]
        foreign = [
            name
            for name, digest in sorted(self.place.digests([*names, CARD, CHART, SUMS]).items())
            if self.journal.published.get(name) != digest and not self.is_own(name, digest)
        ]
        if foreign:
            raise OutputError(
                f"{self.job.upload} has other files called {', '.join(foreign[:5])}",
                remedy="Publish elsewhere, or replace them (replace=True)",
            )

    def publish(self, paths: Sequence[Path], message: str) -> None:
        if self.place is None:
            return
        there = self.place.digests([path.name for path in paths])
        missing = [
            path
            for path in paths
            if path.exists()
            and not (path.name in there and self.is_own(path.name, there[path.name]))
        ]
        if missing:
            self.tell("begun", "publish", files=[path.name for path in missing])
            there |= self.place.put(missing, message)
        if not there.items() <= self.journal.published.items():
            self.journal.publish(there)
        self.tell("done" if missing else "skipped", "publish")

    def finish(self, base: Facts, sound: Sequence[str]) -> None:
        journal = self.journal
        chosen = {key: value for key, value in asdict(self.settings).items() if key not in _PATHS}
        chosen |= {
            "rungs": list(sound),
            "texts": [Path(name).name for name in self.settings.texts],
            "sidecars": [sidecar.step for sidecar in self.sidecars],
            "base_file": base["file"],
            "repository": repository_of(self.job.upload),
        }
        pages = write_pages(journal, chosen, self.job.card)
        self.tell("done", "card", files=[path.name for path in pages])
        others = self.others()
        rungs = [file for name in sound for file in journal.files(f"quantize {name}")]
        digests, sums = journal.digests(), self.folder / SUMS
        lines = [digest_line(digests[path.name], path.name) for path in (*rungs, *others)]
        write_whole(sums, "".join(f"{line}\n" for line in lines).encode())
        journal.record("sums", "", [sums])
        self.publish([*others, *pages, sums], "Add card and checksums")
        self.tidy()

    def tidy(self) -> None:
        """Remove what only later steps needed; what cannot be removed, the next run removes."""
        try:
            for name, kind in itertools.product(self.journal.digests(), (RESUME, RESUME_JOURNAL)):
                remove_leftover(hidden(self.folder / name, kind))
            sweep(self.folder)
            shutil.rmtree(self.work)
        except OSError as error:
            reason = error.strerror or error
            self.tell("note", text=f"hidden files stay in {self.folder}: {reason}; run again")


def write_pages(journal: Journal, chosen: Facts, template: Path | None) -> list[Path]:
    """Write the card, the chart and the figures; return their paths."""
    journal.record("set", "", (), chosen)
    document = document_of(journal)
    texts = dict(evaluations(document))
    if chart := chart_of(document):
        texts[CHART] = chart
    texts[CARD] = card_of(document, template)
    paths = [journal.folder / name for name in texts]
    for path in paths:
        write_whole(path, texts[path.name].encode())
    journal.record("card", "", paths)
    return paths


def write_card(folder: Path, template: Path | None = None) -> list[Path]:
    """Write the card, the chart and the figures of a finished release again; return their paths.

    Raises FormatError for a folder without a finished release, and as `card_of` does.
    """
    if "set" not in read_journal(folder)["steps"]:
        raise FormatError(
            f"{folder} has no release that was finished",
            remedy="Run `ggufkit release` until its end",
        )
    with contextlib.closing(Journal(folder)) as journal:
        try:
            return write_pages(journal, journal.facts("set"), template)
        except GGUFError:
            raise
        except MISFORMED as error:
            raise FormatError(
                f"{JOURNAL} has other facts than this version writes ({brief(error)})",
                remedy="Run `ggufkit release` again",
                path=str(folder),
            ) from error
