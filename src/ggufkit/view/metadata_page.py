"""The view of metadata: keys with short values, and long values in parts."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ggufkit.edits.changes import Change
from ggufkit.format.values import Arrays, Strings, Value
from ggufkit.inspection.diff import KeyChange
from ggufkit.inspection.summary import plain
from ggufkit.view.page_model import PageModel
from ggufkit.view.plain_values import cut, page_of

SHOWN_ITEMS: Final = 8  # of an array in the list of keys
SHOWN_TEXT: Final = 200  # characters of a value in the list of keys
SEARCHED: Final = 1 << 20  # characters of a text that a search looks at
MAX_ITEMS: Final = 1000  # of an array in one answer
MAX_TEXT: Final = 100_000  # characters of a text in one answer
MAX_COPIED: Final = 32 << 20  # characters of a value that is copied as JSON
NUMBER_CHARACTERS: Final = 16  # of a number in JSON, or for an array around it


def metadata_rows(page: PageModel, search: str, start: int, count: int) -> dict[str, Any]:
    """Return the keys that contain `search` in key or value, `count` of them from `start` on."""
    text = search.casefold()
    numbers = [n for n, key in enumerate(page.keys) if not text or _fits(page, key, text)]
    answer = page_of(numbers, start, count)
    answer["rows"] = [_row(page, number) for number in answer["rows"]]
    return answer


def _fits(page: PageModel, key: str, text: str) -> bool:
    if text in key.casefold():
        return True
    value = page.model.metadata[key]
    if isinstance(value, Strings):
        return any(text in cut(item, SEARCHED).casefold() for item in value[:SHOWN_ITEMS])
    if isinstance(value, np.ndarray | Arrays):
        return False
    return text in str(value)[:SEARCHED].casefold()


def _row(page: PageModel, number: int) -> dict[str, Any]:
    key = page.key(number)
    value = page.model.metadata[key]
    return {
        "number": number,
        "key": cut(key),
        "type": page.model.metadata.type_name(key),
        "length": _length(value),
        "value": short_value(value),
    }


def _length(value: Value) -> int | None:
    """Return the number of items or characters, None for a number."""
    return len(value) if isinstance(value, str | Strings | Arrays | np.ndarray) else None


def short_value(value: Value | None) -> object:
    """Return a value for a list: a text or an array cut short; None for a missing one."""
    if value is None:
        return None
    if isinstance(value, str):
        return cut(value, SHOWN_TEXT)
    if isinstance(value, Strings):
        return [cut(item, 40) for item in value[:SHOWN_ITEMS]]
    if isinstance(value, Arrays):
        return [f"array of {len(inner):,}" for inner in value[:SHOWN_ITEMS]]
    if isinstance(value, np.ndarray):
        return plain(value[:SHOWN_ITEMS])
    return plain(value)


def key_row(change: Change | KeyChange) -> dict[str, Any]:
    """Return a key that differs, with short values."""
    return {
        "key": cut(change.key),
        "before_type": change.before_type,
        "after_type": change.after_type,
        "before": short_value(change.before),
        "after": short_value(change.after),
    }


def metadata_value(page: PageModel, number: int, start: int, count: int) -> dict[str, Any]:
    """Return the value of a key: of a text the characters, of an array the items from `start`."""
    key = page.key(number)
    value = page.model.metadata[key]
    total = _length(value)
    row = {
        "number": number,
        "key": cut(key, 4096),
        "type": page.model.metadata.type_name(key),
        "length": total,
        "start": start,
    }
    if isinstance(value, str):
        return row | {"value": value[start : start + min(count, MAX_TEXT)]}
    if total is None:
        return row | {"value": plain(value)}
    return row | {"value": _items(value, start, min(count, MAX_ITEMS))}


def _items(value: Value, start: int, count: int) -> object:
    if isinstance(value, Strings):
        return [cut(item, 4096) for item in value[start : start + count]]
    if isinstance(value, Arrays):
        parts = (value[index] for index in range(start, min(start + count, len(value))))
        return [short_value(part) for part in parts]
    assert isinstance(value, np.ndarray)  # noqa: S101 (numbers and texts have no items)
    return plain(value[start : start + count])


def metadata_document(page: PageModel, number: int) -> dict[str, Any] | None:
    """Return type and value as `inspect --json` has them, None for a value that is too long."""
    key = page.key(number)
    metadata = page.model.metadata
    if _copied_characters(metadata[key]) > MAX_COPIED:
        return None
    return {"type": metadata.type_name(key), "value": plain(metadata.typed(key))}


def _copied_characters(value: Value) -> int:
    """Return about how many characters a value has as JSON, or some number above MAX_COPIED."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Strings):
        return value.longest() * len(value)
    if not isinstance(value, Arrays):
        return NUMBER_CHARACTERS * (_length(value) or 1)
    total = NUMBER_CHARACTERS * len(value)
    for inner in value:
        if total > MAX_COPIED:
            break
        total += _copied_characters(inner)
    return total
