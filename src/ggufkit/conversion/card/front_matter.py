"""Reads the YAML at the head of a model card, whose scalars all stay text, and writes cards.

PyYAML parses, and this module builds values from its events. Anchors, aliases and tags are refused:
they say more than plain text, and aliases let a small text expand into a huge one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import ggufkit._toml as _toml
from ggufkit.errors import CheckpointError
from ggufkit.format.coerce import plain
from ggufkit.format.values import Value

MAX_DEPTH: Final = 64  # real cards nest five deep
MAX_CHARACTERS: Final = 2 << 20  # the largest real cards, with benchmark results, have some 300 KiB

Node = str | None | list["Node"] | dict[str, "Node"]

BYTE_ORDER_MARK: Final = "\ufeff"
_FENCE: Final = "---"
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
# Fields of a card by their keys in a GGUF file.
_TEXTS: Final = {k: own[0] for k, own in _toml.read(__file__, "fields.toml")["card"].items()}
_ESCAPED: Final = {number: f"\\u{number:04x}" for number in (0x7F, 0x85, 0x2028, 0x2029)}
_LISTS: Final = {"tags": "tags", "languages": "language"}
_WORKS: Final = {"base_model": "base_model", "dataset": "datasets"}


def front_matter(card: str) -> dict[str, Node]:
    """Return the mapping at the head of a card, empty if missing.

    Raises CheckpointError with the line for text that is not YAML or uses refused parts of it.
    """
    lines = card.removeprefix(BYTE_ORDER_MARK).splitlines()
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
        self._events = events

    def document(self) -> Node:
        nodes: list[Node] = []
        for event in self._events:
            if type(event).__name__ == "DocumentStartEvent":
                if nodes:
                    raise _wrong("a second document begins here", event.start_mark)
                nodes.append(self._node(next(self._events), 0))
        return nodes[0] if nodes else None

    def _node(self, event: Any, depth: int) -> Node:  # noqa: ANN401
        kind = type(event).__name__
        if depth > MAX_DEPTH:
            raise _wrong(f"more than {MAX_DEPTH} levels", event.start_mark)
        if kind == "AliasEvent" or event.anchor is not None or event.tag is not None:
            raise _wrong("anchors, aliases and tags are not read here", event.start_mark)
        if kind == "ScalarEvent":
            is_null = event.implicit[0] and event.value in _NULLS  # plain, not in quotes
            return None if is_null else str(event.value)
        items: list[Node] = []
        fields: dict[str, Node] = {}
        is_list = kind == "SequenceStartEvent"
        while not type(inner := next(self._events)).__name__.endswith("EndEvent"):
            item = self._node(inner, depth + 1)
            if is_list:
                items.append(item)
            elif isinstance(item, list | dict):
                raise _wrong("a key must be text, not a list or mapping", inner.start_mark)
            else:
                fields[str(item)] = self._node(next(self._events), depth + 1)
        return items if is_list else fields


def model_card(metadata: Mapping[str, Value]) -> bytes:
    """Return the text of README.md, with every key that a card has a field for."""
    values = {key.removeprefix("general."): plain(v) for key, v in metadata.items()
            if key.startswith("general.")}  # fmt: skip
    fields: dict[str, Any] = {card: values[key] for key, card in _TEXTS.items() if values.get(key)}
    fields |= {card: values[key] for key, card in _LISTS.items() if values.get(key)}
    fields |= {card: works for key, card in _WORKS.items() if (works := list(_works(values, key)))}
    title = str(values.get("name") or "Model")
    text = f"# {' '.join(title.split())}\n\nExported from a GGUF file by ggufkit.\n"
    return "\n".join(("---", *yaml_lines(fields), "---", "", text)).encode()


def yaml_lines(fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line of YAML for each field; a value is JSON, which is also YAML."""
    for key, value in fields.items():
        # All line ends are escaped.
        yield f"{key}: {json.dumps(value, ensure_ascii=False).translate(_ESCAPED)}"


def _works(values: Mapping[str, Any], key: str) -> Iterator[dict[str, str]]:
    count = values.get(f"{key}.count")
    for number in range(count if isinstance(count, int) else 0):
        prefix = f"{key}.{number}."
        fields = {k.removeprefix(prefix): v for k, v in values.items() if k.startswith(prefix)}
        if not fields:
            return
        yield fields
