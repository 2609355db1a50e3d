"""Runs a release from the source to the last upload."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ggufkit.checks.check import check
from ggufkit.errors import FormatError, OutputError, ValueTypeError
from ggufkit.inspection.file_digest import digest_line
from ggufkit.llama_cpp.library import library
from ggufkit.models.open import open as open_model
from ggufkit.release.card import CARD, CHART, card_of, chart_of, document_of, evaluations
from ggufkit.release.inputs import base_model, projector, quantize_options
from ggufkit.release.journal import Facts, Journal, digest_of, read_journal, write_text
from ggufkit.release.publish import Publisher, conflicts, publisher, repository_of
from ggufkit.release.rung_steps import RungSteps
from ggufkit.release.rungs import Refusal, Rung, decide_rungs, groups
from ggufkit.release.runner import Bar, ReleaseJob, Runner, Tell, no_bar
from ggufkit.release.settings import Settings
from ggufkit.release.source import ReleaseSource
from ggufkit.system.cluster import executor_of

SUMS = "SHA256SUMS"


def release(job: ReleaseJob, tell: Tell | None = None, bar: Bar = no_bar) -> list[str]:
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
        run = Runner(job, journal, tell, bar)
        run.work.mkdir(exist_ok=True)
        _Release(run, place).run()
        return run.problems


def require_sensible(job: ReleaseJob) -> None:
    """Raise ValueTypeError or OSError for settings that cannot work."""
    settings = job.settings
    names = [Path(name).name for name in settings.texts]
    if len(set(names)) < len(names):
        raise ValueTypeError("two texts have the same name", remedy="Rename one of them")
    for name in (*settings.texts, *settings.imatrix, settings.calibration):
        if name and not Path(name).stat().st_size:
            raise ValueTypeError(f"{name} is empty", remedy="Name a text to read")
    if settings.calibration in settings.texts:
        raise ValueTypeError(
            f"{settings.calibration} is for calibration and for measuring quality",
            remedy="Use two texts: the files would fit the first one too closely",
        )
    if job.disk is not None and not job.upload:
        raise ValueTypeError(
            "a limit of disk space needs a place to publish", remedy="Name it (upload=...)"
        )


class _Release:
    """The steps after another, and what is published."""

    def __init__(self, run: Runner, place: Publisher | None) -> None:
        self.run_steps, self.place = run, place
        self.source = ReleaseSource(
            run.job.source, run.settings, lambda text: run.tell("note", text=text)
        )

    def run(self) -> None:
        """Do all steps."""
        run, job = self.run_steps, self.run_steps.job
        if self.source.is_local_file or "base" not in run.journal.steps:  # before long work
            with self.source.open() as model:
                self.refuse_foreign(decide_rungs(model, run.settings, {})[0])
        base = base_model(run, self.source)
        others = projector(run, self.source)
        own = run.files("base") if run.settings.keep_base else []
        options = quantize_options(run, base)
        rules = frozenset(finding.rule for finding in check(base["path"]))
        steps = RungSteps(run, base, rules)
        sound: list[str] = []
        with open_model(base["path"]) as model, contextlib.ExitStack() as opened:
            executor = opened.enter_context(executor_of(job.cluster)) if job.cluster else None
            rungs, refusals = decide_rungs(model, run.settings, options, base["content"])
            self.tell_of(refusals)
            self.refuse_foreign(rungs)
            if job.disk is not None:
                steps.prepare(rungs)
            for group in groups(rungs, self.room_for(rungs)):
                steps.make(group, executor)
                proven = [rung for rung in group if steps.prove(rung)]
                self.publish([file for rung in proven for file in steps.files(rung)], "Add files")
                sound += [rung.name for rung in proven]
                self.remove([file for rung in group for file in steps.files(rung)])
        self.finish(base, sound, [*own, *others])

    def tell_of(self, refusals: Sequence[Refusal]) -> None:
        """Tell which rungs are left out."""
        for refusal in refusals:
            if refusal.is_problem:
                self.run_steps.problem(refusal.name, refusal.reason)
            else:
                self.run_steps.tell("note", text=f"{refusal.name} is left out: {refusal.reason}")

    # Room and names.

    def room_for(self, rungs: Sequence[Rung]) -> int | None:
        """Return the bytes for rungs, None without a limit; OutputError if one does not fit."""
        room = self.run_steps.room()
        largest = max((rung.plan.nbytes for rung in rungs), default=0)
        if room is not None and largest > room:
            raise OutputError(
                f"a rung has {largest:,} bytes, and the limit leaves {max(room, 0):,}",
                remedy="Raise the limit (disk=...), or leave out the rung",
            )
        return room

    def refuse_foreign(self, rungs: Sequence[Rung]) -> None:
        """Raise OutputError for published files that are not of this release."""
        run = self.run_steps
        if self.place is None:
            return
        files = [file.name for rung in rungs for file in rung.plan.files]
        digests = self.place.digests([*files, CARD, CHART, SUMS])
        known = self.digests()
        foreign = [
            name
            for name in conflicts(digests, run.journal.published)
            if name not in known
            or not self.place.same(digests[name], run.folder / name, known[name])
        ]
        if foreign and not run.job.replace:
            raise OutputError(
                f"{run.job.upload} has other files called {', '.join(foreign[:5])}",
                remedy="Publish elsewhere, or replace them (replace=True)",
            )

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of all files of this release, by name."""
        steps = self.run_steps.journal.steps.values()
        return {name: file["sha256"] for step in steps for name, file in step["files"].items()}

    # Publishing.

    def publish(self, paths: Sequence[Path], message: str) -> None:
        """Publish those files that are not published yet."""
        run, known = self.run_steps, self.digests()
        if self.place is None:
            return
        there = self.place.digests([path.name for path in paths])
        published = run.journal.published
        missing = [
            path
            for path in paths
            if path.exists()
            and not (
                path.name in there and self.place.same(there[path.name], path, known[path.name])
            )
        ]
        if missing:
            run.tell("begun", "publish", files=[path.name for path in missing])
            there |= self.place.put(missing, message)
        if any(published.get(name) != digest for name, digest in there.items()):
            run.journal.publish(there)
        run.tell("done" if missing else "skipped", "publish")

    def remove(self, paths: Sequence[Path]) -> None:
        """Remove rungs where disk space is limited."""
        if self.run_steps.job.disk is not None:
            for path in paths:
                path.unlink(missing_ok=True)

    def finish(self, base: Facts, sound: Sequence[str], others: Sequence[Path]) -> None:
        """Write and publish what is about all files."""
        run = self.run_steps
        settings: Settings = run.settings
        chosen = asdict(settings) | {
            "rungs": list(sound),
            "texts": [Path(name).name for name in settings.texts],
            "base_file": base["file"],
            "repository": repository_of(run.job.upload),
        }
        paths = write_pages(run, chosen)
        data = run.files("importance data")[:1]
        rungs = [file for name in sound for file in run.files(f"quantize {name}")]
        listed = [*rungs, *others, *data]
        known = self.digests()
        sums = "".join(f"{digest_line(known[path.name], path.name)}\n" for path in listed)
        write_text(run.folder / SUMS, sums)
        run.journal.record("sums", digest_of(sums), [run.folder / SUMS])
        self.publish([*others, *data, *paths, run.folder / SUMS], "Add card and checksums")
        shutil.rmtree(run.work, ignore_errors=True)


def write_pages(run: Runner, chosen: Facts) -> list[Path]:
    """Write the card, the chart and the figures; return their paths."""
    run.journal.record("set", digest_of(json.dumps(chosen, sort_keys=True)), (), chosen)
    document = document_of(dict(run.journal.steps))
    texts = dict(evaluations(document))
    if chart := chart_of(document):
        texts[CHART] = chart
    texts[CARD] = card_of(document, run.job.card)
    for name, text in texts.items():
        write_text(run.folder / name, text)
    paths = [run.folder / name for name in texts]
    run.journal.record("card", digest_of(texts), paths)
    run.tell("done", "card", files=list(texts))
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
        job = ReleaseJob("", folder, Settings(), card=template)
        return write_pages(Runner(job, journal, None, no_bar), journal.facts("set"))
