r"""Regular expressions of users and files, without those that `re` may never finish.

`re` tries one way after another, so `(\w|.)+!` does not end on thirty letters. Expressions from
files that have many ways to match one text are refused: a repeated group with repetitions or
alternatives in it, and more than a few repetitions or alternatives one after another.
"""

from __future__ import annotations

import math
import re
from typing import Final

from ggufkit.errors import ValueTypeError, brief

MOST_BITS: Final = 20  # ways to match one text, as a power of 2: seconds for a hostile pattern
MOST_LETTERS: Final = 96  # of a name: its matches take time by a power of its length
REPEAT_BITS: Final = 5.0  # of a repetition in a long name, where several share the letters
_TOKEN: Final = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^]\\])*\]|\((?:\?(?:P?<\w+>|<?[=!]|[a-wyzA-Z-]*[:)]))?|[)|]"
    r"|(?P<repeat>[*+?]|\{\d*,?\d*\})[?+]?|.",
    re.DOTALL,
)


def compile_pattern(text: str, flags: int = 0, *, written: str = "") -> re.Pattern[str]:
    """Compile an expression; ValueTypeError if it is invalid. The error shows `written`, if given.

    For expressions that the user of this process wrote; others go through `compile_untrusted`.
    """
    try:
        return re.compile(text, flags)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueTypeError(
            f"{brief(written or text)} is not a valid pattern: {error}",
            remedy="Escape special characters in regular expressions: \\. for a dot",
        ) from None


def compile_untrusted(text: str) -> re.Pattern[str]:
    """Compile an expression from a file; ValueTypeError if it is invalid, or may take forever."""
    pattern = compile_pattern(text)
    # Of each open group: ways of its last alternative and of the others as powers of 2, and count.
    bits, others, branches = [0.0], [0.0], [1]
    last = 0.0  # the same of the item before
    for token in _TOKEN.finditer(text.removesuffix(".*")):  # which matches in the first way
        repeat = token["repeat"]
        if token[0] == "|":
            branches[-1] += 1
            others[-1], bits[-1] = max(others[-1], bits[-1]), 0.0
        elif pattern.flags & re.VERBOSE or text[token.start() : token.end() + 1] == "(?":
            raise _refused(text, "it has comments, conditions or other extensions")
        elif token[0].startswith("(") and not token[0].endswith(")"):
            bits.append(0.0)
            others.append(0.0)
            branches.append(1)
        elif token[0] == ")" and len(bits) > 1:
            last = max(bits.pop(), others.pop()) + math.log2(branches.pop())
            bits[-1] += last
        elif repeat is None:
            last = 0.0
        else:
            added = _bits_of_repeat(repeat, last)
            bits[-1] += added
            last += added
    if max(bits[0], others[0]) + math.log2(branches[0]) > MOST_BITS:
        raise _refused(text, "it can match one text in very many ways")
    return pattern


def matches(pattern: re.Pattern[str], name: str) -> bool:
    """Whether an expression from a file matches a part of a name; ValueTypeError if it is long."""
    if len(name) > MOST_LETTERS:
        raise ValueTypeError(
            f"the name {brief(name)} has {len(name):,} letters",
            remedy=f"Patterns are for names of at most {MOST_LETTERS} letters",
        )
    return pattern.search(name) is not None


def _refused(text: str, reason: str) -> ValueTypeError:
    return ValueTypeError(
        f"{brief(text)} could take forever: {reason}",
        remedy="Use sets such as [a-z_], few of * and +, no repeated group with | or * in it",
    )


def _bits_of_repeat(repeat: str, last: float) -> float:
    """Return what a repetition adds to the ways of an item that has `last` bits itself."""
    if repeat == "?":
        return 1.0
    times = repeat[1:-1]
    if times.isdecimal():
        count = int(times)
        return last * (count - 1) + math.log2(max(count, 1))
    return math.inf if last else REPEAT_BITS
