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
_first: list[float] = []  # when the first signal came


def leave_at_once() -> None:
    """Make a signal end the process at once: there are no hidden files yet, or not any more."""
    sys.excepthook = _print_unexpected
    sys.unraisablehook = _raise_later
    _install(_leave)


def clear_away_first() -> None:
    """Make a signal raise an exception, so that hidden files are removed on the way out."""
    _install(stop)


def stop(number: int, _frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt or SystemExit; end the process if another signal comes later."""
    now = time.monotonic()
    if not _first:
        _first.append(now)
        _raise(number)
    if now - _first[0] > PATIENCE:  # some senders repeat a signal at once
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _raise(number: int) -> NoReturn:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(SIGNALLED + number)


def _raise_later(dropped: sys.UnraisableHookArgs) -> None:
    """Raise an interrupt again if it came during a destructor, where Python drops exceptions."""
    error = dropped.exc_value
    if not (_first and isinstance(error, KeyboardInterrupt | SystemExit) and _ALARM):
        sys.__unraisablehook__(dropped)
        return
    number = signal.SIGINT if isinstance(error, KeyboardInterrupt) else signal.SIGTERM
    signal.signal(_ALARM, lambda _number, _frame: _raise(number))
    signal.setitimer(signal.ITIMER_REAL, LATER)


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
