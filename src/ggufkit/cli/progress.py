"""Shows a progress bar for long work."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import click

from ggufkit.cli.output import is_quiet, size

if TYPE_CHECKING:
    from rich import progress as rich

    from ggufkit.system.threads import Progress

FIRST_SECONDS: Final = 5.0  # of work without a line
EVERY_SECONDS: Final = 10.0  # between lines
BAR_SECONDS: Final = 0.5  # of work without a bar


def _lines(doing: str, *, in_bytes: bool) -> Progress:
    """Return what prints a line of progress now and then, for logs."""
    began = time.monotonic()
    next_line = began + FIRST_SECONDS

    def show(done: int, total: int) -> None:
        nonlocal next_line
        now = time.monotonic()
        if now < next_line or done >= total:
            return
        next_line = now + EVERY_SECONDS
        rate = done / (now - began)
        remaining = f", {duration((total - done) / rate)} left" if rate else ""
        speed = f" at {size(int(rate))}/s" if in_bytes else ""
        amounts = (size(done), size(total)) if in_bytes else (f"{done:,}", f"{total:,}")
        text = f"{amounts[0]} of {amounts[1]} ({done / total:.0%}){speed}{remaining}"
        click.echo(f"{doing}: {text}", err=True)

    return show


def duration(seconds: float) -> str:
    """Return "0:01:05"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def bar_of(doing: str, *, in_bytes: bool) -> tuple[rich.Progress, Progress]:
    """Return a bar with amounts, rate and time left, not shown yet, and what changes it."""
    from rich import progress as rich  # noqa: PLC0415 (slow to import, and rarely needed)
    from rich.console import Console  # noqa: PLC0415

    nbytes = (rich.TaskProgressColumn(), rich.DownloadColumn(), rich.TransferSpeedColumn())
    counts = (rich.MofNCompleteColumn(), rich.TextColumn("{task.fields[rate]}"))
    columns = (rich.BarColumn(), *(nbytes if in_bytes else counts), rich.TimeRemainingColumn())
    bar = rich.Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(doing, total=None, rate="")

    def show(done: int, total: int) -> None:
        bar.update(task, completed=done, total=total)
        if speed := bar.tasks[0].speed:
            bar.update(task, rate=f"{speed:.1f}/s")

    return bar, show


@contextlib.contextmanager
def progress_bar(doing: str, *, in_bytes: bool = True) -> Iterator[Progress | None]:
    """Show a bar with rate and time left on stderr; plain lines if that is not a terminal.

    Progress counts bytes, or with `in_bytes=False` other units. Lines come from FIRST_SECONDS on,
    so that short work prints none; a bar appears after BAR_SECONDS. With --quiet there is nothing.
    """
    if is_quiet():
        yield None
        return
    if not sys.stderr.isatty():
        yield _lines(doing, in_bytes=in_bytes)
        return
    bar, change = bar_of(doing, in_bytes=in_bytes)
    shown_from = time.monotonic() + BAR_SECONDS

    def show(done: int, total: int) -> None:
        if not bar.live.is_started and time.monotonic() >= shown_from:
            bar.start()
        change(done, total)

    try:
        yield show
    finally:
        bar.stop()
