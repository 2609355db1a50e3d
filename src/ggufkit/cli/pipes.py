"""Reads models from pipes: keeps them in an unnamed file while a command runs."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

import click

from ggufkit.cli.write_model import PIPE
from ggufkit.errors import OutputError
from ggufkit.format.magic import is_model

STDIN: Final = "/dev/stdin"  # opens standard input again, on systems that have it
DESCRIPTORS: Final = "/dev/fd"
CHUNK_BYTES: Final = 1 << 20
_IN: Final = 0  # the descriptor of standard input


class Piped(str):
    """The path of a file that came through a pipe or standard input: not editable in place."""

    __slots__ = ()


def claim_standard_input() -> None:
    """Mark standard input as used; UsageError if another argument already reads it."""
    context = click.get_current_context()
    if STDIN in context.meta:
        raise click.UsageError("Use - only once: there is only one standard input")
    context.meta[STDIN] = True


def require_file(name: str) -> None:
    """Refuse to change a model in place if it came through a pipe."""
    if isinstance(name, Piped):
        raise click.UsageError(
            "Input from a pipe cannot be edited in place; save it to a file first"
        )


def incoming(name: str, *, foreign: bool = False) -> str:
    """Return the path to open for a file called `name`, which may be "-" or a named pipe.

    The data of a pipe is first written to a file in TMPDIR, because models are read in any order.
    That file has no name, so nothing is left behind however the command ends. If the input is not
    a model, only enough bytes to identify it are kept, unless `foreign` files are allowed.
    """
    if name == PIPE:
        return Piped(_standard_input(foreign=foreign))
    return Piped(_named_pipe(name, foreign=foreign)) if _is_pipe(name) else name


def _is_pipe(name: str) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return stat.S_ISFIFO(Path(name).stat().st_mode)
    return False


def _standard_input(*, foreign: bool) -> str:
    if sys.stdin is None or os.isatty(_IN):
        raise click.UsageError("Standard input is a terminal; pipe a model in, or name a file")
    claim_standard_input()
    if not Path(STDIN).exists():  # Windows
        return _named(foreign=foreign)
    if not _is_file_from_its_start():
        _replace_input(_spooled(_IN, foreign=foreign))
    return STDIN


def _is_file_from_its_start() -> bool:
    """Whether standard input is a file at its start, which needs no copy."""
    is_file = stat.S_ISREG(os.fstat(_IN).st_mode)
    return is_file and os.lseek(_IN, 0, os.SEEK_CUR) == 0


def _replace_input(descriptor: int) -> None:
    """Replace standard input by another file until the command ends."""
    context = click.get_current_context()
    before = os.dup(_IN)
    context.call_on_close(lambda: os.close(before))
    context.call_on_close(lambda: os.dup2(before, _IN))
    os.dup2(descriptor, _IN)
    os.close(descriptor)


def _named_pipe(name: str, *, foreign: bool) -> str:
    with Path(name).open("rb", buffering=0) as pipe:
        descriptor = _spooled(pipe.fileno(), foreign=foreign)
    click.get_current_context().call_on_close(lambda: os.close(descriptor))
    return f"{DESCRIPTORS}/{descriptor}"


def _spooled(source: int, *, foreign: bool) -> int:
    """Return a descriptor of an unnamed file with all data from `source`."""
    with tempfile.TemporaryFile(prefix="ggufkit-") as kept:
        _pour(source, kept.fileno(), foreign=foreign)
        return os.dup(kept.fileno())


def _named(*, foreign: bool) -> str:
    """Return the path of a file that is removed at the end, for systems without unnamed files."""
    folder = tempfile.TemporaryDirectory(prefix="ggufkit-", ignore_cleanup_errors=True)
    click.get_current_context().call_on_close(folder.cleanup)
    path = Path(folder.name) / "stdin.gguf"
    with path.open("wb", buffering=0) as kept:
        _pour(_IN, kept.fileno(), foreign=foreign)
    return str(path)


def _pour(source: int, target: int, *, foreign: bool) -> None:
    nbytes = 0
    try:
        with open(source, "rb", closefd=False) as pipe, open(target, "wb", closefd=False) as kept:
            for data in _worth_keeping(pipe, foreign=foreign):
                kept.write(data)
                nbytes += len(data)
    except OSError as error:
        raise OutputError(
            f"{error.strerror} after {nbytes:,} bytes of what comes through the pipe were kept in "
            f"{tempfile.gettempdir()}",
            remedy="Set TMPDIR to a folder with enough free space for the model",
        ) from error


def _worth_keeping(pipe: BinaryIO, *, foreign: bool) -> Iterator[bytes]:
    """Yield all of a model or a `foreign` file, and only the beginning of anything else."""
    first = pipe.read(CHUNK_BYTES)
    yield first
    if foreign or is_model(first):
        yield from iter(partial(pipe.read, CHUNK_BYTES), b"")
