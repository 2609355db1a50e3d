"""Cancel work between two steps, when a signal asks for it or another thread has failed.

Only the command installs the handler; other programs have Python's KeyboardInterrupt. The handler
ends the process at once, unless a `shield` is open: then there are hidden files to remove, or steps
that belong together. In that case it notes the signal, `check_cancelled` raises Cancelled between
two steps, and the end of the last shield ends the process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, Final, NoReturn, TypeVar

T = TypeVar("T")

SIGNALLED: Final = 128  # plus the signal's number, as in shells
REPEAT_SECONDS: Final = 1.0  # some senders repeat a signal at once; a later one ends the process
WHOLE: Final = "every output is whole, or as it was"
_NUMBERS: Final = (signal.SIGINT, signal.SIGTERM)
_CLEAR_LINE: Final = "\r\x1b[2K\x1b[?25h"  # removes a progress bar, and shows the cursor again

# Lists, whose methods are atomic: the handler may run between any two steps of the main thread.
_signals: Final[list[tuple[int, float]]] = []  # the first one: its number, and when it came
_shields: Final[list[str]] = []  # what to say when the work in each is cancelled
# The queues on which threads wait, and the events that cancel the work of each thread.
_queues: Final[list[tuple[SimpleQueue[Any], tuple[threading.Event, ...]]]] = []
_events = threading.local()  # `set` of this thread: the events that cancel its work


class Cancelled(BaseException):
    """A signal came, or the thread pool is closing: the result of this thread is not needed."""


def handle_signals() -> None:
    """Let SIGINT and SIGTERM cancel the work of this process, which is a command."""
    for number in _NUMBERS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # shells ignore it for background jobs
            signal.signal(number, _receive)


def _receive(number: int, _frame: FrameType | None) -> None:
    now = time.monotonic()
    if not _signals:
        _signals.append((number, now))
    if not _shields or now - _signals[0][1] > REPEAT_SECONDS:
        _leave(WHOLE)
    for queue, _ in _queues:
        queue.put(None)


def _leave(state: str) -> NoReturn:
    """End the process, and say what state its outputs are in."""
    with contextlib.suppress(OSError):
        clear = _CLEAR_LINE if os.isatty(2) else ""
        os.write(2, f"{clear}interrupted; {state}\n".encode())
    os._exit(SIGNALLED + _signals[0][0])


@contextlib.contextmanager
def shield(state: str = WHOLE) -> Iterator[None]:
    """Let a signal wait for `check_cancelled`, or for the end of the body.

    Everything that removes hidden files, or must not stop halfway, runs in one. `state` is the
    command's sentence about its outputs if it is interrupted.
    """
    _shields.append(state)
    try:
        if _signals and len(_shields) == 1:  # the process is about to end
            raise Cancelled
        yield
    finally:
        _shields.remove(state)
        if _signals and not _shields:
            _leave(state)


def is_interrupted() -> bool:
    """Whether a signal asks this process to end."""
    return bool(_signals)


def check_cancelled() -> None:
    """Raise Cancelled if the result of this thread is not needed; call it between two steps."""
    if _signals or any(event.is_set() for event in cancelling_events()):
        raise Cancelled


def cancelling_events() -> tuple[threading.Event, ...]:
    """Return the events that cancel the work of this thread."""
    return getattr(_events, "set", ())


def cancel_on(events: tuple[threading.Event, ...]) -> None:
    """Let any of `events` cancel the work of this thread."""
    _events.set = events


def cancel(event: threading.Event) -> None:
    """Set an event, and wake the threads whose work it cancels."""
    event.set()
    for queue, events in _queues:
        if event in events:
            queue.put(None)


def pause(seconds: float) -> None:
    """Wait; Cancelled as soon as the result of this thread is not needed."""
    with contextlib.suppress(Empty):
        next_of(SimpleQueue[None](), seconds)


def next_of(queue: SimpleQueue[T | None], seconds: float | None = None) -> T:
    """Return the next item of a queue; Cancelled if the result of this thread is not needed.

    Raises Empty after `seconds`, if given.
    """
    entry = (queue, cancelling_events())
    _queues.append(entry)
    try:
        check_cancelled()  # now that a later signal or event wakes this thread
        item = queue.get(timeout=seconds)
    finally:
        _queues.remove(entry)
    if item is None:
        raise Cancelled
    return item
