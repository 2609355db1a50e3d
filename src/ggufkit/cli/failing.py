"""From exceptions and signals to one clear message and an exit code."""

from __future__ import annotations

import io
import os
import signal
import sys
from typing import Any, Final, NoReturn

import click

from ggufkit.cli.app import app
from ggufkit.cli.output import note
from ggufkit.errors import GGUFError, printable

FAILED: Final = 1
SIGNALLED: Final = 128  # plus the signal's number, as shells have it


def run() -> NoReturn:
    """Run the command line and exit: 0 for success, 1 for an error, 2 for wrong usage."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may lack any character
    # An exception instead of sudden death, so that staging files are removed on the way out.
    signal.signal(signal.SIGTERM, _terminate)
    sys.exit(_guarded())


def _terminate(number: int, _frame: object) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)
    sys.exit(SIGNALLED + number)


def _guarded() -> int:
    try:
        code: Any = app.main(prog_name="ggufkit", standalone_mode=False)
        sys.stdout.flush()
    except click.Abort:
        note("interrupted; nothing was left behind")
        return SIGNALLED + signal.SIGINT
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except BrokenPipeError:
        # Whoever read our output has had enough: nothing to say, and nothing more to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (GGUFError, OSError) as error:
        _report(error)
        return FAILED
    return code if isinstance(code, int) else 0


def _report(error: GGUFError | OSError) -> None:
    message, remedy = _said(error)
    label = click.style("error:", fg="red", bold=True)
    click.echo(f"{label} {printable(message)}", err=True)
    if remedy:
        click.echo(f"  {printable(remedy)}", err=True)


def _said(error: GGUFError | OSError) -> tuple[str, str]:
    """Return message and remedy of an error."""
    if isinstance(error, GGUFError):
        return error.message, error.remedy
    reason = error.strerror or str(error)
    return (f"{error.filename}: {reason}" if error.filename else reason), ""
