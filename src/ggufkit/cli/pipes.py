"""Reads models from pipes, kept in an unnamed file while a command runs, and texts."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from ggufkit.cli.streams import PIPE
from ggufkit.errors import OutputError
from ggufkit.format.magic import is_model
from ggufkit.system.cancellation import check_cancelled, shield
from ggufkit.system.text_file import Most, decoded, read_small, read_stream

STDIN: Final = "/dev/stdin"  # opens standard input again, on systems that have it
DESCRIPTORS: Final = "/dev/fd"
CHUNK_BYTES: Final = 1 << 20
STANDARD_INPUT: Final = "standard input"  # in messages
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


def text_of(name: str, most: Most = Most.VALUES) -> str:
    """Return the text of a file, or of standard input for "-"; BadParameter for other bytes."""
    try:
        if name != PIPE:
            return decoded(read_small(Path(name), most))
        claim_standard_input()
        return decoded(read_stream(sys.stdin.buffer, most, STANDARD_INPUT))
    except UnicodeDecodeError as error:
        place = f"{error.encoding.upper()} at byte {error.start}"
        raise click.BadParameter(f"{_input_name(name)} is not valid {place}") from None


def _input_name(name: str) -> str:
    return STANDARD_INPUT if name == PIPE else name


def json_of(name: str, parse_float: Callable[[str], float] = float) -> Any:  # noqa: ANN401 (any JSON)
    """Return the JSON in a file, or in standard input for "-"; BadParameter for other text."""
    text = text_of(name)
    try:
        return json.loads(text, parse_float=parse_float)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"{_input_name(name)} is not JSON: {error}") from None


def keys_of(name: str, parse_float: Callable[[str], float] = float) -> dict[str, Any]:
    """Return the keys of a JSON object in a file; BadParameter for other JSON."""
    document = json_of(name, parse_float)
    if not isinstance(document, dict):
        raise click.BadParameter(
            f"{_input_name(name)} does not contain a JSON object of keys and values"
        )
    return document


def refuse_pipe(name: str) -> None:
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
        return _named_copy(foreign=foreign)
    is_file = stat.S_ISREG(os.fstat(_IN).st_mode)
    if not (is_file and os.lseek(_IN, 0, os.SEEK_CUR) == 0):
        descriptor = _spooled(_IN, foreign=foreign)
        context = click.get_current_context()
        before = os.dup(_IN)
        context.call_on_close(lambda: os.close(before))
        context.call_on_close(lambda: os.dup2(before, _IN))
        os.dup2(descriptor, _IN)
        os.close(descriptor)
    return STDIN


def _named_pipe(name: str, *, foreign: bool) -> str:
    with Path(name).open("rb", buffering=0) as pipe:
        descriptor = _spooled(pipe.fileno(), foreign=foreign)
    click.get_current_context().call_on_close(lambda: os.close(descriptor))
    return f"{DESCRIPTORS}/{descriptor}"


def _spooled(source: int, *, foreign: bool) -> int:
    """Return a descriptor of an unnamed file with all data from `source`."""
    with tempfile.TemporaryFile(prefix="ggufkit-") as spool:
        _copy_stream(source, spool.fileno(), foreign=foreign)
        return os.dup(spool.fileno())


def _named_copy(*, foreign: bool) -> str:
    """Return the path of a file that is removed at the end, for systems without unnamed files."""
    context = click.get_current_context()
    context.with_resource(shield())
    folder = tempfile.TemporaryDirectory(prefix="ggufkit-", ignore_cleanup_errors=True)
    context.call_on_close(folder.cleanup)
    path = Path(folder.name) / "stdin.gguf"
    with path.open("wb", buffering=0) as copy:
        _copy_stream(_IN, copy.fileno(), foreign=foreign)
    return str(path)


def _copy_stream(source: int, target: int, *, foreign: bool) -> None:
    """Copy all of a model or a `foreign` file, and only the beginning of anything else."""
    nbytes = 0
    try:
        with open(source, "rb", closefd=False) as pipe, open(target, "wb", closefd=False) as copy:
            data = pipe.read(CHUNK_BYTES)
            goes_on = foreign or is_model(data)
            while data:
                check_cancelled()
                copy.write(data)
                nbytes += len(data)
                data = pipe.read(CHUNK_BYTES) if goes_on else b""
    except OSError as error:
        raise OutputError(
            f"{error.strerror} after {nbytes:,} bytes of what comes through the pipe were kept in "
            f"{tempfile.gettempdir()}",
            remedy="Set TMPDIR to a folder with enough free space for the model",
        ) from error
