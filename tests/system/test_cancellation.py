"""A signal cancels work between two steps; commands alone have a handler for it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from platforms import posix

PRELUDE = """
import signal, sys, threading, time
from queue import SimpleQueue
from ggufkit.system import cancellation
from ggufkit.system.cancellation import check_cancelled, shield
from ggufkit.system.threads import as_completed, in_turn, pool_of, result_of
"""
SAID = "interrupted; every output is whole, or as it was\n"


def ended(code, *, handled=True):
    """Run a program, with the handler of commands or without."""
    handler = "cancellation.handle_signals()\n" if handled else ""
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + handler + code],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@posix
def test_signal_ends_the_process_at_once_where_nothing_is_shielded():
    done = ended("signal.raise_signal(signal.SIGTERM); print('goes on', flush=True)")
    assert (done.returncode, done.stdout, done.stderr) == (143, "", SAID)


@posix
def test_shield_delays_a_signal_until_the_end_of_the_outermost():
    done = ended("""
with shield("state of the outer"):
    with shield():
        signal.raise_signal(signal.SIGINT)
    print("after the inner", flush=True)
print("after the outer", flush=True)
""")
    assert (done.returncode, done.stdout) == (130, "after the inner\n")
    assert done.stderr == "interrupted; state of the outer\n"


@posix
def test_signal_raises_between_two_steps_and_what_cleans_up_runs():
    done = ended("""
with shield():
    try:
        check_cancelled()
        signal.raise_signal(signal.SIGINT)
        print("first step", flush=True)
        check_cancelled()
        print("second step", flush=True)
    except Exception:
        print("caught", flush=True)
    finally:
        print("cleaned", flush=True)
""")
    assert (done.returncode, done.stdout) == (130, "first step\ncleaned\n")


@posix
def test_first_signal_decides_the_exit_code():
    done = ended("""
with shield():
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGINT)
""")
    assert done.returncode == 143


@posix
def test_other_programs_keep_the_interrupt_of_python():
    done = ended(
        """
try:
    with shield():
        signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("Python's own", not cancellation.is_interrupted())
""",
        handled=False,
    )
    assert (done.stdout, done.stderr) == ("Python's own True\n", "")


WAITS = {
    "a result": "result_of(pool.submit(work))",
    "results in order": "list(in_turn(pool, [work], 0))",
    "any result": "list(as_completed([lambda: pool.submit(work)], 1))",
    "an outer pool": "result_of(pool.submit(nested))",
}
WORKS = {"careful": "check_cancelled()", "waiting": "cancellation.pause(60)", "deaf": "pass"}


@posix
@pytest.mark.parametrize("works", WORKS)
@pytest.mark.parametrize("wait", WAITS)
def test_signal_ends_waiting_for_threads(wait, works):
    done = ended(f"""
def work():
    threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, 2)).start()
    while True:
        time.sleep(0.01)
        {WORKS[works]}
def nested():
    with pool_of(1) as inner:
        return result_of(inner.submit(work))
with shield():
    try:
        with pool_of(2) as pool:
            {WAITS[wait]}
    finally:
        print("cleaned", flush=True)
""")
    assert (done.returncode, done.stdout, done.stderr) == (130, "cleaned\n", SAID)


@posix
def test_shield_that_another_thread_opens_too_late_does_nothing():
    done = ended("""
cancellation._signals.append((signal.SIGINT, time.monotonic()))
with shield():
    print("made something", flush=True)
""")
    assert (done.returncode, done.stdout) == (128 + signal.SIGINT, "")
