r"""Regular expressions of users and files, in time proportional to the pattern times the text.

Python's `re` tries one way after another: `(\w|.)+!` does not end on thirty letters. The automata
here find the same matches and groups. Back-references have no such automaton and are refused.
Counted repetitions are copied, up to a limit.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from ggufkit.errors import ValueTypeError, brief
from ggufkit.validation.automaton import (
    ASSERTION,
    CHARACTER,
    MATCH,
    SAVE,
    SPLIT,
    Anchor,
    Automaton,
    AutomatonState,
    LookAround,
    SearchedText,
)

MAX_COPIES: Final = 2_000  # states of one pattern beyond its letters; `.{1,300}` makes 900
MAX_ALL_STATES: Final = 200_000  # of a list of patterns: a name of 40 letters for 5,000 tensors

# `re` reads the pattern, and compiles each single class or anchor of it.
_IS_NEW: Final = sys.version_info >= (3, 11)
_parser: Final[Any] = importlib.import_module("re._parser" if _IS_NEW else "sre_parse")
_compiler: Final[Any] = importlib.import_module("re._compiler" if _IS_NEW else "sre_compile")
_CHARACTERS: Final = ("LITERAL", "NOT_LITERAL", "ANY", "IN")
_REFUSED: Final = {
    "GROUPREF": "a back-reference",
    "GROUPREF_EXISTS": "a condition on a group",
    "ATOMIC_GROUP": "an atomic group",
    "POSSESSIVE_REPEAT": "a possessive repetition",
}
_TYPE_FLAGS: Final = re.ASCII | re.LOCALE | re.UNICODE


class LinearPattern:
    """A regular expression as `re.compile` takes it; ValueTypeError if it is invalid or too large.

    `pattern` is its text, `groups` the number of its groups, `states` the size of its automaton.
    Errors show `written`, which the expression was made from.
    """

    def __init__(self, pattern: str, flags: int = 0, written: str = "") -> None:
        """Compile the expression."""
        self.pattern = pattern
        self.flags = flags
        try:
            tree = _parser.parse(pattern, flags)
            builder = _Builder(MAX_COPIES + len(pattern))
            self._automaton = builder.automaton(tree, tree.state.flags)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueTypeError(
                f"{brief(written or pattern)} is not a valid pattern: {error}",
                remedy="Escape special characters in regular expressions: \\. for a dot",
            ) from None
        self._names: dict[int, str] = {n: name for name, n in tree.state.groupdict.items()}
        self._required = _required(tree)
        self.groups: int = tree.state.groups - 1
        self.states: int = builder.used

    def __eq__(self, other: object) -> bool:
        """Whether both are the same expression."""
        if not isinstance(other, LinearPattern):
            return NotImplemented
        return (self.pattern, self.flags) == (other.pattern, other.flags)

    def __hash__(self) -> int:
        """Return the hash of the expression."""
        return hash((self.pattern, self.flags))

    def __repr__(self) -> str:
        """Return the expression as Python code."""
        return f"LinearPattern({self.pattern!r})"

    def __reduce__(self) -> tuple[type[LinearPattern], tuple[str, int]]:
        """Let copies and other processes compile it again."""
        return LinearPattern, (self.pattern, self.flags)

    def search(self, text: str) -> bool:
        """Whether the expression matches anywhere in a text."""
        for part in self._required:
            if part not in text:
                return False
        return self._automaton.accepts(SearchedText(text), 0, is_search=True)

    def replace_first(self, template: str, text: str) -> str | None:
        r"""Return the text with its first match replaced by a template with \1 and \g<name>.

        None if there is no match.
        """
        saves = self._automaton.first(SearchedText(text), self.groups)
        if saves is None:
            return None
        groups = [
            text[begin:end] if begin >= 0 and end >= 0 else None
            for begin, end in zip(saves[2::2], saves[3::2], strict=True)
        ]
        return text[: saves[0]] + self._filled(template, groups) + text[saves[1] :]

    def require_template(self, template: str) -> None:
        """Raise re.error or IndexError for a template that is not valid for this expression."""
        self._filled(template, [""] * self.groups)

    def _filled(self, template: str, groups: Sequence[str | None]) -> str:
        """Return a template with texts for the groups: `re` fills it for a match of the texts."""
        parts = (self._literal(number, text) for number, text in enumerate(groups, 1))
        match = re.match("".join(parts), "".join(text or "" for text in groups))
        return match.expand(template) if match else ""

    def _literal(self, number: int, text: str | None) -> str:
        """Return an expression with the number and name of a group that matches one text."""
        name = f"?P<{self._names[number]}>" if number in self._names else ""
        return f"({name}(?!))?" if text is None else f"({name}{re.escape(text)})"


def compile_all(patterns: Iterable[str]) -> list[LinearPattern]:
    """Compile a list of expressions; ValueTypeError if together they are too large."""
    compiled: list[LinearPattern] = []
    states = 0
    for pattern in patterns:
        compiled.append(LinearPattern(pattern))
        states += compiled[-1].states
        if states > MAX_ALL_STATES:
            raise ValueTypeError(
                f"{len(compiled):,} patterns have more than {MAX_ALL_STATES:,} states together",
                remedy="Write fewer patterns, or shorter counted repetitions",
            )
    return compiled


def _required(tree: Any) -> list[str]:  # noqa: ANN401 (`re` has no types for it)
    """Return texts that each match contains: a quick check before the automaton."""
    runs = [""]
    for operation, value in tree:
        is_exact = operation.name == "LITERAL" and not tree.state.flags & re.IGNORECASE
        runs = [*runs[:-1], runs[-1] + chr(value)] if is_exact else [*runs, ""]
    return sorted(filter(None, runs), key=len, reverse=True)


# Building: each state is made after those behind it.


class _Builder:
    """Makes the states of an expression that `re` has parsed."""

    def __init__(self, limit: int, used: int = 0) -> None:
        """Begin with no states; `used` are those of the whole expression so far."""
        self.limit = limit
        self.states: list[AutomatonState] = []
        self.assertions: list[Anchor | LookAround] = []
        self.used = used
        self.tests: dict[tuple[int, int], Callable[[str], object]] = {}

    def automaton(self, tree: Any, flags: int) -> Automaton:  # noqa: ANN401
        """Return the automaton of a whole expression or of a look-around."""
        end = self.add(SAVE, 1, self.add(MATCH))
        start = self.add(SAVE, 0, self.sequence(tree, flags, end))
        return Automaton(self.states, start, self.assertions)

    def add(self, kind: int, value: Any = None, *targets: int) -> int:  # noqa: ANN401
        """Add a state, and return its number."""
        self.count()
        self.states.append(AutomatonState(kind, value, targets))
        return len(self.states) - 1

    def count(self) -> None:
        """Count a state, or an empty sequence: repeated often, it takes as long."""
        self.used += 1
        if self.used > self.limit:
            raise re.error(f"its counted repetitions make more than {MAX_COPIES:,} states")

    def sequence(self, items: Any, flags: int, behind: int) -> int:  # noqa: ANN401
        """Return the first state of items one after another, which lead to the state `behind`."""
        self.count()
        for operation, value in reversed(list(items)):
            behind = self.item(operation, value, flags, behind)
        return behind

    def item(self, operation: Any, value: Any, flags: int, behind: int) -> int:  # noqa: ANN401
        """Return the first state of an item, as `re` names it."""
        name = operation.name
        if name in _CHARACTERS:
            return self.add(CHARACTER, self.test(operation, value, flags), behind)
        if name in ("BRANCH", "FAILURE"):  # newer Pythons make a failure of (?!)
            ways = value[1] if name == "BRANCH" else ()
            return self.add(SPLIT, None, *(self.sequence(way, flags, behind) for way in ways))
        if name == "SUBPATTERN":
            return self.group(value, flags, behind)
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            return self.repeat(value, flags, behind, is_lazy=name == "MIN_REPEAT")
        if name == "AT":
            return self.assertion(Anchor(_compiled(operation, value, flags)), behind)
        if name in ("ASSERT", "ASSERT_NOT"):
            return self.look_around(value, flags, behind, is_positive=name == "ASSERT")
        raise re.error(f"{_REFUSED.get(name, name)} is not supported")

    def test(self, operation: Any, value: Any, flags: int) -> Callable[[str], object]:  # noqa: ANN401
        """Return the test of a character; the copies of a repetition share it."""
        if operation.name == "LITERAL" and not flags & re.IGNORECASE:
            return chr(value).__eq__
        if not isinstance(value, list):
            return _compiled(operation, value, flags).match
        key = id(value), flags
        if key not in self.tests:
            self.tests[key] = _compiled(operation, value, flags).match
        return self.tests[key]

    def group(self, value: Any, flags: int, behind: int) -> int:  # noqa: ANN401
        """Return the first state of a group, with its flags."""
        number, added, removed, items = value
        flags = ((flags & ~_TYPE_FLAGS if added & _TYPE_FLAGS else flags) | added) & ~removed
        if number is None:
            return self.sequence(items, flags, behind)
        end = self.add(SAVE, 2 * number + 1, behind)
        return self.add(SAVE, 2 * number, self.sequence(items, flags, end))

    def repeat(self, value: Any, flags: int, behind: int, *, is_lazy: bool) -> int:  # noqa: ANN401
        """Return the first state of copies, behind which are a loop or copies to leave out."""
        low, high, items = value
        order = -1 if is_lazy else 1
        start = behind
        if high is _parser.MAXREPEAT:
            start = self.add(SPLIT)
            self.states[start].targets = (self.sequence(items, flags, start), behind)[::order]
        else:
            for _ in range(high - low):
                ways = (self.sequence(items, flags, start), behind)
                start = self.add(SPLIT, None, *ways[::order])
        for _ in range(low):
            start = self.sequence(items, flags, start)
        return start

    def look_around(self, value: Any, flags: int, behind: int, *, is_positive: bool) -> int:  # noqa: ANN401
        """Return a state that needs an expression to match, or not to match, from here on."""
        direction, items = value
        low, high = items.getwidth() if direction < 0 else (0, 0)
        if low != high:
            raise re.error("a look-behind needs a fixed width")
        builder = _Builder(self.limit, self.used)
        automaton = builder.automaton(items, flags)
        self.used = builder.used
        if any(state.kind == SAVE and state.value > 1 for state in automaton.states):
            raise re.error("a group in a look-around is not supported; write (?:...)")
        return self.assertion(LookAround(automaton, int(low), is_positive), behind)

    def assertion(self, assertion: Anchor | LookAround, behind: int) -> int:
        """Return a state that needs an assertion to hold."""
        self.assertions.append(assertion)
        return self.add(ASSERTION, len(self.assertions) - 1, behind)


def _compiled(operation: Any, value: Any, flags: int) -> re.Pattern[str]:  # noqa: ANN401
    """Return the expression of one class or anchor."""
    state = _parser.State()
    state.str = ""
    tree = _parser.SubPattern(state, [(operation, value)])
    compiled: re.Pattern[str] = _compiler.compile(tree, int(flags))
    return compiled
