"""Reads what `ggufkit eval --json` printed: the size and the quality of each model."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ggufkit.errors import MISFORMED, FormatError
from ggufkit.system.text_file import Most, read_small
from ggufkit.validation import typed_values

MAX_RESULTS: Final = 100  # files of a folder, the newest ones
MAX_RESULT_BYTES: Final = 1 << 20  # of one of them; a model takes about 2 kB


@dataclass(frozen=True)
class QualityRow:
    """A model in the result of `eval`: its size, perplexity and mean divergence, if measured.

    Errors are standard errors, None where `eval` could not compute one.
    """

    name: str
    nbytes: int
    perplexity: float | None
    divergence: float | None
    perplexity_error: float | None = None
    divergence_error: float | None = None


def read_evaluation(path: Path) -> list[QualityRow]:
    """Return the models in a file that `ggufkit eval --json` printed; FormatError for others."""
    try:
        document = typed_values.json_object(json.loads(read_small(path, Most.VALUES)), "the file")
        base = [_quality(document["base"], is_base=True)] if document["base"] else []
        return [*base, *map(_quality, typed_values.json_list(document["models"], "models"))]
    except MISFORMED as error:
        raise FormatError(
            f"{path} is not a result of `ggufkit eval --json`",
            remedy="Make it with `ggufkit eval ... --json`",
        ) from error


def evaluations_in(folder: Path) -> Iterator[tuple[Path, list[QualityRow]]]:
    """Yield the results of `eval` among the JSON files of a folder, the newest first."""
    times = {}
    for path in folder.glob("*.json"):
        with contextlib.suppress(OSError):  # a link to nothing
            status = path.stat()
            if path.is_file() and status.st_size <= MAX_RESULT_BYTES:
                times[path] = status.st_mtime_ns
    for path in sorted(times, key=lambda path: (-times[path], path))[:MAX_RESULTS]:
        with contextlib.suppress(FormatError, OSError):
            yield path, read_evaluation(path)


def _quality(row: object, *, is_base: bool = False) -> QualityRow:
    """Return a model of the document; the base does not diverge from itself."""
    row = typed_values.json_object(row, "a model")
    perplexity = _measured(row["perplexity"])
    divergence = (0.0, 0.0) if is_base else _divergence(row["divergence"])
    return QualityRow(
        name=typed_values.short_text(row["name"], "name").rsplit("/", 1)[-1],
        nbytes=typed_values.integer(row["nbytes"], "nbytes"),
        perplexity=perplexity[0],
        divergence=divergence[0],
        perplexity_error=perplexity[1],
        divergence_error=divergence[1],
    )


def _divergence(divergence: object) -> tuple[float | None, float | None]:
    if not divergence:
        return None, None
    return _measured(typed_values.json_object(divergence, "divergence")["kld"]["mean"])


def _measured(figure: object) -> tuple[float | None, float | None]:
    """Return a figure and its error; `eval` writes null for numbers that are not finite."""
    figure = typed_values.json_object(figure, "a figure")
    return _number(figure["value"]), _number(figure.get("error"))


def _number(value: object) -> float | None:
    return None if value is None else typed_values.finite_number(value, "a measured value")
