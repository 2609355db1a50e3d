"""Turns exceptions into one clear message and an exit code."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from typing import Any, Final, NoReturn

import click

from ggufkit.cli import streams
from ggufkit.cli.llama_names import OPTIONS
from ggufkit.cli.output import notes_of_warnings, with_options
from ggufkit.errors import CheckpointError, FormatError, GGUFError, OutputError, printable
from ggufkit.system.cancellation import SIGNALLED, WHOLE

FAILED: Final = 1
YOUNG: Final = 100_000  # objects between garbage collections: the objects of a header stay alive
# Raised by a group without a command; versions of click before 8.2 print the help themselves.
_NO_ARGUMENTS: Final[Any] = getattr(click.exceptions, "NoArgsIsHelpError", ())
AS_JSON: Final = "--json"  # makes errors JSON too
_in_json: Final[list[str]] = []  # holds that option if it is among the arguments
_reported: Final[list[Exception]] = []  # errors that are printed already
COMPLETE: Final = "_GGUFKIT_COMPLETE"  # set when a shell asks for completions


def run(command: click.Command) -> NoReturn:
    """Run a command and exit: 0 for success, 1 for an error, 2 for wrong usage."""
    streams.prepare()
    gc.set_threshold(YOUNG)
    if COMPLETE in os.environ:
        from ggufkit.cli.completion import register  # noqa: PLC0415 (only shells ask)

        register()
    try:
        code = flushed(outcome(command))
    except OSError:  # while printing an error: nothing more can be printed
        code = FAILED
    except SystemExit as ended:
        code = flushed(ended.code if isinstance(ended.code, int) else FAILED)
    sys.exit(code)


def flushed(code: int) -> int:
    """Flush the output; return the exit code, an error's if flushing fails."""
    try:
        streams.flush()
    except BrokenPipeError:
        return code or FAILED
    except OutputError as error:
        if not _reported:
            report(error)
        return code or FAILED
    return code


@notes_of_warnings()
def outcome(command: click.Command, arguments: list[str] | None = None) -> int:
    """Run a command, on the process's own arguments if none are given; return its exit code."""
    argv = sys.argv[1:] if arguments is None else arguments
    _in_json[:] = [AS_JSON] if AS_JSON in argv[: (*argv, "--").index("--")] else []
    try:
        code: Any = command.main(arguments, prog_name="ggufkit", standalone_mode=False)
    except click.Abort:  # at the end of the input of a question
        click.echo(f"interrupted; {WHOLE}", err=True)
        return SIGNALLED + signal.SIGINT
    except Exception as error:
        ended = _code_of_error(error)
        if ended is None:
            raise
        return ended
    return code if isinstance(code, int) else 0


def _code_of_error(error: Exception) -> int | None:
    """Print an error; return the exit code, or None for an error that no command should raise."""
    if isinstance(error, click.ClickException):
        translated = _in_our_names(error) if isinstance(error, click.NoSuchOption) else error
        _show(translated)
        return translated.exit_code
    if isinstance(error, BrokenPipeError):
        return FAILED
    if isinstance(error, OSError):  # in click's own output, such as help
        report(streams.error_of(error))
        return FAILED
    return None


def _show(error: click.ClickException) -> None:
    """Print wrong usage in the form of all errors: the message first, then what to do."""
    if isinstance(error, _NO_ARGUMENTS):
        click.echo(error.format_message(), err=True)  # the help, which has lines of its own
        return
    context = error.ctx if isinstance(error, click.UsageError) else None
    if _in_json:
        help_of = f"`{context.command_path} --help` explains it" if context else ""
        _emit_error(type(error).__name__, error.format_message(), help_of)
        return
    click.echo(f"{_label()} {printable(error.format_message())}", err=True)
    if context is not None:
        click.echo(f"  {context.get_usage()}", err=True)
        click.echo(f"  `{context.command_path} --help` explains it", err=True)


def _label() -> str:
    return click.style("error:", fg="red", bold=True)


def _in_our_names(error: click.NoSuchOption) -> click.UsageError:
    """Return the error with ggufkit's counterpart of an option of llama.cpp's tools."""
    option = error.option_name
    command = error.ctx.info_name if error.ctx else None
    substitute = OPTIONS.get(command or "", {}).get(option.replace("_", "-"))
    if not substitute:
        return error
    return click.UsageError(f"{option} is not an option here; use {substitute}", error.ctx)


def report(error: GGUFError | OSError) -> None:
    """Print the message of an error, and the remedy on a separate line."""
    _reported.append(error)
    message, remedy = _message_of(error)
    remedy = with_options(remedy)
    if _in_json:
        _emit_error(type(error).__name__, message, remedy, **_details(error))
        return
    label = _label()
    if isinstance(error, CheckpointError) and len(error.problems) > 1:
        click.echo(f"{label} {error.headline}:", err=True)
        for problem in error.problems:
            click.echo(f"  - {problem}", err=True)
    else:
        click.echo(f"{label} {printable(message)}", err=True)
    if remedy:
        click.echo(f"  {printable(remedy)}", err=True)


def _emit_error(kind: str, message: str, remedy: str, **details: object) -> None:
    document = {"error": {"kind": kind, "message": message, "remedy": remedy, **details}}
    click.echo(json.dumps(document), err=True)


def _details(error: GGUFError | OSError) -> dict[str, object]:
    if isinstance(error, CheckpointError):
        return {"problems": list(error.problems)}
    if isinstance(error, FormatError):
        return {"rule": error.rule, "offset": error.offset, "path": error.path}
    return {}


def _message_of(error: GGUFError | OSError) -> tuple[str, str]:
    if isinstance(error, GGUFError):
        return error.message, error.remedy
    reason = error.strerror or str(error)
    remedy = next((text for kind, text in _REMEDIES if isinstance(error, kind)), "")
    return (f"{error.filename}: {reason}" if error.filename else reason), remedy


# Remedies for the system's errors, which have none.
_REMEDIES: Final = (
    (FileNotFoundError, "Check the path; `ggufkit list` shows the models in the caches"),
    (PermissionError, "Check the permissions of the file and its folder"),
    (IsADirectoryError, "Name a file in the folder"),
    (NotADirectoryError, "Check the path: a part of it is a file, not a folder"),
)
