"""Automata that follow all ways of a regular expression at once, as Thompson's and Pike's do."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

MAX_CACHED: Final = 20_000  # states in the cached sets of one automaton

Saves: TypeAlias = "tuple[int, ...] | None"  # begin and end of each group, -1 if it has none
Thread: TypeAlias = "tuple[int, Saves]"  # a state, and the groups on the way to it
StateSet: TypeAlias = "tuple[int, ...]"
# What a state does, and the meaning of its value.
CHARACTER: Final = 0  # reads a character that passes a test
SPLIT: Final = 1  # goes several ways
SAVE: Final = 2  # notes the position in a slot, by number
ASSERTION: Final = 3  # goes on if an assertion holds, by number
MATCH: Final = 4


@dataclass
class AutomatonState:
    """One state: what it does, with what, and the states behind it in order of priority."""

    kind: int
    value: Any = None
    targets: StateSet = ()


@dataclass
class Automaton:
    """The states of an expression; `cache` has the sets of states that follow others."""

    states: list[AutomatonState]
    start: int
    assertions: list[Anchor | LookAround]
    cache: dict[Any, StateSet | None] = field(default_factory=dict)
    cached: int = 0

    def accepts(self, searched: SearchedText, at: int, *, is_search: bool) -> bool:
        """Whether there is a match from a position on or, in a search, anywhere behind it."""
        text = searched.text
        active: StateSet = (self.start,)
        for place in range(at, len(text) + 1):
            held = tuple([searched.holds(each, place) for each in self.assertions])
            key = active, text[place : place + 1], held, is_search
            after = self.cache[key] if key in self.cache else self._remembered(key)
            if not after:
                return after is None
            active = after
        return False

    def _remembered(self, key: tuple[StateSet, str, tuple[bool, ...], bool]) -> StateSet | None:
        """Return the states after a character, None after a match, and keep them in the cache."""
        active, char, held, is_search = key
        threads: list[Thread] = [(number, None) for number in active]
        states = [self.states[number] for number, _ in self._followed(threads, 0, held.__getitem__)]
        after: StateSet | None = None
        if all(state.kind != MATCH for state in states):
            hits = [state.targets[0] for state in states if char and state.value(char)]
            after = tuple(dict.fromkeys([*hits, *([self.start] if is_search else [])]))
        self.cached += len(active) + len(after or ())
        if self.cached > MAX_CACHED:
            self.cache.clear()
            self.cached = 0
        self.cache[key] = after
        return after

    def first(self, searched: SearchedText, groups: int) -> Saves:
        """Return where the groups of the first match are, as `re` finds it; None without one."""
        text = searched.text
        threads: list[Thread] = []
        best: Saves = None
        for place in range(len(text) + 1):
            if best is None:
                threads.append((self.start, (-1,) * (2 * groups + 2)))
            holds = functools.partial(self._holds, searched, place)
            reached = self._followed(threads, place, holds)
            threads = []
            for number, saves in reached:
                state = self.states[number]
                if state.kind == MATCH:
                    best = saves
                    break  # the threads behind it have a lower priority
                if place < len(text) and state.value(text[place]):
                    threads.append((state.targets[0], saves))
            if best is not None and not threads:
                break
        return best

    def _followed(
        self, threads: Iterable[Thread], place: int, holds: Callable[[int], bool]
    ) -> list[Thread]:
        """Return the threads at characters and matches that are reached without reading."""
        reached: list[Thread] = []
        seen: set[int] = set()
        stack = list(threads)[::-1]
        while stack:
            number, saves = stack.pop()
            if number in seen:
                continue
            seen.add(number)
            state = self.states[number]
            if state.kind in (CHARACTER, MATCH):
                reached.append((number, saves))
            elif state.kind != ASSERTION or holds(state.value):
                if state.kind == SAVE and saves is not None:
                    saves = (*saves[: state.value], place, *saves[state.value + 1 :])
                stack += [(target, saves) for target in reversed(state.targets)]
        return reached

    def _holds(self, searched: SearchedText, place: int, number: int) -> bool:
        return searched.holds(self.assertions[number], place)


class SearchedText:
    """A text, with what is known about assertions at its positions: each is looked at once."""

    def __init__(self, text: str) -> None:
        """Begin without knowledge."""
        self.text = text
        self._known: dict[tuple[int, int], bool] = {}

    def holds(self, assertion: Anchor | LookAround, place: int) -> bool:
        """Whether an assertion holds at a position."""
        key = id(assertion), place
        if key not in self._known:
            self._known[key] = assertion.holds(self, place)
        return self._known[key]


@dataclass(frozen=True)
class Anchor:
    r"""`^`, `$`, `\b` and the like, which `re` looks at."""

    expression: re.Pattern[str]

    def holds(self, searched: SearchedText, place: int) -> bool:
        """Whether it holds at a position."""
        return self.expression.match(searched.text, place) is not None


@dataclass(frozen=True)
class LookAround:
    """`(?=...)` or `(?!...)`; with a width `(?<=...)` or `(?<!...)`."""

    automaton: Automaton
    width: int
    is_positive: bool

    def holds(self, searched: SearchedText, place: int) -> bool:
        """Whether it holds at a position."""
        at = place - self.width
        found = at >= 0 and self.automaton.accepts(searched, at, is_search=False)
        return found == self.is_positive
