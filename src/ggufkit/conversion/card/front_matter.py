"""Reads the YAML at the head of a model card; every scalar stays text.

PyYAML parses, and this module builds values from its events. Anchors, aliases and tags are refused:
they say more than plain text, and aliases let a small text expand into a huge one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ggufkit.errors import CheckpointError

MAX_DEPTH: Final = 64  # real cards nest five deep
MAX_CHARACTERS: Final = 2 << 20  # the largest real cards, with benchmark results, have some 300 KiB

Node = str | None | list["Node"] | dict[str, "Node"]

_FENCE: Final = "---"
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})


def front_matter(card: str) -> dict[str, Node]:
    """Return the mapping at the head of a card, empty if missing.

    Raises CheckpointError with the line for text that is not YAML or uses refused parts of it.
    """
    lines = card.removeprefix("\ufeff").splitlines()
    if not lines or lines[0] != _FENCE:
        return {}
    end = lines.index(_FENCE, 1) if _FENCE in lines[1:] else len(lines)
    text = "\n".join(line.replace("\t", "  ") for line in lines[1:end])
    if len(text) > MAX_CHARACTERS:
        raise CheckpointError(f"README.md: its head is longer than {MAX_CHARACTERS:,} characters")
    node = _parsed(text)
    return node if isinstance(node, dict) else {}


def _parsed(text: str) -> Node:
    import yaml  # noqa: PLC0415 (most commands read no card)

    try:
        return _Composer(yaml.parse(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _wrong(str(error.problem or error.context), mark) from None
    except yaml.YAMLError as error:
        raise CheckpointError(f"README.md: {str(error).splitlines()[0]}") from None


def _wrong(what: str, mark: Any) -> CheckpointError:  # noqa: ANN401 (PyYAML is untyped)
    # Lines count from 1, and the fence takes one.
    place = f"README.md, line {mark.line + 2}" if mark else "README.md"
    return CheckpointError(f"{place}: {what}")


class _Composer:
    """Builds values from PyYAML's events, which are parsed on demand."""

    def __init__(self, events: Iterator[Any]) -> None:
        """Begin at the first event."""
        self._events = events

    def document(self) -> Node:
        """Return the only document, None if missing."""
        node: Node = None
        documents = 0
        for event in self._events:
            kind = type(event).__name__
            if kind == "DocumentStartEvent":
                documents += 1
                if documents > 1:
                    raise _wrong("a second document begins here", event.start_mark)
                node = self._node(next(self._events), 0)
        return node

    def _node(self, event: Any, depth: int) -> Node:  # noqa: ANN401
        """Return the node that begins with an event."""
        kind = type(event).__name__
        if depth > MAX_DEPTH:
            raise _wrong(f"more than {MAX_DEPTH} levels", event.start_mark)
        if kind == "AliasEvent" or event.anchor is not None or event.tag is not None:
            raise _wrong("anchors, aliases and tags are not read here", event.start_mark)
        if kind == "ScalarEvent":
            is_null = event.implicit[0] and event.value in _NULLS  # plain, not in quotes
            return None if is_null else str(event.value)
        return self._sequence(depth) if kind == "SequenceStartEvent" else self._mapping(depth)

    def _sequence(self, depth: int) -> list[Node]:
        items: list[Node] = []
        while type(event := next(self._events)).__name__ != "SequenceEndEvent":
            items.append(self._node(event, depth + 1))
        return items

    def _mapping(self, depth: int) -> dict[str, Node]:
        found: dict[str, Node] = {}
        while type(event := next(self._events)).__name__ != "MappingEndEvent":
            key = self._node(event, depth + 1)
            if isinstance(key, list | dict):
                what = "a key must be text, not a list or mapping"
                raise _wrong(what, event.start_mark)
            found[str(key)] = self._node(next(self._events), depth + 1)
        return found
