"""Keep the last results of long computations, for all threads that need them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass
class _OnceMade(Generic[T]):
    """A result, once it is there; its lock is held while it is made."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    found: list[T] = field(default_factory=list)


class LastResults(Generic[T]):
    """The last `size` results, by keys; each is made once, and other threads wait for it."""

    def __init__(self, size: int) -> None:
        """Start without results."""
        self._size = size
        self._lock = threading.Lock()
        self._results: OrderedDict[Hashable, _OnceMade[T]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the result of a key; make it if it is not there."""
        with self._lock:
            result = self._results.setdefault(key, _OnceMade())
            self._results.move_to_end(key)
            if len(self._results) > self._size:
                self._results.popitem(last=False)
        with result.lock:
            if not result.found:
                result.found.append(make())
            return result.found[0]
