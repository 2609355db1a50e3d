"""Pools drop their work after an error, and give results in order or as they come."""

from __future__ import annotations

import threading
import time

import pytest

from ggufkit.system import threads
from ggufkit.system.cancellation import Cancelled, check_cancelled, pause


def leave_during(work, begun):
    """Leave a pool by an error while it works."""
    with threads.pool_of(1) as pool:
        pool.submit(work)
        begun.wait()
        raise KeyError


def test_error_cancels_running_work():
    begun, stopped = threading.Event(), []

    def work():
        begun.set()
        try:
            while True:
                check_cancelled()
        except Cancelled:
            stopped.append(True)
            raise

    with pytest.raises(KeyError):
        leave_during(work, begun)
    assert stopped


@pytest.mark.parametrize("nested", [False, True])
def test_error_ends_a_pause_at_once(nested):
    begun = threading.Event()

    def work():
        begun.set()
        pause(60)

    def outer():
        with threads.pool_of(1) as pool:
            threads.result_of(pool.submit(work))

    start = time.monotonic()
    with pytest.raises(KeyError):
        leave_during(outer if nested else work, begun)
    assert time.monotonic() - start < 10


def test_pause_ends_after_its_seconds():
    start = time.monotonic()
    pause(0.05)
    assert 0.05 <= time.monotonic() - start < 10


def test_inner_pool_is_cancelled_with_the_outer_one():
    begun, stopped = threading.Event(), []

    def inner():
        begun.set()
        while True:
            check_cancelled()

    def outer():
        with threads.pool_of(1) as pool:
            try:
                threads.result_of(pool.submit(inner))
            finally:
                stopped.append(True)

    with pytest.raises(KeyError):
        leave_during(outer, begun)
    assert stopped


def test_results_come_in_order_or_as_they_are_done():
    first, gate = threading.Event(), threading.Event()

    def slow():
        first.set()
        gate.wait(60)
        return 1

    def quick():
        first.wait(60)
        return 2

    with threads.pool_of(2) as pool:
        starts = [lambda: pool.submit(slow), lambda: pool.submit(quick)]
        results = []
        for number in threads.as_completed(starts, 2):
            results.append(number)
            gate.set()
        assert results == [2, 1]
        assert list(threads.in_turn(pool, [slow, quick], 1)) == [1, 2]


def test_as_completed_starts_no_more_tasks_than_it_may():
    running, most = [], []

    def start(pool):
        running.append(True)
        most.append(len(running))
        return pool.submit(int)

    with threads.pool_of(4) as pool:
        for _ in threads.as_completed([lambda: start(pool)] * 20, 3):
            running.pop()
    assert max(most) == 3


def test_error_of_a_task_is_raised_where_its_result_is_taken():
    def failing():
        raise ValueError("of the task")

    with pytest.raises(ValueError, match="of the task"), threads.pool_of(1) as pool:
        threads.result_of(pool.submit(failing))
