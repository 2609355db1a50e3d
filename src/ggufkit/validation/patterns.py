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

MOST_BITS: Final = 20  # ways to match one text, as a power of 2: two seconds for a hostile pattern
REPEAT_BITS: Final = 4.0  # of a repetition in a name of 64 letters, where several share the letters
_TOKEN: Final = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^]\\])*\]|\((?:\?(?:P?<\w+>|<?[=!]|[a-zA-Z-]*[:)]))?|[)|]"
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
    bits, branches = [0.0], [1]  # of each open group: its ways as a power of 2, and alternatives
    last = 0.0  # the same of the item before
    for token in _TOKEN.finditer(text):
        repeat = token["repeat"]
        if token[0] == "|":
            branches[-1] += 1
        elif token[0].startswith("(") and not token[0].endswith(")"):
            bits.append(0.0)
            branches.append(1)
        elif token[0] == ")" and len(bits) > 1:
            last = bits.pop() + math.log2(branches.pop())
            bits[-1] += last
        elif repeat is None:
            last = 0.0
        else:
            added = _bits_of_repeat(repeat, last)
            bits[-1] += added
            last += added
    if bits[0] + math.log2(branches[0]) > MOST_BITS:
        raise ValueTypeError(
            f"{brief(text)} could take forever: it can match one text in very many ways",
            remedy="Use sets such as [a-z_], few of * and +, no repeated group with | or * in it",
        )
    return pattern


def _bits_of_repeat(repeat: str, last: float) -> float:
    """Return what a repetition adds to the ways of an item that has `last` bits itself."""
    if repeat == "?":
        return 1.0
    times = repeat[1:-1]
    if times.isdecimal():
        return last * (min(int(times), 1000) - 1)
    return math.inf if last else REPEAT_BITS
