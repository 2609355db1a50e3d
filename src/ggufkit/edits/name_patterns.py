"""Patterns for names: globs, or regular expressions after `re:`, and renames by them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ggufkit.errors import MissingKeyError, MissingTensorError, ValueTypeError, did_you_mean
from ggufkit.validation.patterns import compile_pattern

REGEX: Final = "re:"
_WILD: Final = re.compile(r"\*|\?|\[!?\]?[^]]*\]")


@dataclass(frozen=True)
class Pattern:
    """A pattern for names: a glob matches the whole name, a regular expression any part."""

    text: str
    expression: re.Pattern[str]

    @property
    def is_glob(self) -> bool:
        """Whether the pattern was written as a glob."""
        return not self.text.startswith(REGEX)

    def match(self, name: str) -> bool:
        """Whether a name matches."""
        return self.expression.search(name) is not None


@dataclass(frozen=True)
class Rename:
    """A pattern, and the new names of the names that match it."""

    pattern: Pattern
    replacement: str

    def apply(self, name: str) -> str | None:
        """Return the new name, None for a name that does not match."""
        match = self.pattern.expression.search(name)
        if match is None:
            return None
        return name[: match.start()] + match.expand(self.replacement) + name[match.end() :]


def pattern(text: str) -> Pattern:
    """Parse a pattern; ValueTypeError if `text` is not a valid pattern.

    In a glob `*` matches any run of characters, `?` any character and `[...]` one of a set; upper
    and lower case differ. The text after `re:` is a regular expression, searched anywhere in a name
    unless anchored.
    """
    if not text.removeprefix(REGEX):
        raise ValueTypeError("a pattern is empty", remedy="Write a name, a glob, or re:REGEX")
    expression = text.removeprefix(REGEX) if text.startswith(REGEX) else _globbed(text)
    return Pattern(text, compile_pattern(expression, re.DOTALL, written=text))


def rename(text: str) -> Rename:
    r"""Parse "PATTERN=NAME"; ValueTypeError if it is not a valid rename.

    Wildcards in the new name, in order, insert the text that the glob's wildcards matched; with a
    regular expression the new text replaces the match, with its groups as \1, \2 and so on.
    """
    old, equals, new = text.rpartition("=")
    if not equals or not new:
        raise ValueTypeError(f"{text!r} is not a rename", remedy="Write it as PATTERN=NAME")
    parsed = pattern(old)
    replacement = _placed(parsed, new) if parsed.is_glob else new
    try:
        parsed.expression.sub(replacement, "")  # compiles the template, even if nothing matches
    except (re.error, IndexError) as error:
        raise ValueTypeError(
            f"{new!r} is not a valid replacement for {old!r}: {error}",
            remedy="Use only groups that the pattern has",
        ) from None
    return Rename(parsed, replacement)


def _globbed(text: str) -> str:
    """Return the regular expression of a whole name, with a group for each wildcard."""
    regex, offset = "", 0
    for wild in _WILD.finditer(text):
        regex += re.escape(text[offset : wild.start()]) + _group(wild[0])
        offset = wild.end()
    return rf"\A{regex}{re.escape(text[offset:])}\Z"


def _group(wild: str) -> str:
    if wild in ("*", "?"):
        return "(.*)" if wild == "*" else "(.)"
    inner = wild[1:-1].replace("\\", r"\\").replace("[", r"\[")
    negated = inner.startswith("!")
    inner = inner.removeprefix("!")
    escaped = inner.replace("^", r"\^").replace("]", r"\]")
    return f"([{'^' * negated}{escaped}])"


def _placed(parsed: Pattern, new: str) -> str:
    """Return the template of a glob's new name: its n-th wildcard is the n-th group."""
    pieces = re.split(r"([*?])", new)
    if len(pieces) // 2 > parsed.expression.groups:
        raise ValueTypeError(
            f"{new!r} has more wildcards than {parsed.text!r}", remedy="Use at most as many"
        )
    return "".join(
        f"\\g<{i // 2 + 1}>" if i % 2 else piece.replace("\\", r"\\")
        for i, piece in enumerate(pieces)
    )


def matching(names: Iterable[str], chosen: Pattern, *, of_keys: bool = False) -> list[str]:
    """Return the names that match, in order; if none does, the error names the nearest.

    Raises MissingTensorError, or MissingKeyError for the names of keys.
    """
    listed = list(names)
    matches = [name for name in listed if chosen.match(name)]
    if matches:
        return matches
    kind, error = ("key", MissingKeyError) if of_keys else ("tensor", MissingTensorError)
    remedy = did_you_mean(chosen.text, listed)
    raise error(f"no {kind} matches {chosen.text!r}", remedy=remedy)
