"""Compare two sets of metadata."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ggufkit.edits.header_slack import visible
from ggufkit.format.coerce import plain
from ggufkit.format.encoding import CANONICAL
from ggufkit.format.metadata import Metadata
from ggufkit.format.values import Strings, Value

ChangeKind = Literal["added", "removed", "changed", "renamed"]


@dataclass(frozen=True)
class Change:
    """A key that differs: `before` and `after` are its values, `name` is its new name."""

    kind: ChangeKind
    key: str
    before_type: str = ""
    after_type: str = ""
    before: Value | None = None
    after: Value | None = None
    name: str = ""

    def items(self) -> list[tuple[int, Any, Any]]:
        """Return (index, old, new) of each changed item, if the arrays have the same length."""
        before, after = self.before, self.after
        if not isinstance(before, np.ndarray | Strings) or not isinstance(after, type(before)):
            return []
        if len(before) != len(after):
            return []
        pairs = enumerate(zip(plain(before), plain(after), strict=True))
        return [(index, old, new) for index, (old, new) in pairs if old != new]


def changes(before: Metadata, after: Metadata) -> list[Change]:
    """Return the changed, renamed, removed and added keys, without the key for slack."""
    old, new = visible(before), visible(after)
    removed = [key for key in old if key not in new]
    fresh = [key for key in new if key not in old]
    renamed = dict(_moves(old, new, removed, fresh))
    rows = [
        _change("changed", key, old, new)
        for key in old
        if key in new and _encoded(old, key) != _encoded(new, key)
    ]
    rows += [Change("renamed", key, name=name) for key, name in renamed.items()]
    rows += [_change("removed", key, old, new) for key in removed if key not in renamed]
    return rows + [_change("added", key, old, new) for key in fresh if key not in renamed.values()]


def _moves(
    old: Metadata, new: Metadata, removed: list[str], fresh: list[str]
) -> Iterator[tuple[str, str]]:
    """Pair each removed key with an added key of the same value: these were renamed."""
    unmatched = {key: _encoded(new, key) for key in fresh}
    for key in removed:
        content = _encoded(old, key)
        name = next((name for name, own in unmatched.items() if own == content), None)
        if name is not None:
            del unmatched[name]
            yield key, name


def _encoded(metadata: Metadata, key: str) -> bytes:
    return metadata.arranged([key]).renamed({key: "-"}).encode(CANONICAL)


def _change(kind: ChangeKind, key: str, old: Metadata, new: Metadata) -> Change:
    return Change(
        kind,
        key,
        old.type_name(key) if key in old else "",
        new.type_name(key) if key in new else "",
        old.get(key),
        new.get(key),
    )
