"""Writes a report as one HTML file that opens offline: no script, nothing loaded from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from itertools import starmap
from typing import Any
from xml.etree.ElementTree import Element, tostring

from ggufkit import _version
from ggufkit.reports import words
from ggufkit.reports.contents import Contents
from ggufkit.reports.drawings import bits_class, grid_drawing, quality_drawing, treemap_drawing
from ggufkit.reports.elements import Child, element, name, section, table


def page(contents: Contents) -> bytes:
    """Return the report as HTML in UTF-8."""
    style = resources.files("ggufkit.reports").joinpath("report.css").read_text("utf-8")
    title = contents.overview["name"]
    body = element("body", element("main", *_parts(contents)))
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(style)),
        element("title", f"{title}: ggufkit report"),
        element("style"),
    )
    whole = element("html", head, body, lang="en")
    text = tostring(whole, encoding="unicode", method="html")
    styled = text.replace("<style></style>", f"<style>{style}</style>", 1)
    return f"<!doctype html>\n{styled}\n".encode()


def _policy(style: str) -> str:
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'"


def _parts(contents: Contents) -> Iterator[Element]:
    yield element("h1", name(contents.overview["name"]))
    yield element("p", f"Written by ggufkit {_version.__version__}.", class_="soft")
    yield table(words.FILES, _names_first(words.file_rows(contents)), right=range(1, 6))
    chart = quality_drawing(contents.qualities)
    if chart is not None:
        yield section("Quality against size", chart)
    groups = contents.treemap["groups"]
    if groups:
        kinds = {(tensor["bits"], tensor["type"]) for tensor in contents.tensors}
        yield section("Where the bytes are", treemap_drawing(contents.treemap),
                      element("p", *starmap(_colour, sorted(kinds)), class_="key"))  # fmt: skip
    if contents.grid["cells"]:
        yield section("Layers", element("div", grid_drawing(contents.grid), class_="scroll"))
    yield from _findings(contents.faults)
    yield section("Facts", table(words.FACTS, words.fact_rows(contents)), folded=True)
    if groups:
        total = sum(group["nbytes"] for group in groups) or 1
        rows: list[list[Child]] = [
            [name(group["name"]), str(group["tensors"]), words.megabytes(group["nbytes"]),
             f"{group['nbytes'] / total:.1%}"]
            for group in groups
        ]  # fmt: skip
        yield section("Parts", table(("part", "tensors", "MB", "share"), rows, right=(1, 2, 3)),
                      folded=True)  # fmt: skip
    if contents.memory:
        memory = table(
            words.MEMORY, words.memory_rows(contents.memory), right=range(len(words.MEMORY))
        )
        yield section("Memory in llama.cpp, in MB", memory, folded=True)
    yield from _compared(contents)
    yield from _lists(contents)


def _colour(bits: float, kind: str) -> Element:
    square = element("rect", width="10", height="10", class_=bits_class(bits))
    return element("span", element("svg", square, viewBox="0 0 10 10"), f"{kind}, {bits:g} bits")


def _findings(faults: dict[str, Any]) -> Iterator[Element]:
    if not faults["findings"]:
        sound = element("p", element("code", "ggufkit check"), " finds nothing wrong.")
        yield section("Check", sound)
        return
    rows: list[list[Child]] = [
        [element("span", finding["severity"], class_=finding["severity"]), finding["rule"],
         element("span", element("bdi", finding["message"]), f" {finding['remedy']}")]
        for finding in faults["findings"]
    ]  # fmt: skip
    rest = faults["total"] - len(rows)
    more = [element("p", f"… and {rest} more")] if rest else []
    yield section("Check", table(("severity", "rule", "finding and remedy"), rows), *more)


def _compared(contents: Contents) -> Iterator[Element]:
    """Yield the tensors that differ, the most damaged first, and the keys that differ, folded."""
    if contents.errors:
        counts = zip(contents.files[1:], contents.errors, strict=True)
        lines = [
            element("p", name(file.name), f": equal tensors: {errors.same:,}, "
                    f"different: {len(errors.damaged):,}")
            for file, errors in counts
        ]  # fmt: skip
        rows = _names_first(words.error_rows(contents))
        yield section("Errors of tensors, the most damaged first", *lines,
                      table(words.ERRORS, rows, right=range(4, 8)), folded=True)  # fmt: skip
    keys: list[list[Child]] = [
        [name(file.name), name(key["key"]), name(_value_text(key["before"])),
         name(_value_text(key["after"]))]
        for file, comparison in zip(contents.files[1:], contents.comparisons, strict=True)
        for key in comparison["keys"]
    ]  # fmt: skip
    if keys:
        yield section("Keys that differ", table(words.KEYS, keys), folded=True)


def _names_first(rows: Iterable[Sequence[str]]) -> list[list[Child]]:
    """Return rows of a table whose first cells are names from a file."""
    return [[name(row[0]), *row[1:]] for row in rows]


def _lists(contents: Contents) -> Iterator[Element]:
    tensors: list[list[Child]] = [
        [name(row["name"]), row["type"], " x ".join(f"{n:,}" for n in row["shape"]),
         f"{row['nbytes'] / 1e6:,.3f}"]
        for row in contents.tensors
    ]  # fmt: skip
    rest = contents.overview["tensors"] - len(tensors)
    more = [element("p", f"… and {rest:,} more")] if rest else []
    title = f"Tensors ({contents.overview['tensors']:,})"
    yield section(title, table(("name", "type", "shape", "MB"), tensors, right=(3,)), *more,
                  folded=True)  # fmt: skip
    keys: list[list[Child]] = [
        [name(row["key"]), row["type"], name(_value_text(row["value"]))]
        for row in contents.metadata["rows"]
    ]
    title = f"Metadata ({contents.metadata['total']:,} keys)"
    yield section(title, table(("key", "type", "value"), keys), folded=True)
    for kind, text in contents.templates.items():
        yield section(f"Chat template: {kind}", element("pre", element("bdi", text)), folded=True)


def _value_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)
