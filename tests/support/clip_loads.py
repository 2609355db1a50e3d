"""Whether llama.cpp loads a projector: its own `clip_init`, in a process of its own.

The function takes and returns structures by value. Only what is asked for here is set in the first;
the second is three pointers, those of the encoders of pictures and of sound among them.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import real

OPTIONS_BYTES = 128  # at least as many as `clip_context_params` has; zeros are its plainest options


class Options(ctypes.Structure):
    """`clip_context_params` of clip.h."""

    _fields_ = (("bytes", ctypes.c_char * OPTIONS_BYTES),)


class Loaded(ctypes.Structure):
    """`clip_init_result` of clip.h."""

    _fields_ = (
        ("vision", ctypes.c_void_p),
        ("audio", ctypes.c_void_p),
        ("speech", ctypes.c_void_p),
    )


def loads(paths: Sequence[Path]) -> list[bool]:
    """Return whether llama.cpp loads each file; one that ends the process counts as no."""
    verdicts: list[bool] = []
    while len(verdicts) < len(paths):
        remaining = [str(path) for path in paths[len(verdicts) :]]
        done = subprocess.run(
            [sys.executable, __file__, *remaining], check=False, capture_output=True
        )
        lines = [line for line in done.stdout.decode().splitlines() if line in ("yes", "no")]
        verdicts += [line == "yes" for line in lines]
        if len(lines) < len(remaining):
            verdicts.append(False)
    return verdicts


def main(*paths: str) -> None:
    """Load each file and print whether it worked."""
    init = real.llama_cpp()._Z9clip_initPKc19clip_context_params
    init.restype = Loaded
    init.argtypes = (ctypes.c_char_p, Options)
    for path in paths:
        kinds = init(path.encode(), Options())
        print("yes" if kinds.vision or kinds.audio or kinds.speech else "no", flush=True)  # noqa: T201 (a program)


if __name__ == "__main__":
    main(*sys.argv[1:])
