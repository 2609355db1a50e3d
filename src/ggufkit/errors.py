"""The exceptions of ggufkit.

If a file cannot be opened, the error of the system comes unchanged, as from the builtin `open`.
Every other error is a GGUFError: it names a place and a remedy, and also is the builtin that a
caller would catch.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Sequence
from typing import Final

# The errors of reading JSON of an unexpected form, including JSON nested too deeply.
MISFORMED: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
_SHOWN_LEVELS: Final = 2  # of nested containers; reprlib's default of six shows 6^6 values
_SHOWN_CHARACTERS: Final = 200
MAX_MESSAGE: Final = 1 << 14  # characters; names in files may have a million
MAX_PROBLEM: Final = 1 << 10  # characters of one problem in a list


def printable(text: str) -> str:
    """Return `text` with control characters, lone surrogates and invisible characters escaped.

    Messages quote names from untrusted files; these must not control the terminal.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def shortened(text: str, most: int = MAX_MESSAGE) -> str:
    """Return `text`, or its beginning and length if it is too long for a message."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)"


class GGUFError(Exception):
    """Base class of all errors that ggufkit defines.

    `message` says what is wrong and where, `remedy` what to do about it (or is empty).
    """

    def __init__(self, message: str, *, remedy: str = "") -> None:
        """Keep `message` and `remedy` separate: the command and Python print them differently."""
        self.message: str = printable(shortened(message))
        super().__init__(self.message)
        self.remedy = remedy

    def __str__(self) -> str:
        """Return the message followed by the remedy."""
        return f"{self.message}. {self.remedy}" if self.remedy else self.message


class FormatError(GGUFError, ValueError):
    """The bytes of a file break the format.

    `rule` is the id of the broken rule, `offset` the byte position, `path` the file.
    """

    def __init__(
        self,
        message: str,
        *,
        remedy: str = "",
        rule: str = "",
        offset: int | None = None,
        path: str = "",
    ) -> None:
        """Add the place (`path`, `offset`) and the `rule` to the message."""
        place = f"{path}: " if path else ""
        suffix = f" (at byte {offset})" if offset is not None else ""
        super().__init__(f"{place}{message}{suffix}", remedy=remedy)
        self.rule = rule
        self.offset = offset
        self.path = path


class NotGGUFError(FormatError):
    """The file is not a GGUF file."""


class TruncatedError(FormatError, EOFError):
    """The file ends before the data that its header declares."""


class LimitError(FormatError):
    """A count, size or depth is beyond a named limit."""


class ShardError(FormatError):
    """A shard is missing, or does not belong to its set."""


class ValueTypeError(GGUFError, TypeError, ValueError):
    """A metadata value does not fit the GGUF value type it should have."""


class TensorTypeError(GGUFError, TypeError, ValueError):
    """A tensor type is unknown, or does not support the operation."""


class MissingImportanceError(GGUFError, ValueError):
    """A tensor type needs importance data, and the tensor has none."""


class ShapeError(GGUFError, ValueError):
    """A shape or row width does not fit."""


class MissingKeyError(GGUFError, KeyError):
    """A metadata key is missing."""


class MissingTensorError(GGUFError, KeyError):
    """A tensor is missing."""


class CheckpointError(GGUFError, ValueError):
    """A Hugging Face checkpoint cannot be read or converted; `problems` lists all that is wrong."""

    SHOWN = 20  # problems in the message; `problems` holds all

    def __init__(self, message: str, problems: Iterable[str] = (), *, remedy: str = "") -> None:
        """Put the problems after the message: one in the same line, more as a list."""
        self.problems: tuple[str, ...] = tuple(
            printable(shortened(problem, MAX_PROBLEM)) for problem in problems
        )
        self.headline: str = printable(shortened(message, MAX_PROBLEM))
        listed = "; ".join(self.problems[: self.SHOWN])
        more = len(self.problems) - self.SHOWN
        tail = f"; and {more} more" if more > 0 else ""
        super().__init__(f"{self.headline}: {listed}{tail}" if listed else message, remedy=remedy)


class AdapterError(CheckpointError):
    """A LoRA adapter cannot be read, or does not fit the model; `problems` lists all."""


class MissingModelError(GGUFError, FileNotFoundError):
    """No cache of another program holds a model of this name."""


class ClosedError(GGUFError, ValueError):
    """The model was closed before its data was read."""


class OutputError(GGUFError, OSError):
    """The output cannot be written; nothing was left behind."""


class DiskSpaceError(OutputError):
    """The output does not fit on its disk; nothing was written."""


class ChatTemplateError(GGUFError, ValueError):
    """A model has no such chat template, or the template refuses a conversation or fails."""


class ClusterError(GGUFError, ConnectionError):
    """No cluster answers, or it lost too many of its machines."""


class RemoteError(GGUFError, OSError):
    """A server cannot be reached, refuses a request, or answers it wrongly."""


class RemoteMissingError(RemoteError, FileNotFoundError):
    """A server has no such file."""


class RemoteDeniedError(RemoteError, PermissionError):
    """A server wants a login, or refuses this one."""


class NoRangesError(RemoteError):
    """A server sends only whole files, not ranges of them."""


class MissingExtraError(GGUFError, ImportError):
    """An optional dependency is needed and not installed."""


class InterruptedEditWarning(UserWarning):
    """An edit of a file in place was interrupted; the message says which state is shown."""


class WaitingWarning(UserWarning):
    """A server is busy; the message says how long ggufkit waits before it tries again."""


def first_names(names: Sequence[str], count: int = 5) -> str:
    """Return the first names for a message, and "..." for the others."""
    return ", ".join(names[:count]) + (", ..." if len(names) > count else "")


def did_you_mean(
    name: str, names: Iterable[str], otherwise: str = "", *, cutoff: float = 0.6
) -> str:
    """Return the remedy for an unknown name: the nearest of `names`, or `otherwise`."""
    import difflib  # noqa: PLC0415 (slow to import)

    near = difflib.get_close_matches(name, [*names], 1, cutoff)
    return f"Did you mean {near[0]!r}?" if near else otherwise


def brief(value: object) -> str:
    """Return the repr of any value, short enough for a message."""
    writer = reprlib.Repr()
    writer.maxlevel = _SHOWN_LEVELS
    try:
        text = writer.repr(value)
    except ValueError:  # Python refuses to format an integer of thousands of digits
        return f"a huge {value.__class__.__name__}"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
