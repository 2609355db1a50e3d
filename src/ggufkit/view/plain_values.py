"""Turns values into what JSON can hold, and cuts long texts."""

from __future__ import annotations

from typing import Any, Final

from ggufkit.inspection.summary import plain_float

SHOWN_CHARACTERS: Final = 256  # of a name or a value in a list


def number(value: float) -> float | str:
    """Return a finite number, or the name of NaN and the infinities, which JSON lacks."""
    return plain_float(float(value))


def cut(text: str, most: int = SHOWN_CHARACTERS) -> str:
    """Return a text, or its beginning and an ellipsis if it is longer than `most`."""
    return text if len(text) <= most else f"{text[:most]}…"


def page_of(rows: list[Any], start: int, count: int) -> dict[str, Any]:
    """Return a part of a list and the number of all rows."""
    return {"total": len(rows), "start": start, "rows": rows[start : start + count]}
