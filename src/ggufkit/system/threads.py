"""Work done by several threads: let go of on errors, and taken in its order."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
# What a caller may pass to be told how work goes.
Progress = Callable[[int, int], None]  # called with what is done and the total
Say = Callable[[str], None]  # called with a note


@contextlib.contextmanager
def pool_of(threads: int) -> Iterator[Executor]:
    """Lend a pool that, on any error, drops what has not begun."""
    pool = ThreadPoolExecutor(threads)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def in_turn(pool: Executor, tasks: Iterable[Callable[[], T]], ahead: int) -> Iterator[T]:
    """Yield the results of `tasks` in their order, while at most `ahead` more are worked at."""
    pending: deque[Future[T]] = deque()
    try:
        for task in tasks:
            pending.append(pool.submit(task))
            if len(pending) > ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()
