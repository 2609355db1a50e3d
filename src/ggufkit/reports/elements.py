"""Makes elements of HTML and SVG; every text is escaped when they are written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias
from xml.etree.ElementTree import Element, SubElement

Child: TypeAlias = "str | Element"
# What neither HTML nor a reader can use: controls, and halves of surrogate pairs.
_UNPRINTABLE: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def printable(text: str) -> str:
    """Return a text with a replacement character for each that cannot be shown."""
    return _UNPRINTABLE.sub("\ufffd", text)


def element(tag: str, *content: Child, **attributes: str) -> Element:
    """Return an element; `class_` is the attribute class, and other `_` stand for `-`."""
    texts = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    node = Element(tag, {key: printable(value) for key, value in texts.items()})
    for item in content:
        if isinstance(item, Element):
            node.append(item)
        elif len(node):
            node[-1].tail = (node[-1].tail or "") + printable(item)
        else:
            node.text = (node.text or "") + printable(item)
    return node


def name(text: str) -> Element:
    """Return a name from a file: its direction of writing stays its own."""
    return element("bdi", text, class_="name")


def table(
    header: Sequence[str], rows: Iterable[Sequence[Child]], *, right: Sequence[int] = ()
) -> Element:
    """Return a table that scrolls by itself; `right` are the columns of numbers."""
    node = element("table")
    head = SubElement(SubElement(node, "thead"), "tr")
    head.extend(_cell("th", index, text, right) for index, text in enumerate(header))
    body = SubElement(node, "tbody")
    for row in rows:
        line = SubElement(body, "tr")
        line.extend(_cell("td", index, cell, right) for index, cell in enumerate(row))
    return element("div", node, class_="scroll", tabindex="0", role="region")


def _cell(tag: str, column: int, content: Child, right: Sequence[int]) -> Element:
    more = {"scope": "col"} if tag == "th" else {}
    return element(tag, content, **more, **({"class_": "number"} if column in right else {}))


def section(title: str, *content: Child, folded: bool = False) -> Element:
    """Return a section with a heading; a folded one opens by a click."""
    if folded:
        return element("details", element("summary", element("h2", title)), *content)
    return element("section", element("h2", title), *content)
