"""Handles standard streams that are closed, full, or cannot print some characters."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ggufkit.errors import GGUFError, OutputError

PIPE: Final = "-"  # the name of a standard stream
_DESCRIPTORS: Final = (0, 1, 2)
_PRINTERS: Final = ("click.", "ggufkit.cli.output")  # modules that write to standard output
_REMEDIES: Final = (
    "Free some space, or send the output elsewhere",
    "The files are written, and only this report is lost",
)
_files_written: Final[list[bool]] = []  # whether the files of this command are written


class _Missing(io.TextIOWrapper):
    """A standard output that the caller closed: drops text, and fails to write a model."""

    def write(self, text: str, /) -> int:
        """Drop the text, so that the command still does its work."""
        return len(text)


def prepare() -> None:
    """Set up the streams so that writing to them only raises OSError.

    A descriptor that the caller closed gets a null device. Otherwise the next opened file, perhaps
    a model, would get its number, and printed text would go there.
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
        null = os.open(os.devnull, os.O_RDONLY)  # read-only, so that a write still fails
        if null != descriptor:
            os.dup2(null, descriptor)
            os.close(null)


def flush() -> None:
    """Flush printed text; OutputError if it cannot be written.

    Python would flush at exit and show a traceback. After an error the rest is dropped.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        drop()
        if error.errno == errno.EPIPE:  # the reader has closed it
            raise
        raise _unprinted(error) from error


@contextlib.contextmanager
def dropping_if_closed() -> Iterator[None]:
    """Drop what the body prints if the reader closes the output: the work itself is done."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        drop()


def work_is_done() -> None:
    """Note that the files of this command are written: what it prints is only a report."""
    _files_written.append(True)


def error_of(error: GGUFError | OSError) -> GGUFError | OSError:
    """Return an error; if printing failed, which names no file, name standard output."""
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    is_printing = trace and trace.tb_frame.f_globals.get("__name__", "").startswith(_PRINTERS)
    if isinstance(error, GGUFError) or error.filename or not is_printing:
        return error
    drop()
    return _unprinted(error)


def _unprinted(error: OSError) -> OutputError:
    return OutputError(
        f"writing standard output: {error.strerror}", remedy=_REMEDIES[bool(_files_written)]
    )


def drop() -> None:
    """Drop all buffered text."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
