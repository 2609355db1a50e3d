"""Run work in several threads: stop it on errors and signals, and take results in order.

Nothing else may wait for a Future or submit work: a signal that arrives inside `concurrent.futures`
would leave its locks held. Here signals wait until it has returned.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from typing import Any, Final, TypeVar

from ggufkit.system.interrupts import HELD, LOOK_SECONDS

T = TypeVar("T")
# Callbacks for progress.
Progress = Callable[[int, int], None]  # called with the amount done and the total
Say = Callable[[str], None]  # called with a note
_here: Final = threading.local()  # holds the event that stops the work of this thread


class LeftError(Exception):
    """The pool of this thread is being left: its results are no longer needed."""


@contextlib.contextmanager
def pool_of(threads: int) -> Iterator[Executor]:
    """Provide a pool that, on any error, drops waiting tasks and stops those that check `stop`."""
    left = threading.Event()
    leaving = (*getattr(_here, "leaving", ()), left)
    with HELD:
        pool = ThreadPoolExecutor(threads, initializer=_begin, initargs=(leaving,))
    try:
        yield pool
    except BaseException:
        left.set()
        raise
    finally:
        with HELD:
            pool.shutdown(cancel_futures=True)


def _begin(leaving: tuple[threading.Event, ...]) -> None:
    _here.leaving = leaving


def require_wanted() -> None:
    """Raise LeftError if this thread's pool is being left; call it between steps of long work."""
    if any(left.is_set() for left in getattr(_here, "leaving", ())):
        raise LeftError


def submit(
    pool: Executor,
    task: Callable[..., T],
    *arguments: Any,
    **options: Any,
) -> Future[T]:
    """Submit a task to a pool."""
    with HELD:
        return pool.submit(task, *arguments, **options)


def result_of(future: Future[T]) -> T:
    """Return the result of a task, or raise its exception."""
    while True:
        with HELD:
            if wait((future,), LOOK_SECONDS).done:
                return future.result()


def first_done(futures: Collection[Future[T]]) -> tuple[set[Future[T]], set[Future[T]]]:
    """Return the futures that are done, at least one, and the others."""
    while True:
        with HELD:
            found = wait(futures, LOOK_SECONDS, FIRST_COMPLETED)
            if found.done:
                return found.done, found.not_done


def cancel(futures: Iterable[Future[Any]]) -> None:
    """Cancel tasks that have not started."""
    with HELD:
        for future in futures:
            future.cancel()


def in_turn(pool: Executor, tasks: Iterable[Callable[[], T]], ahead: int) -> Iterator[T]:
    """Yield the results of `tasks` in order, while at most `ahead` more are running."""
    pending: deque[Future[T]] = deque()
    try:
        for task in tasks:
            pending.append(submit(pool, task))
            if len(pending) > ahead:
                yield result_of(pending.popleft())
        while pending:
            yield result_of(pending.popleft())
    finally:
        cancel(pending)
