"""Shows a progress bar for long work."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from ggufkit.system.interrupts import HELD


@contextlib.contextmanager
def progress_bar(
    doing: str, *, in_bytes: bool = True
) -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar with rate and time left on stderr, or nothing if that is not a terminal.

    Progress counts bytes, or with `in_bytes=False` other units.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress as rich  # noqa: PLC0415 (slow to import, and rarely needed)
    from rich.console import Console  # noqa: PLC0415

    counts = (rich.MofNCompleteColumn(),)
    nbytes = (rich.TaskProgressColumn(), rich.DownloadColumn(), rich.TransferSpeedColumn())
    bar = rich.Progress(
        rich.BarColumn(),
        *(nbytes if in_bytes else counts),
        rich.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with HELD:  # the bar has a thread and a lock
        bar.start()
        task = bar.add_task(doing, total=None)

    def show(done: int, total: int) -> None:
        with HELD:
            bar.update(task, completed=done, total=total)

    try:
        yield show
    finally:
        with HELD:
            bar.stop()
