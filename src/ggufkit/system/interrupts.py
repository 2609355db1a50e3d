"""Delay signals for a moment, so that an exception of their handler leaves no lock held.

The classes of `concurrent.futures` take and release locks in Python. An exception between the two
leaves a lock that nobody releases, and the next thread waits for ever. While such code runs, the
handlers here only note which signal came; the handler that was installed before runs right after.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

LOOK_SECONDS: Final = 0.1  # between checks for a signal while waiting for other threads
PATIENCE: Final = 1.0  # seconds after a signal in which another one waits too
_NAMES: Final = ("SIGINT", "SIGTERM", "SIGALRM")  # Windows lacks the last
_NUMBERS: Final = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))
_Handler = Callable[[int, "FrameType | None"], Any]


class _Held:
    """A context in which handlers of signals wait; in other threads it does nothing."""

    def __init__(self) -> None:
        self._depth = 0
        self._before: dict[int, _Handler] = {}
        self._noted: list[int] = []
        self._first = 0.0  # when the first signal that waits came

    def __enter__(self) -> _Held:
        if threading.current_thread() is not threading.main_thread():
            return self
        self._depth += 1
        if self._depth == 1:
            try:
                self._take()
            except BaseException:  # from a handler that is not replaced yet
                self._leave()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        if threading.current_thread() is threading.main_thread():
            self._leave()

    def look(self) -> None:
        """Run the handlers of the signals that came since."""
        if self._noted and threading.current_thread() is threading.main_thread():
            number = self._noted.pop(0)
            self._before[number](number, None)

    def _take(self) -> None:
        self._noted.clear()
        self._first = 0.0
        for number in _NUMBERS:
            before = signal.getsignal(number)
            if callable(before):
                self._before[number] = before
                signal.signal(number, self._note)

    def _leave(self) -> None:
        self._depth -= 1
        if self._depth:
            return
        before, self._before = self._before, {}
        noted, self._noted = self._noted, []
        _restore(list(before.items()))
        for number in noted:
            before[number](number, None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._first and now - self._first > PATIENCE and number in self._before:
            self._before[number](number, frame)  # a user who insists need not wait
            return
        self._first = self._first or now
        self._noted.append(number)


def _restore(handlers: list[tuple[int, _Handler]]) -> None:
    """Install all handlers, even if the first one runs immediately and raises."""
    if handlers:
        number, handler = handlers[0]
        try:
            signal.signal(number, handler)
        finally:
            _restore(handlers[1:])


HELD: Final = _Held()  # `with HELD:` around steps that must not stop halfway
