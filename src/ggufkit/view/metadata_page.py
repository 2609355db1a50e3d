"""The view of metadata: keys with short values, and long values in parts."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ggufkit.format.coerce import plain as plain_list
from ggufkit.format.values import Arrays, Strings, TypedValue, Value
from ggufkit.inspection.summary import plain
from ggufkit.view.plain_values import cut, page_of
from ggufkit.view.shown_model import ShownModel

SHOWN_ITEMS: Final = 8  # of an array in the list of keys
SHOWN_TEXT: Final = 200  # characters of a value in the list of keys
SEARCHED: Final = 1 << 20  # characters of a text that a search looks at
MAX_ITEMS: Final = 1000  # of an array in one answer
MAX_TEXT: Final = 100_000  # characters of a text in one answer
MAX_COPIED: Final = 32 << 20  # bytes of a value that is copied as JSON


def metadata_rows(shown: ShownModel, search: str, start: int, count: int) -> dict[str, Any]:
    """Return the keys that contain `search` in key or value, `count` of them from `start` on."""
    wanted = search.casefold()
    numbers = [n for n, key in enumerate(shown.keys) if not wanted or _fits(shown, key, wanted)]
    found = page_of(numbers, start, count)
    found["rows"] = [_row(shown, number) for number in found["rows"]]
    return found


def _fits(shown: ShownModel, key: str, wanted: str) -> bool:
    if wanted in key.casefold():
        return True
    value = shown.model.metadata[key]
    if isinstance(value, Strings):
        return any(wanted in cut(item, SEARCHED).casefold() for item in value[:SHOWN_ITEMS])
    if isinstance(value, np.ndarray | Arrays):
        return False
    return wanted in str(value)[:SEARCHED].casefold()


def _row(shown: ShownModel, number: int) -> dict[str, Any]:
    key = shown.key(number)
    value = shown.model.metadata[key]
    return {
        "number": number,
        "key": cut(key),
        "type": shown.model.metadata.type_name(key),
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


def metadata_value(shown: ShownModel, number: int, start: int, count: int) -> dict[str, Any]:
    """Return the value of a key: of a text the characters, of an array the items from `start`."""
    key = shown.key(number)
    value = shown.model.metadata[key]
    total = _length(value)
    row = {
        "number": number,
        "key": cut(key, 4096),
        "type": shown.model.metadata.type_name(key),
        "length": total,
        "start": start,
    }
    if isinstance(value, str):
        return row | {"value": value[start : start + min(count, MAX_TEXT)]}
    if total is None:
        return row | {"value": plain(value)}
    return row | {"value": _items(value, start, min(count, MAX_ITEMS))}


def _items(value: Value, start: int, count: int) -> list[object]:
    if isinstance(value, Strings):
        return [cut(item, 4096) for item in value[start : start + count]]
    if isinstance(value, Arrays):
        parts = (value[at] for at in range(start, min(start + count, len(value))))
        return [short_value(part) for part in parts]
    assert isinstance(value, np.ndarray)  # noqa: S101 (numbers and texts have no items)
    part: TypedValue = value[start : start + count]
    found = plain(part)
    return found if isinstance(found, list) else plain_list(part)


def metadata_document(shown: ShownModel, number: int) -> dict[str, Any] | None:
    """Return type and value as `inspect --json` has them, None for a value that is too long."""
    key = shown.key(number)
    metadata = shown.model.metadata
    value = metadata[key]
    items = _length(value) or 1
    size = value.longest() * items if isinstance(value, Strings) else items
    if size > MAX_COPIED:
        return None
    return {"type": metadata.type_name(key), "value": plain(metadata.typed(key))}
