"""Prints changes of metadata, for people and for programs."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Any, Final

import click
import numpy as np

from ggufkit.cli.output import counted, shorten
from ggufkit.edits.changes import Change
from ggufkit.errors import printable
from ggufkit.format.coerce import plain
from ggufkit.format.values import Arrays, Strings, Value

SHOWN_WIDTH: Final = 60  # characters of a value
SHOWN_ITEMS: Final = 5  # of an array
SHOWN_LINES: Final = 40  # of a changed text
COMPARED_LINES: Final = 10_000  # comparing takes time quadratic in their number
LISTED_ITEMS: Final = 1000  # of an array, for programs
_MARKS: Final = {"added": "+", "removed": "-", "changed": "~", "renamed": ">"}
_COLOURS: Final = {"+": "green", "-": "red", "~": "yellow", ">": "yellow"}


def show(changes: Iterable[Change], *, err: bool = False) -> None:
    """Print one line for each changed key, and more lines below if one is too short."""
    for change in changes:
        mark = _MARKS[change.kind]
        click.echo(
            click.style(f"{mark} {printable(change.key)}", fg=_COLOURS[mark]), nl=False, err=err
        )
        first, *more = _described(change)
        click.echo(f"  {first}", err=err)
        for line in more:
            click.secho(f"    {line}", fg=_COLOURS.get(line[:1]), err=err)


def _described(change: Change) -> Iterator[str]:
    if change.kind == "renamed":
        yield f"becomes {printable(change.name)}"
    elif change.kind != "changed":
        value = change.before if change.kind == "removed" else change.after
        yield f"{change.before_type or change.after_type} {_brief(value)}"
    elif _is_text(change.before) and _is_text(change.after):
        yield change.after_type
        yield from _lines(str(change.before), str(change.after))
    elif items := change.items():
        yield _types(change)
        yield from (f"[{i}] {_brief(old)} -> {_brief(new)}" for i, old, new in items[:SHOWN_ITEMS])
        if len(items) > SHOWN_ITEMS:
            yield f"... {len(items) - SHOWN_ITEMS:,} more"
    else:
        yield f"{_types(change)} {_brief(change.before)} -> {_brief(change.after)}"


def _types(change: Change) -> str:
    before, after = change.before_type, change.after_type
    return after if before == after else f"{before} -> {after}"


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\n" in value


def _lines(before: str, after: str) -> Iterator[str]:
    texts = before.splitlines(), after.splitlines()
    if max(map(len, texts)) > COMPARED_LINES:
        yield f"{len(texts[0]):,} lines -> {len(texts[1]):,} lines, too many to be compared"
        return
    lines = list(difflib.unified_diff(*texts, n=1, lineterm=""))[2:]  # without file names
    if not lines or _ends(before) != _ends(after):
        yield f"line ends: {_ends(before)} -> {_ends(after)}"
    yield from (shorten(line, 2 * SHOWN_WIDTH) for line in lines[:SHOWN_LINES])
    if len(lines) > SHOWN_LINES:
        yield f"... {len(lines) - SHOWN_LINES:,} more lines"


def _ends(text: str) -> str:
    """Return the kinds of line ends in a text, and whether the last line has one."""
    windows = text.count("\r\n")
    kinds = {"CRLF": windows, "LF": text.count("\n") - windows, "CR": text.count("\r") - windows}
    names = " and ".join(name for name, count in kinds.items() if count) or "none"
    return names if text.endswith(("\n", "\r")) else f"{names}, none after the last line"


def _brief(value: object) -> str:
    if isinstance(value, str):
        return f'"{shorten(value, SHOWN_WIDTH)}"'  # it escapes control characters
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, np.ndarray | Strings | Arrays):
        items = ", ".join(_brief(item) for item in value[:SHOWN_ITEMS])
        more = ", ..." if len(value) > SHOWN_ITEMS else ""
        return f"[{items}{more}] ({counted(len(value), 'item')})"
    return str(value)


def as_json(changes: Iterable[Change]) -> list[dict[str, Any]]:
    """Return changes for JSON; for long arrays only the items that differ."""
    return [_plain(change) for change in changes]


def _plain(change: Change) -> dict[str, Any]:
    document: dict[str, Any] = {"key": change.key, "kind": change.kind}
    if change.kind == "renamed":
        return document | {"name": change.name}
    items = change.items()
    if items:
        listed = [
            {"index": index, "before": _finite(before), "after": _finite(after)}
            for index, before, after in items[:LISTED_ITEMS]
        ]
        return document | {"type": change.after_type, "count": len(items), "items": listed}
    if change.kind != "added":
        document["before"] = _side(change.before_type, change.before)
    if change.kind != "removed":
        document["after"] = _side(change.after_type, change.after)
    return document


def _side(type: str, value: Value | None) -> dict[str, Any]:
    if value is None:
        return {"type": type}
    if isinstance(value, np.ndarray | Strings | Arrays) and len(value) > LISTED_ITEMS:
        return {"type": type, "count": len(value)}
    return {"type": type, "value": _finite(plain(value))}


def _finite(value: object) -> object:
    """Return a value with infinities and NaN as text, which JSON lacks as numbers."""
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return [_finite(item) for item in value] if isinstance(value, list) else value
