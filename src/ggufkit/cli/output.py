"""Prints text for people and JSON for programs."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import re
import shutil
import sys
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import click

from ggufkit.errors import InterruptedEditWarning, WaitingWarning, printable
from ggufkit.system.cancellation import shield

AT_ONCE: Final = 1000  # lines of a table that are printed in one write
SHOWN_WIDTHS: Final = 4  # of rows, in a note
PIECE: Final = 1 << 20  # characters of a text that are written at once
_ARGUMENT: Final = re.compile(r"\(([a-z_]+)=(?:True|\.\.\.)\)")
_NOTED: Final = (InterruptedEditWarning, WaitingWarning)
_DEFAULTS: Final = ("clobber",)  # arguments that options turn off
_RENAMED: Final = {"tensor_types": "tensor_type"}  # options by arguments with other names
_UNITS: Final = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))
_BINARY: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
PIPED_WIDTH: Final = 120  # columns if the output is not a terminal
LEAST_WIDTH: Final = 40
MAX_WIDTH: Final = 1 << 62  # of lines that go to a pipe
LEAST_CELL: Final = 12  # of a column that is wrapped
_WIDTH: Final = "ggufkit.width"  # in the context of a command
_IN_BINARY: Final = "ggufkit.binary"  # in the context of a command
QUIET: Final = "ggufkit.quiet"  # in the context of a command


def examples(*commands: str) -> str:
    """Return the examples at the end of a command's help."""
    verbatim = "\b\n"  # tells click not to rewrap the text
    return verbatim + "Examples:\n" + "\n".join(f"  {command}" for command in commands)


def shorten(text: str, width: int) -> str:
    """Return `text` on one line of at most `width` characters, with its full length if cut."""
    short = printable(text[:width])
    if len(short) <= width and len(text) <= width:
        return short
    ending = f"... ({len(text):,} characters)"
    return short[: max(width - len(ending), 1)] + ending


def answer_in_binary() -> None:
    """Make the running command print sizes in powers of 1024."""
    _meta()[_IN_BINARY] = True


def _meta() -> dict[str, Any]:
    """Return what the running command remembers; nothing remains outside a command."""
    context = click.get_current_context(silent=True)
    return context.meta if context else {}


def size(nbytes: int) -> str:
    """Return a size such as "144.8 MB", in powers of 1000 like gguf-split.

    After `answer_in_binary`, return "138.1 MiB".
    """
    for unit, name in _BINARY if _IN_BINARY in _meta() else _UNITS:
        if nbytes >= unit:
            return f"{nbytes / unit:.1f} {name}"
    return f"{nbytes} bytes"


@functools.lru_cache
def grouped(number: int) -> str:
    """Return "1,234"; cached, because tables repeat the same numbers in many rows."""
    return f"{number:,}"


@functools.lru_cache
def dims(shape: tuple[int, ...]) -> str:
    """Return "2 x 32"; cached, because tables repeat the same shapes in many rows."""
    return " x ".join(map(str, shape))


def counted(number: int, noun: str) -> str:
    """Return "1 tensor", "2 tensors"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def row_widths(widths: Sequence[int]) -> str:
    """Return "rows of 576, 1,536 columns"; empty for none."""
    text = ", ".join(f"{width:,}" for width in widths[:SHOWN_WIDTHS])
    more = ", ..." if len(widths) > SHOWN_WIDTHS else ""
    return f"rows of {text}{more} columns" if widths else ""


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, right: str = "") -> None:
    """Print aligned columns; `right` has a letter for each column: l for left, r for right.

    On a terminal empty columns are left out, and the widest column of text is wrapped so that lines
    fit.
    """
    lines = [header, *rows]
    sides = right.ljust(len(header), "l")
    if _terminal_columns():
        filled = [i for i in range(len(header)) if any(line[i] for line in lines[1:])]
        lines = [[line[i] for i in filled] for line in lines] if filled else lines
        sides = "".join(sides[i] for i in filled) if filled else sides
        header = lines[0]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    texts = (i for i, side in enumerate(sides[: len(header)]) if side == "l")
    widest = max(texts, default=None, key=widths.__getitem__)
    excess = sum(widths) + 2 * len(widths) - 2 - (_terminal_columns() or MAX_WIDTH)
    if widest is not None and excess > 0:
        widths[widest] = max(widths[widest] - excess, LEAST_CELL)
        lines = [part for line in lines for part in _wrapped(line, widest, widths[widest])]
    marks = (">" if side == "r" else "<" for side in sides)
    form = "  ".join(f"{{:{mark}{width}}}" for mark, width in zip(marks, widths, strict=False))
    click.echo(click.style(form.format(*lines[0]).rstrip(), bold=True))
    for start in range(1, len(lines), AT_ONCE):
        some = (form.format(*line).rstrip() for line in lines[start : start + AT_ONCE])
        click.echo("\n".join(some))


def _wrapped(line: Sequence[str], column: int, width: int) -> Iterator[Sequence[str]]:
    """Yield a line of a table, with one cell wrapped to lines of at most `width` characters."""
    text = line[column]
    if len(text) <= width:
        yield line
        return
    parts = textwrap.wrap(text, width) or [""]
    yield (*line[:column], parts[0], *line[column + 1 :])
    blank = [""] * len(line)
    for part in parts[1:]:
        yield (*blank[:column], part, *blank[column + 1 :])


def columns() -> int:
    """Return the width of the terminal, also while `paged` buffers the output."""
    return _terminal_columns() or PIPED_WIDTH


def _terminal_columns() -> int | None:
    """Return the width of the terminal, None if the output is not one."""
    width: int | None = _meta().get(_WIDTH)
    if width is None and sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
    return None if width is None else max(width, LEAST_WIDTH)


@contextlib.contextmanager
def paged() -> Iterator[None]:
    """Show the output of the body in a pager if it does not fit the terminal's height."""
    if not sys.stdout.isatty():
        yield
        return
    context = click.get_current_context()
    color = context.color
    output = io.StringIO()
    context.color = color is not False  # the buffer is not a terminal
    context.meta[_WIDTH] = shutil.get_terminal_size().columns
    try:
        with contextlib.redirect_stdout(output):
            yield
    finally:
        context.color = color
    text = output.getvalue()
    if text.count("\n") < shutil.get_terminal_size().lines:
        click.echo(text, nl=False)
    else:
        with shield():  # the pager decides what Ctrl-C does
            click.echo_via_pager(text.removesuffix("\n"), color=color)  # it adds a newline


def emit(document: object) -> None:
    """Print one JSON document, in ASCII with escapes so that it works on any terminal and pipe."""
    sys.stdout.writelines(_json_pieces(document))
    click.echo()


def _json_pieces(value: object) -> Iterator[str]:
    """Yield the JSON of a value; the pieces of a long text do not take its memory again."""
    if isinstance(value, dict):
        for number, (key, item) in enumerate(value.items()):
            yield f"{', ' if number else '{'}{json.dumps(str(key))}: "
            yield from _json_pieces(item)
        yield "}" if value else "{}"
    elif isinstance(value, str) and len(value) > PIECE:
        yield '"'
        for start in range(0, len(value), PIECE):
            yield json.dumps(value[start : start + PIECE])[1:-1]
        yield '"'
    else:
        yield json.dumps(value, allow_nan=False)


def print_text(text: str, *, errors: str = "strict", nl: bool = False) -> None:
    """Print a text: to a pipe as it is, on a terminal without control characters."""
    if sys.stdout.isatty():
        click.echo("\n".join(map(printable, text.split("\n"))))
    else:
        click.echo(text.encode("utf-8", errors), nl=nl)


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Print a line for each label and its text, with the texts aligned."""
    width = max(len(label) for label, _ in pairs)
    for label, text in pairs:
        click.echo(f"{click.style(label.ljust(width), bold=True)}  {text}")


def is_quiet() -> bool:
    """Whether the user asked for errors and results only."""
    return QUIET in _meta()


def note(text: str) -> None:
    """Print a note to stderr."""
    if is_quiet():
        return
    click.echo(f"note: {printable(with_options(text))}", err=True)


@contextlib.contextmanager
def notes_of_warnings() -> Iterator[None]:
    """Turn each warning of an interrupted edit or a busy server into a note, once."""
    with warnings.catch_warnings():
        for noted in _NOTED:
            warnings.simplefilter("always", noted)
        usual, messages = warnings.showwarning, set[str]()

        def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
            if not issubclass(category, _NOTED):
                usual(message, category, *rest, **more)
            elif str(message) not in messages:
                messages.add(str(message))
                note(str(message))

        warnings.showwarning = show
        yield


def with_options(text: str) -> str:
    """Return a text in which options replace Python arguments such as `(force=True)`."""
    return _ARGUMENT.sub(lambda match: f"({_option(match[1])})", text)


def _option(argument: str) -> str:
    if argument in _DEFAULTS:
        return f"leave out --no-{argument}"
    return "--" + _RENAMED.get(argument, argument).replace("_", "-")
