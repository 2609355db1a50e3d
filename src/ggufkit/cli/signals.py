"""Handles Ctrl-C and SIGTERM, from a command's first import to its last flush.

This module imports nothing slow: `main` calls it before it imports the commands.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Final, NoReturn

SIGNALLED: Final = 128  # plus the signal's number, as in shells
LATER: Final = 0.002  # seconds, enough for a destructor that dropped the exception to return
PATIENCE: Final = 1.0  # seconds; a second signal within this time counts as the same one
_NUMBERS: Final = (signal.SIGINT, signal.SIGTERM)
_ALARM: Final = getattr(signal, "SIGALRM", None)  # not on Windows
_first: list[tuple[float, int]] = []  # when the first signal came, and its number


def leave_at_once() -> None:
    """Make a signal end the process at once, while there are no hidden files to remove."""
    sys.excepthook = _print_unexpected
    sys.unraisablehook = _raise_later
    _install(_leave)
    # A command may end before an interrupt that Python dropped is raised again.
    if _ALARM is not None and signal.getsignal(_ALARM) is _raise_first:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(_ALARM, signal.SIG_IGN)


def clear_away_first() -> None:
    """Make a signal raise an exception, so that hidden files are removed on the way out."""
    _install(stop)


def stop(number: int, _frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt or SystemExit; end the process if another signal comes later."""
    now = time.monotonic()
    if not _first:
        _first.append((now, number))
        _raise(number)
    if now - _first[0][0] > PATIENCE:  # some senders repeat a signal at once
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def came() -> int | None:
    """Return the number of the signal that ends this command, None if none came."""
    return _first[0][1] if _first else None


def is_behind(error: BaseException) -> bool:
    """Whether an error arose from the exception of a signal, or while that was handled.

    Python and libraries wrap exceptions: before 3.12 `class` turns any that `__set_name__` raises
    into a RuntimeError, so that a signal during the import of an enum became one.
    """
    if not _first:
        return False
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        if isinstance(each, KeyboardInterrupt | SystemExit):
            return True
        seen.add(id(each))
        waiting += [each.__cause__, each.__context__]
    return False


def _raise(number: int) -> NoReturn:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(SIGNALLED + number)


def _raise_later(dropped: sys.UnraisableHookArgs) -> None:
    """Raise an interrupt again if it came during a destructor, where Python drops exceptions."""
    error = dropped.exc_value
    if error is None or not is_behind(error) or _ALARM is None:
        sys.__unraisablehook__(dropped)
        return
    signal.signal(_ALARM, _raise_first)
    signal.setitimer(signal.ITIMER_REAL, LATER)


def _raise_first(_number: int, _frame: FrameType | None) -> None:
    _raise(_first[0][1])


def _install(handler: Callable[[int, FrameType | None], object]) -> None:
    for number in _NUMBERS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # shells ignore it for background jobs
            signal.signal(number, handler)


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    os._exit(SIGNALLED + number)


def _print_unexpected(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    """Print the traceback of an unexpected error, but not of Ctrl-C."""
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, traceback)
