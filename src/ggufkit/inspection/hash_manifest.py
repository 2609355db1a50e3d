"""Manifests of llama-gguf-hash: one line per digest, and how a model's digests compare."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from ggufkit.errors import FormatError, printable
from ggufkit.system.text_file import open_text

# In llama-gguf-hash's order, which is also its order of preference; ours comes last.
STRONGEST_FIRST: Final = ("sha256", "sha1", "xxh64", "uuid", "content")
SHOWN_NAMES: Final = 3
# Each run of spaces can match in only one place: no line takes quadratic time.
_LINE: Final = re.compile(
    r"(?P<algorithm>\S+)\s+(?P<digest>\S+)\s+(?P<name>\S(?:.*?\S)??)"
    r"(?:\s+-\s+(?:Ok|Mismatch|Not Found))?"  # the output of a check is a manifest too
)


class Result(Enum):
    """The result of comparing one digest with a manifest."""

    OK = "Ok"
    MISMATCH = "Mismatch"
    NOT_FOUND = "Not Found"


class Verdict(Enum):
    """The result for a whole model: llama-gguf-hash's exit code and words."""

    SUCCESS = (0, "Success")
    FAILURE = (1, "Failure")
    MISSING_ENTRY = (3, "Manifest Missing Entry")
    UNKNOWN_HASH = (4, "Manifest Unknown Hash")
    FILE_ERROR = (5, "Manifest File Error")

    def __init__(self, code: int, words: str) -> None:
        self.code = code
        self.words = words


@dataclass(frozen=True)
class Line:
    """One digest: of a model called `name`, or of its tensor if `tensor` is not None."""

    algorithm: str
    digest: str
    name: str
    tensor: str | None = None

    @property
    def place(self) -> str:
        """The name in a manifest."""
        return printable(self.name if self.tensor is None else f"{self.name}:{self.tensor}")

    def __str__(self) -> str:
        """Return the line as llama-gguf-hash prints it."""
        return f"{self.algorithm:<8}  {self.digest}  {self.place}"


@dataclass(frozen=True)
class Manifest:
    """The digests of a manifest by algorithm and name, and its algorithms, strongest first."""

    digests: Mapping[tuple[str, str], str]
    algorithms: tuple[str, ...]

    def names(self) -> str:
        """Return the names of the manifest's models; only some of them if there are many."""
        names = dict.fromkeys(name.partition(":")[0] for _, name in self.digests)
        return ", ".join([*names][:SHOWN_NAMES]) + (", ..." if len(names) > SHOWN_NAMES else "")

    def result(self, line: Line) -> Result:
        """Return the result for a digest."""
        digest = self.digests.get((line.algorithm, line.place))
        if digest is None:
            return Result.NOT_FOUND
        return Result.OK if digest == line.digest else Result.MISMATCH


def read_manifest(path: Path) -> Manifest:
    """Read a manifest: the first line for a name counts, and lines of other forms do not.

    Raises OSError as `open` does, FormatError for a file without any known hash.
    """
    digests: dict[tuple[str, str], str] = {}
    names: set[str] = set()
    with open_text(path) as file:
        for text in file:
            names.update(text.split(None, 1)[:1])
            if match := _LINE.fullmatch(text.strip()):
                digests.setdefault((match["algorithm"], match["name"]), match["digest"])
    algorithms = tuple(name for name in STRONGEST_FIRST if name in names)
    if not algorithms:
        raise FormatError(
            "the manifest has no known hash",
            remedy=f"Use a manifest whose lines begin with one of {', '.join(STRONGEST_FIRST)}"
            "; `ggufkit hash --sha256sum` checks a list of sha256sum",
            path=str(path),
        )
    return Manifest(digests, algorithms)


def verdict(results: Iterable[tuple[Line, Result]]) -> Verdict:
    """Return llama-gguf-hash's verdict: one entry must be there, and no entry may differ."""
    checked = [result for _, result in results if result is not Result.NOT_FOUND]
    if not checked:
        return Verdict.MISSING_ENTRY
    return Verdict.FAILURE if Result.MISMATCH in checked else Verdict.SUCCESS
