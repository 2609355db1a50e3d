"""Does the steps of a release: skips what is done, tells what happens, collects problems."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from ggufkit.errors import GGUFError, shortened
from ggufkit.models.model import Model
from ggufkit.output.write import write
from ggufkit.release.journal import Facts, Journal, digest_of
from ggufkit.release.settings import Settings
from ggufkit.system.cancellation import check_cancelled
from ggufkit.system.threads import Progress

WORK: Final = ".release"  # a folder for what only later steps need
MAX_PROBLEM: Final = 500  # characters
StepOutcome = tuple[Sequence[Path], Facts]  # the files of a step, and what it found out


class Tell(Protocol):
    """Shows that a step is "begun", "done", "skipped" or "failed", or a "note"."""

    def __call__(self, step: str, state: str, **facts: Any) -> None:
        """Show it."""


class Bar(Protocol):
    """Shows the progress of a step."""

    def __call__(
        self, doing: str, *, in_bytes: bool = True
    ) -> contextlib.AbstractContextManager[Progress | None]:
        """Return what calls with the amount done and the total are shown by."""


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


def no_bar(doing: str, *, in_bytes: bool = True) -> contextlib.AbstractContextManager[None]:  # noqa: ARG001 (as Bar)
    """Show no progress."""
    return contextlib.nullcontext()


class Runner:
    """Does the steps of one job."""

    def __init__(self, job: ReleaseJob, journal: Journal, tell: Tell | None, bar: Bar) -> None:
        """Take the journal, whose folder is locked."""
        self.job: ReleaseJob = job
        self.settings: Settings = job.settings
        self.journal: Journal = journal
        self.bar: Bar = bar
        self._tell = tell
        self.folder: Path = job.folder
        self.work: Path = job.folder / WORK
        self.problems: list[str] = []

    def tell(self, state: str, step: str = "", **facts: Any) -> None:
        """Show and log what happens."""
        self.journal.log(json.dumps({"step": step, "state": state, **facts}))
        if self._tell:
            self._tell(step, state, **facts)

    def problem(self, step: str, text: str) -> None:
        """Note what went wrong; the release goes on, and ends with code 1."""
        plain = shortened(text.replace(f"{self.folder}/", ""), MAX_PROBLEM)
        self.problems.append(f"{step}: {plain}")
        self.tell("failed", step, text=plain)

    def step(self, name: str, inputs: Sequence[object], make: Callable[[], StepOutcome]) -> Facts:
        """Do a step, unless it is done; return what it found out."""
        key = digest_of(name, *inputs)
        if self.journal.is_done(name, key):
            self.tell("skipped", name)
            return self.journal.facts(name)
        check_cancelled()
        self.tell("begun", name)
        paths, facts = make()
        self.journal.record(name, key, paths, facts)
        self.tell("done", name, files=[path.name for path in paths])
        return self.journal.facts(name)

    def trying(self, step: str, act: Callable[[], object]) -> bool:
        """Do something for one file; if that fails, it is a problem of this file alone."""
        try:
            act()
        except GGUFError as error:
            self.problem(step, error.message)
            return False
        return True

    def files(self, step: str) -> list[Path]:
        """Return the files that a step made."""
        return [self.folder / name for name in self.journal.steps.get(step, {}).get("files", ())]

    def written(self, model: Model, path: Path) -> list[Path]:
        """Write a model, split where it is too large; return its files."""
        with self.bar("writing") as progress:
            return write(
                model,
                path,
                shard_size=self.settings.shard_bytes,
                threads=self.job.threads,
                progress=progress,
                resume=True,
            )

    def room(self) -> int | None:
        """Return how many more bytes may be in the folder, None without a limit."""
        if self.job.disk is None:
            return None
        files = (path for path in self.folder.rglob("*") if path.is_file())
        return self.job.disk - sum(path.stat().st_size for path in files)
