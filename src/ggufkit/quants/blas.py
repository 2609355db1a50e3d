"""Limit the threads of NumPy's BLAS: where several threads call it, each should use one core.

OpenBLAS, which NumPy's wheels hold, is limited; other libraries keep their own number.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

_lock: Final = threading.Lock()
_limits: Final[list[int]] = []  # the number before all blocks, then the limits of the open ones


class _ThreadCount(NamedTuple):
    """Functions that read and set the number of threads."""

    get: Callable[[], int]
    set: Callable[[int], object]


@contextlib.contextmanager
def blas_limited(threads: int) -> Iterator[None]:
    """Limit the threads of BLAS in this block; of several open blocks, the least limit counts."""
    count = thread_count()
    if count is None:
        yield
        return
    with _lock:
        _limits.extend([threads] if _limits else [count.get(), threads])
        count.set(min(_limits))
    try:
        yield
    finally:
        with _lock:
            _limits.remove(threads)
            count.set(min(_limits))
            if len(_limits) == 1:
                _limits.clear()


def limited_blocks() -> int:
    """Return the number of blocks that run now, at least 1."""
    with _lock:
        return max(len(_limits) - 1, 1)


@functools.cache
def thread_count() -> _ThreadCount | None:
    """Return how to read and set the number of BLAS's threads, None for an unknown BLAS."""
    affixes = list(itertools.product(("scipy_", ""), ("64_", "")))
    with contextlib.suppress(OSError):
        for library, (prefix, suffix) in itertools.product(map(ctypes.CDLL, _libraries()), affixes):
            name = f"{prefix}openblas_{{}}_num_threads{suffix}"
            with contextlib.suppress(AttributeError):
                return _ThreadCount(library[name.format("get")], library[name.format("set")])
    return None


def _libraries() -> Iterator[str]:
    """Yield the libraries that may hold BLAS: NumPy's own, and the module that is linked with it.

    A symbol of what a module is linked with is found in the module too, but not on Windows.
    """
    yield from map(str, Path(np.__file__).parents[1].glob("numpy.libs/*openblas*"))
    spec = importlib.util.find_spec("numpy.linalg._umath_linalg")
    if spec and spec.origin:
        yield spec.origin
