"""The number of threads of NumPy's BLAS: limited in a block, and restored after it."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from ggufkit.quants.blas import blas_limited, blas_threads

CODE = """
from ggufkit.quants.blas import blas_limited, blas_threads
seen = [blas_threads()]
with blas_limited(1):
    seen.append(blas_threads())
print(*seen, blas_threads())
"""
limited = pytest.mark.skipif(blas_threads() is None, reason="NumPy has another BLAS than OpenBLAS")


@limited
def test_number_is_limited_in_a_block_and_restored():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    before, during, after = done.stdout.split()
    assert during == "1"
    assert before == after


@limited
def test_blocks_of_several_threads_may_end_in_any_order():
    before = blas_threads()
    inside, leave = threading.Barrier(2), threading.Event()

    def longer():
        with blas_limited(1):
            inside.wait()
            leave.wait()

    thread = threading.Thread(target=longer)
    with blas_limited(1):
        thread.start()
        inside.wait()
    assert blas_threads() == 1
    leave.set()
    thread.join()
    assert blas_threads() == before


def test_an_error_restores_the_number_too():
    before = blas_threads()
    with pytest.raises(ValueError, match="broken"), blas_limited(1):
        raise ValueError("broken")
    assert blas_threads() == before
