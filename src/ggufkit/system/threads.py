"""Run work in several threads: cancel it after an error or a signal, and take results in order."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, TypeVar

from ggufkit.system import cancellation

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

T = TypeVar("T")
# Callbacks for progress.
Progress = Callable[[int, int], None]  # called with the amount done and the total
Notify = Callable[[str], None]  # called with a note
GRACE_SECONDS: Final = 0.5  # for threads to end after a signal; the process does not wait longer


@contextlib.contextmanager
def pool_of(threads: int) -> Iterator[Executor]:
    """Provide a pool that, on any error, drops waiting tasks and cancels running ones."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 (slow to import)

    is_closing = threading.Event()
    events = (*cancellation.cancelling_events(), is_closing)
    workers: list[threading.Thread] = []

    def begin() -> None:
        workers.append(threading.current_thread())
        cancellation.cancel_on(events)

    pool = ThreadPoolExecutor(threads, initializer=begin)
    try:
        yield pool
    except BaseException:
        cancellation.cancel(is_closing)
        raise
    finally:
        is_interrupted = cancellation.is_interrupted()
        pool.shutdown(wait=not is_interrupted, cancel_futures=True)
        if is_interrupted:
            until = time.monotonic() + GRACE_SECONDS
            for worker in workers:
                worker.join(max(0.0, until - time.monotonic()))


def result_of(future: Future[T]) -> T:
    """Return the result of a task, or raise its exception; Cancelled if it is not needed."""
    finished: SimpleQueue[Future[T] | None] = SimpleQueue()
    future.add_done_callback(finished.put)
    return cancellation.next_of(finished).result()


def in_turn(pool: Executor, tasks: Iterable[Callable[[], T]], ahead: int) -> Iterator[T]:
    """Yield the results of `tasks` in order, while at most `ahead` more are running."""
    pending: deque[Future[T]] = deque()
    try:
        for task in tasks:
            pending.append(pool.submit(task))
            if len(pending) > ahead:
                yield result_of(pending.popleft())
        while pending:
            yield result_of(pending.popleft())
    finally:
        for future in pending:
            future.cancel()


def in_parallel(tasks: Iterable[Callable[[], object]], most: int) -> None:
    """Run all tasks, at most `most` at the same time; the first error cancels the others."""
    queue = list(tasks)
    if queue:
        count = min(most, len(queue))
        with pool_of(count) as pool:
            for _ in in_turn(pool, queue, count):
                pass


def as_completed(tasks: Iterable[Callable[[], Future[T]]], in_flight: int) -> Iterator[T]:
    """Start tasks, at most `in_flight` at once, and yield their results as they come."""
    finished: SimpleQueue[Future[T] | None] = SimpleQueue()
    pending: set[Future[T]] = set()

    def next_result() -> T:
        future = cancellation.next_of(finished)
        pending.remove(future)
        return future.result()

    try:
        for start in tasks:
            future = start()
            pending.add(future)
            future.add_done_callback(finished.put)
            if len(pending) >= in_flight:
                yield next_result()
        while pending:
            yield next_result()
    finally:
        for future in pending:
            future.cancel()
