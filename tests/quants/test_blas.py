"""The number of threads of NumPy's BLAS: limited in a block, and restored after it."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from ggufkit.quants.blas import blas_limited, thread_count

CODE = """
from ggufkit.quants.blas import blas_limited, thread_count
seen = [thread_count().get()]
with blas_limited(1):
    seen.append(thread_count().get())
print(*seen, thread_count().get())
"""
limited = pytest.mark.skipif(thread_count() is None, reason="NumPy has another BLAS than OpenBLAS")


@limited
def test_number_is_limited_in_a_block_and_restored():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    before, during, after = done.stdout.split()
    assert during == "1"
    assert before == after


@limited
def test_blocks_of_several_threads_may_end_in_any_order():
    before = thread_count().get()
    inside, leave = threading.Barrier(2), threading.Event()

    def longer():
        with blas_limited(1):
            inside.wait()
            leave.wait()

    thread = threading.Thread(target=longer)
    with blas_limited(1):
        thread.start()
        inside.wait()
    assert thread_count().get() == 1
    leave.set()
    thread.join()
    assert thread_count().get() == before


def test_an_error_restores_the_number_too():
    before = thread_count().get()
    with pytest.raises(ValueError, match="broken"), blas_limited(1):
        raise ValueError("broken")
    assert thread_count().get() == before
