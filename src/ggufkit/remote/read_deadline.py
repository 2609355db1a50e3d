"""A time limit for one read, over all requests that it takes."""

from __future__ import annotations

import time

from ggufkit.remote import limits


class ReadDeadline:
    """When a read must be done: each byte prolongs it, and so do waits, up to a limit.

    A server cannot stretch a read by breaking it into many slow requests.
    """

    def __init__(self) -> None:
        self.nbytes: int = 0
        self.time: float = time.monotonic() + limits.SLOW_SECONDS
        self._waits: float = limits.ALL_WAITS

    def add_bytes(self, nbytes: int) -> None:
        """Note bytes that came."""
        self.nbytes += nbytes
        self.time += nbytes / limits.SLOWEST

    def add_wait(self, seconds: float) -> None:
        """Note a wait before the next request."""
        granted = min(seconds, self._waits)
        self._waits -= granted
        self.time += granted

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self.time
