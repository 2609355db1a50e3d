"""Signals wait where an exception would leave a lock held, and take effect right after."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import ggufkit
from ggufkit.system import interrupts, threads
from ggufkit.system.interrupts import HELD

posix = pytest.mark.skipif(os.name == "nt", reason="signals as POSIX has them")


@pytest.fixture
def noting():
    """Have SIGTERM only record that it arrived."""
    came = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: came.append(number))
    yield came
    signal.signal(signal.SIGTERM, before)


@posix
def test_signal_waits_until_the_end(noting):
    with HELD:
        with HELD:
            signal.raise_signal(signal.SIGTERM)
        assert not noting
    assert noting == [signal.SIGTERM]


@posix
def test_later_signal_waits_too(noting, monkeypatch):
    monkeypatch.setattr(interrupts, "PATIENCE", 0.0)
    with HELD:
        signal.raise_signal(signal.SIGTERM)
    with HELD:
        signal.raise_signal(signal.SIGTERM)
        assert len(noting) == 1
        time.sleep(0.01)
        signal.raise_signal(signal.SIGTERM)
        assert len(noting) == 2, "a user who insists does not wait"
    assert len(noting) == 3


@posix
def test_signal_becomes_an_exception_at_the_end_and_handlers_are_restored():
    before = signal.getsignal(signal.SIGINT)
    reached = []

    def interrupted():
        with HELD:
            signal.raise_signal(signal.SIGINT)
            reached.append(True)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert reached
    assert signal.getsignal(signal.SIGINT) is before
    with HELD:
        pass


@posix
def test_signal_can_be_let_in(noting):
    with HELD:
        signal.raise_signal(signal.SIGTERM)
        HELD.look()
        assert noting


@posix
def test_default_and_ignoring_handlers_are_unchanged(noting):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with HELD:
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_other_threads_do_not_touch_handlers():
    before, seen = signal.getsignal(signal.SIGINT), []

    def run():
        with HELD:
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [before]


@posix
@pytest.mark.parametrize(
    "wait", ["result_of(future)", "first_done([future])", "list(in_turn(pool, [work], 0))"]
)
def test_signal_ends_waiting_for_threads(wait):
    code = f"""
import os, signal, threading, time
from ggufkit.system.threads import *
from ggufkit.system.threads import require_wanted
from ggufkit.system.interrupts import HELD
started = threading.Event()
def work():
    started.set()
    while True:
        time.sleep(0.01)
        require_wanted()
def kill():
    started.wait()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=kill).start()
try:
    with pool_of(2) as pool:
        future = submit(pool, work)
        {wait}
except KeyboardInterrupt:
    print("ended")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout, done.stderr) == ("ended\n", "")


def left_amid(work, begun):
    """Leave a pool by an error while it works."""
    with threads.pool_of(1) as pool:
        threads.submit(pool, work)
        begun.wait()
        raise KeyError


def test_error_stops_work_that_checks_for_cancellation():
    begun, stopped = threading.Event(), []

    def work():
        begun.set()
        try:
            while True:
                threads.require_wanted()
        except threads.LeftError:
            stopped.append(True)
            raise

    with pytest.raises(KeyError):
        left_amid(work, begun)
    assert stopped


def test_inner_pool_stops_with_the_outer_one():
    begun, stopped = threading.Event(), []

    def inner():
        begun.set()
        while True:
            threads.require_wanted()

    def outer():
        with threads.pool_of(1) as pool:
            try:
                threads.result_of(threads.submit(pool, inner))
            finally:
                stopped.append(True)

    with pytest.raises(KeyError):
        left_amid(outer, begun)
    assert stopped


def test_only_this_module_waits_for_futures():
    """Locks of `concurrent.futures` are taken in one module only."""
    root = Path(ggufkit.__file__).parent
    # The others wait for no pool of ours.
    allowed = {"system/threads.py", "conversion/tensors/row_sources.py", "system/cluster.py"}
    for path in root.rglob("*.py"):
        name = path.relative_to(root).as_posix()
        waits = [
            call.func.attr
            for call in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and (
                call.func.attr in ("submit", "shutdown") or ast.unparse(call).endswith(".result()")
            )
        ]
        assert name in allowed or not waits, name
