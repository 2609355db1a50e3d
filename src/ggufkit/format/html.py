"""Tables and lists for notebooks. All texts come from files, so everything is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ggufkit.errors import printable, shortened

SHOWN_ROWS: Final = 60  # of a table: a notebook keeps every output
_TABLE: Final = '<table class="dataframe">'  # which notebooks style, as tables of pandas
_SHOWN_CHARACTERS: Final = 200  # of a cell


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], count: int) -> str:
    """Return a table of up to SHOWN_ROWS rows of `count`."""
    rows_shown = list(rows)[:SHOWN_ROWS]
    head = _row("th", columns)
    more = f"<p>{count - len(rows_shown):,} more</p>" if count > len(rows_shown) else ""
    return f"{_TABLE}{head}{''.join(_row('td', row) for row in rows_shown)}</table>{more}"


def definitions(title: object, facts: Mapping[str, object]) -> str:
    """Return a title and a table of facts."""
    rows = "".join(_row("td", (name, fact)) for name, fact in facts.items())
    return f"<b>{_text(title)}</b>{_TABLE}{rows}</table>"


def _row(tag: str, cells: Iterable[object]) -> str:
    html_cells = "".join(f'<{tag} style="text-align: left">{_text(cell)}</{tag}>' for cell in cells)
    return f"<tr>{html_cells}</tr>"


def _text(value: object) -> str:
    import html  # noqa: PLC0415 (slow to import, and only notebooks need it)

    return html.escape(printable(shortened(str(value), _SHOWN_CHARACTERS)))
