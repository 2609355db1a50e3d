"""The processor: the instruction sets that kernels can use, and the number of cores."""

from __future__ import annotations

import functools
import operator
import os

import ggufkit._native as _native
from ggufkit.errors import GGUFError, ValueTypeError


def instruction_sets() -> tuple[str, ...]:
    """Return the instruction sets that this machine supports, the fastest first."""
    return tuple(_native.instruction_sets())


def instruction_set() -> str:
    """Return the instruction set in use: the fastest, or the one that GGUFKIT_ISA names.

    Raises GGUFError if this machine does not support the one in GGUFKIT_ISA.
    """
    return _chosen(os.environ.get("GGUFKIT_ISA", ""))


@functools.cache
def _chosen(forced: str) -> str:
    runnable = instruction_sets()
    if forced and forced not in runnable:
        raise GGUFError(
            f"GGUFKIT_ISA asks for the instruction set {forced!r}, which cannot run here",
            remedy=f"Use one of {', '.join(runnable)}, or unset it",
        )
    return forced or runnable[0]


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def worker_count(threads: int | None) -> int:
    """Return the number of threads to use: as given, else one for each usable core."""
    if threads is None:
        return usable_cores()
    try:
        count = operator.index(threads)
    except TypeError:
        count = 0
    if count < 1:
        raise ValueTypeError(
            f"{threads!r} is not a possible number of threads",
            remedy="Use a whole number of at least 1, or None",
        )
    return count
