"""Does the steps of a release: skips what is done, tells what happens, collects problems."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from ggufkit.errors import GGUFError, shortened
from ggufkit.models.model import Model
from ggufkit.output.write import write
from ggufkit.release.journal import Facts, Journal, digest_of
from ggufkit.release.settings import Settings
from ggufkit.system.cancellation import check_cancelled
from ggufkit.system.threads import Progress

WORK: Final = ".release"  # a folder for what only later steps need
MAX_PROBLEM: Final = 500  # characters
LOOK_SECONDS: Final = 0.2  # between looks at tasks on a cluster
TaskResult = TypeVar("TaskResult")
StepOutcome = tuple[Sequence[Path], Facts]  # the files of a step, and what it found out


# tell(step, state, **facts): a step is "begun", "done", "skipped" or "failed", or a "note".
Tell = Callable[..., None]
# bar(doing, in_bytes=True) shows the progress of a step.
Bar = Callable[..., contextlib.AbstractContextManager[Progress | None]]


@dataclass(frozen=True)
class ReleaseJob:
    """What a user asks for: a source, a folder for the files, and where they are published.

    `disk` limits the bytes of the folder: rungs are then removed once they are published. `replace`
    allows to replace published files with other bytes. `card` is a template of the user's own.
    """

    source: str
    folder: Path
    settings: Settings
    upload: str = ""
    public: bool = False
    replace: bool = False
    disk: int | None = None
    card: Path | None = None
    threads: int | None = None
    cluster: str = ""


class _StepError(Exception):
    """A step failed for one file; a failure of the journal is another thing."""


class Runner:
    """Does the steps of one job."""

    def __init__(self, job: ReleaseJob, journal: Journal, tell: Tell, bar: Bar) -> None:
        self.job: ReleaseJob = job
        self.settings: Settings = job.settings
        self.journal: Journal = journal
        self.bar: Bar = bar
        self._tell = tell
        self.folder: Path = job.folder
        self.work: Path = job.folder / WORK
        size = job.settings.shard_bytes
        self.writing: dict[str, Any] = {"shard_size": size, "threads": job.threads, "resume": True}
        self.executor: Executor | None = None  # of the cluster
        self.problems: list[str] = []

    def tell(self, state: str, step: str = "", **facts: Any) -> None:
        """Show and log what happens."""
        self.journal.log(json.dumps({"step": step, "state": state, **facts}))
        self._tell(step, state, **facts)

    def problem(self, step: str, text: str) -> None:
        """Note what went wrong; the release goes on, and ends with code 1."""
        for folder in (self.folder.absolute(), self.folder):
            text = text.replace(f"{folder}/", "")
        plain = shortened(text, MAX_PROBLEM)
        self.problems.append(f"{step}: {plain}")
        self.tell("failed", step, text=plain)

    def is_done(self, name: str, inputs: Sequence[object]) -> bool:
        """Whether a step was done with these inputs."""
        return self.journal.is_done(name, digest_of(name, *inputs))

    def step(self, name: str, inputs: Sequence[object], make: Callable[[], StepOutcome]) -> Facts:
        """Do a step, unless it is done; return what it found out."""
        if self.is_done(name, inputs):
            self.tell("skipped", name)
            return self.journal.facts(name)
        check_cancelled()
        self.tell("begun", name)
        paths, facts = make()
        self.journal.record(name, digest_of(name, *inputs), paths, facts)
        self.tell("done", name, files=[path.name for path in paths])
        return self.journal.facts(name)

    def trying(self, name: str, inputs: Sequence[object], make: Callable[[], StepOutcome]) -> bool:
        """Do a step for one file; if `make` fails, it is a problem of this file alone."""

        def tried() -> StepOutcome:
            try:
                return make()
            except GGUFError as error:
                raise _StepError(error.message) from error

        try:
            self.step(name, inputs, tried)
        except _StepError as error:
            self.problem(name, str(error))
            return False
        return True

    def results(self, tasks: Sequence[Future[TaskResult]], doing: str) -> list[TaskResult]:
        """Return the results of tasks on the cluster; the bar counts those that are done."""
        with self.bar(doing, in_bytes=False) as progress:
            while running := wait(tasks, LOOK_SECONDS).not_done:
                check_cancelled()
                if progress:
                    progress(len(tasks) - len(running), len(tasks))
        return [task.result() for task in tasks]

    def written(self, model: Model, path: Path) -> list[Path]:
        """Write a model, split where it is too large; return its files."""
        with self.bar("writing") as progress:
            return write(model, path, progress=progress, executor=self.executor, **self.writing)
