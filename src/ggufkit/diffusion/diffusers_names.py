"""diffusers' names of the tensors of a model, and the publisher's names for them.

Source: the converters in `loaders/single_file_utils.py` of diffusers, from the publisher's names.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

MAX_NAME: Final = 1000  # characters; matching longer names takes long
_HOLE: Final = re.compile(r"\\\{([a-z])\\\}|\\\*")
_PLACE: Final = re.compile(r"\{([^}]*)\}|\*")
_TERM: Final = re.compile(r"(\d*)([a-z]?)")


class PublishedPlace(NamedTuple):
    """The tensor of the publisher that a tensor of diffusers becomes a part of."""

    name: str
    part: int = 0
    parts: int = 1


@dataclass(frozen=True)
class DiffusersNames:
    """Patterns of diffusers' names, and the publisher's names that they become.

    In a pattern `{a}` is a number, `*` any text, and a dot at the end any rest of a name. In the
    publisher's pattern, `{2a+b+1}` is computed. `parts` come first, then `joined`, which lists the
    tensors that become one, and then `renamed`; the first pattern of each table that fits counts.
    The halves of tensors in `swapped` and, in the last block alone, `swapped_last` change places;
    tensors of `shapes` are reshaped, on the way back to `diffusers_shapes`. All of these have the
    publisher's patterns. With `others`, names that
    no pattern fits stay.
    """

    names: tuple[tuple[str, ...], ...]
    parts: Mapping[str, str] = field(default_factory=dict)
    joined: Mapping[str, list[str]] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    swapped: tuple[str, ...] = ()
    swapped_last: tuple[str, ...] = ()
    shapes: Mapping[str, list[int]] = field(default_factory=dict)
    diffusers_shapes: Mapping[str, list[int]] = field(default_factory=dict)
    others: bool = False

    def matched(self, names: Mapping[str, object]) -> int:
        """Return how many names match this model in diffusers' names, 0 if it is another model."""
        return max((len(row) for row in self.names if all(n in names for n in row)), default=0)

    def place(self, name: str) -> PublishedPlace | None:
        """Return the publisher's tensor for one of diffusers, None if no pattern fits its name."""
        if len(name) > MAX_NAME:
            return None
        inner = next(filter(None, (_filled(*row, name) for row in self.parts.items())), name)
        for target, sources in self.joined.items():
            for part, pattern in enumerate(sources):
                if path := _filled(pattern, target, inner):
                    return PublishedPlace(path, part, len(sources))
        path = next(filter(None, (_filled(*row, inner) for row in self.renamed.items())), None)
        return PublishedPlace(path or inner) if path or self.others or inner != name else None

    def sources(self, name: str) -> tuple[str, ...]:
        """Return diffusers' names of the tensors that become a publisher's tensor, in order."""
        if len(name) > MAX_NAME:
            return ()
        joined = ((target, tuple(patterns)) for target, patterns in self.joined.items())
        renamed = ((target, (pattern,)) for pattern, target in self.renamed.items())
        # The pattern with the most fixed text is the most specific one.
        rows = sorted((*joined, *renamed), key=lambda row: -len(_PLACE.sub("", row[0])))
        for inner in (*(_emptied(*row, name) for row in rows), (name,)):
            outer = tuple(map(self._outer, inner))
            places = [PublishedPlace(name, part, len(outer)) for part in range(len(outer))]
            if outer and [*map(self.place, outer)] == places:
                return outer
        return ()

    def _outer(self, inner: str) -> str:
        rows = (_emptied(target, (pattern,), inner) for pattern, target in self.parts.items())
        return next((outer for (outer,) in filter(None, rows)), inner)

    def is_swapped(self, name: str, last: Mapping[str, int]) -> bool:
        """Whether the halves of a publisher's tensor change places; `last` are the last blocks."""
        if any(_holes(pattern)(name) for pattern in self.swapped):
            return True
        holes = next(filter(None, (_holes(pattern)(name) for pattern in self.swapped_last)), None)
        return holes is not None and holes[0] == str(last.get(name.partition(".")[0]))


def shape_of(name: str, shapes: Mapping[str, list[int]]) -> list[int] | None:
    """Return the first of `shapes` whose pattern fits a publisher's name; one length may be -1."""
    return next((shape for pattern, shape in shapes.items() if _holes(pattern)(name)), None)


def diffusers_names(table: dict[str, Any]) -> DiffusersNames:
    """Return the names from the table `diffusers` of an architecture's file."""
    lists = {key: tuple(value) for key, value in table.items() if isinstance(value, list)}
    return DiffusersNames(**{**table, **lists, "names": tuple(map(tuple, table["names"]))})


@functools.cache
def _holes(pattern: str) -> Callable[[str], tuple[str, ...]]:
    """Return a function from a name to the texts in the holes of `pattern`, or ()."""
    escaped = _HOLE.sub(lambda hole: r"(\d{1,4})" if hole[1] else "(.+?)", re.escape(pattern))
    expression = re.compile(escaped + ("(.+)" if pattern.endswith(".") else "()"))

    def fit(name: str) -> tuple[str, ...]:
        match = expression.fullmatch(name)
        return match.groups() if match else ()

    return fit


def _filled(pattern: str, target: str, name: str) -> str | None:
    """Return `target` with what `name` has in the holes of `pattern`, None if it does not fit."""
    texts = _holes(pattern)(name)
    if not texts:
        return None
    holes = [*zip(_HOLE.findall(re.escape(pattern)), texts, strict=False)]
    numbers = {letter: int(text) for letter, text in holes if letter}
    rest = texts[-1] if pattern.endswith(".") else ""
    return _with(target, numbers, [text for letter, text in holes if not letter]) + rest


def _emptied(target: str, patterns: tuple[str, ...], name: str) -> tuple[str, ...]:
    """Return `patterns` with the texts that make `target` become `name`, () if there are none.

    The caller checks the result: a sum has several solutions, or none.
    """
    texts = _holes(_PLACE.sub(lambda hole: "{a}" if hole[1] else "*", target))(name)
    if not texts:
        return ()
    holes = [*zip(_PLACE.findall(target), texts, strict=False)]
    numbers = {
        letter: number
        for sum_of_terms, text in holes
        if sum_of_terms
        for letter, number in _solved(sum_of_terms, int(text))
    }
    rest = texts[-1] if target.endswith(".") else ""
    others = [text for sum_of_terms, text in holes if not sum_of_terms]
    return tuple(_with(pattern, numbers, others) + rest for pattern in patterns)


def _with(pattern: str, numbers: Mapping[str, int], texts: Iterable[str]) -> str:
    rest = iter(texts)
    return _PLACE.sub(lambda hole: _value(hole[1], numbers) if hole[1] else next(rest), pattern)


def _value(sum_of_terms: str, numbers: Mapping[str, int]) -> str:
    terms = [_TERM.fullmatch(term) for term in sum_of_terms.split("+")]
    return str(sum(int(t[1] or 1) * numbers.get(t[2], 1) for t in terms if t))


def _solved(sum_of_terms: str, value: int) -> Iterator[tuple[str, int]]:
    """Yield numbers for the letters of a sum such as 3a+b+1 that may make it `value`."""
    terms = [term for text in sum_of_terms.split("+") if (term := _TERM.fullmatch(text))]
    value -= sum(int(term[1]) for term in terms if not term[2])
    for term in terms:
        if term[2]:
            number, value = divmod(value, int(term[1] or 1))
            yield term[2], number
