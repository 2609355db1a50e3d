"""Shows a running release on a terminal: its steps, the rung, a bar with rate, and disk space."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from ggufkit.cli.output import counted, size
from ggufkit.cli.progress import bar_of, duration
from ggufkit.errors import printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.progress import Progress as RichProgress

    from ggufkit.release.runner import ReleaseJob, Tell
    from ggufkit.system.threads import Progress

DISK_SECONDS: Final = 1.0  # between looks at the disk


class ReleaseView(contextlib.AbstractContextManager["ReleaseView"]):
    """Some lines at the bottom of the terminal, below what `tell` prints; a context manager."""

    def __init__(self, job: ReleaseJob, tell: Tell) -> None:
        self._job, self._tell = job, tell
        self._began = time.monotonic()
        self._count = 0
        self._steps: list[str] = []  # that are being done
        self._bar: RichProgress | None = None
        self._disk, self._disk_time = "", 0.0
        self._live: Live | None = None

    def __enter__(self) -> ReleaseView:
        from rich.console import Console  # noqa: PLC0415 (slow to import, and rarely needed)
        from rich.live import Live  # noqa: PLC0415

        console = Console(stderr=True)
        self._live = Live(
            self, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def tell(self, step: str, state: str, **facts: Any) -> None:
        """Show what happens, and print it as without a view."""
        self.__exit__()  # so that lines are printed above the view
        self._tell(step, state, **facts)
        if state == "begun":
            self._steps.append(step)
        elif state != "note":
            self._count += state != "failed"
            self._steps = [other for other in self._steps if other != step]
        self.__enter__()

    @contextlib.contextmanager
    def bar(self, doing: str, *, in_bytes: bool = True) -> Iterator[Progress]:
        """Show the bar of a step."""
        outer = self._bar
        self._bar, show = bar_of(doing, in_bytes=in_bytes)
        try:
            yield show
        finally:
            self._bar = outer

    def __rich__(self) -> RenderableType:
        from rich.console import Group  # noqa: PLC0415 (see above)
        from rich.text import Text  # noqa: PLC0415

        steps, seconds = counted(self._count, "step"), duration(time.monotonic() - self._began)
        lines = [f"{self._job.settings.name}: {steps} done in {seconds}"]
        lines += [f"{self._steps[0]}{self._rung}"] if self._steps else []
        texts = [Text(printable(line), no_wrap=True, overflow="ellipsis") for line in lines]
        bars = [self._bar] if self._bar else []
        return Group(*texts, *bars, Text(self._disk_line, no_wrap=True, overflow="ellipsis"))

    @property
    def _rung(self) -> str:
        """How many more steps are done together, or which of how many rungs the step is for."""
        from ggufkit.release.rungs import name_of  # noqa: PLC0415 (slow to import)

        names = [name_of(label) for label in self._job.settings.rungs]
        name = self._steps[0].partition(" ")[2].partition(" ")[0]
        if others := len(self._steps) - 1:
            return f" and {others} more"
        if name not in names:
            return ""
        return f" (rung {names.index(name) + 1} of {len(names)})"

    @property
    def _disk_line(self) -> str:
        from ggufkit.release.refusals import bytes_in  # noqa: PLC0415 (slow to import)

        job, now = self._job, time.monotonic()
        if now > self._disk_time + DISK_SECONDS:
            with contextlib.suppress(OSError):  # files come and go
                taken, free = bytes_in(job.folder), shutil.disk_usage(job.folder).free
                rest = f"{size(free)} free" if job.disk is None else f"limit {size(job.disk)}"
                self._disk, self._disk_time = f"disk: {size(taken)}, {rest}", now
        return self._disk
