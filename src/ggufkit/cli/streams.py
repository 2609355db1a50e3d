"""Standard streams that are missing, full, or lack characters."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from pathlib import Path
from typing import Final

from ggufkit.errors import OutputError

_DESCRIPTORS: Final = (0, 1, 2)


class _Missing(io.TextIOWrapper):
    """A standard output that the caller closed: text is dropped, a model cannot be written."""

    def write(self, text: str, /) -> int:
        """Drop it: the work is done all the same."""
        return len(text)


def prepare() -> None:
    """Make the streams such that writing to them fails in no other way than by an OSError.

    A descriptor that the caller closed is taken by a null device: the next file opened, a model
    perhaps, would have its number, and get what is printed.
    """
    for descriptor in _DESCRIPTORS:
        with contextlib.suppress(OSError):
            _occupy(descriptor)
    if sys.stdout is None:
        sys.stdout = _Missing(io.FileIO(1, "w", closefd=False), encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (until the end)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may lack any character


def _occupy(descriptor: int) -> None:
    try:
        os.fstat(descriptor)
    except OSError:
        null = os.open(os.devnull, os.O_RDONLY)  # so that a write fails, as it would have
        if null != descriptor:
            os.dup2(null, descriptor)
            os.close(null)


def flush() -> None:
    """Write what is printed and still held back; OutputError where it cannot be written.

    Python would do so at its end, and show a traceback. After an error nothing more is written.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        _drop()
        if error.errno == errno.EPIPE:  # the reader has had enough
            raise
        raise OutputError(
            f"writing standard output: {error.strerror}",
            remedy="Free some space, or send the output elsewhere",
        ) from error


def _drop() -> None:
    """Have whatever is still held back go nowhere."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
