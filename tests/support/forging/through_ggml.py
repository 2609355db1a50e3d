"""Have ggml's own reader load each forged file in a process of its own; print what it did.

Usage: through_ggml.py FOLDER, where each folder inside is a case.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import forge
import real


class InitParams(ctypes.Structure):
    """gguf_init_params of gguf.h."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("context", ctypes.c_void_p))


def reader() -> ctypes._CFuncPtr:
    """Return gguf_init_from_file."""
    function = real.llama_cpp().gguf_init_from_file
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_char_p, InitParams]
    return function


def load_apart(read: ctypes._CFuncPtr, path: Path) -> str:
    """Load in a forked process, for ggml aborts on some files."""
    child = os.fork()
    if child == 0:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        os._exit(0 if read(os.fsencode(path), InitParams(no_alloc=True, context=None)) else 1)
    _, status = os.waitpid(child, 0)
    return {0: "loads", 1: "refuses"}.get(os.waitstatus_to_exitcode(status), "aborts")


if __name__ == "__main__":
    read = reader()
    for case in forge.corpus().values():
        path = Path(sys.argv[1]) / case.name / next(iter(case.files))
        print(case.name, load_apart(read, path), flush=True)  # noqa: T201 (its result)
