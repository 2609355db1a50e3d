"""Where the bytes of a response go: memory, or a file at an offset."""

from __future__ import annotations

from typing import Protocol

from ggufkit.remote.limits import BUFFER_BYTES
from ggufkit.system.descriptors import write_at


class Sink(Protocol):
    """Where bytes go: `room` provides memory for the next of them, `keep` takes what came."""

    def room(self, at: int, nbytes: int) -> memoryview:
        """Return memory for `nbytes` bytes, or fewer, at position `at`."""

    def keep(self, at: int, data: memoryview) -> None:
        """Take bytes at position `at`, which lie in the memory provided last."""


class MemorySink:
    """Memory that holds the bytes from position `begin` on: they arrive in their place."""

    def __init__(self, memory: memoryview, begin: int) -> None:
        """Keep the memory."""
        self._memory = memory
        self._begin = begin

    def room(self, at: int, nbytes: int) -> memoryview:
        """Return the place of these bytes."""
        return self._memory[at - self._begin : at - self._begin + nbytes]

    def keep(self, at: int, data: memoryview) -> None:
        """Do nothing: the bytes are in their place."""


class DescriptorSink:
    """A file into which bytes are written, `shift` bytes after their position."""

    def __init__(self, descriptor: int, shift: int) -> None:
        """Make the memory through which the bytes pass."""
        self._descriptor = descriptor
        self._shift = shift
        self._memory = memoryview(bytearray(BUFFER_BYTES))

    def room(self, at: int, nbytes: int) -> memoryview:  # noqa: ARG002 (the sink's interface)
        """Return memory for these bytes."""
        return self._memory[:nbytes]

    def keep(self, at: int, data: memoryview) -> None:
        """Write the bytes."""
        write_at(self._descriptor, data, at + self._shift)
