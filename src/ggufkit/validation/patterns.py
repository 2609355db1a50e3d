r"""Regular expressions of users and files, without those that `re` may never finish.

`re` tries one way after another, so `(\w|.)+!` does not end on thirty letters. Expressions from
files that have many ways to match one text are refused: a repeated group with repetitions or
alternatives in it, and more than a few unlimited repetitions.
"""

from __future__ import annotations

import re
from typing import Final

from ggufkit.errors import ValueTypeError, brief

MOST_UNLIMITED: Final = 5  # repetitions in one pattern: on a name of 64 letters a tenth of a second
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
    unlimited, varies = 0, [False]  # for each open group: whether it can match in several ways
    last_varies = False  # the same for the item before
    for token in _TOKEN.finditer(text):
        if token["repeat"]:
            is_optional = token["repeat"] == "?"
            if last_varies and not is_optional:
                raise _refused(text, "it repeats a group that holds repetitions or alternatives")
            unlimited += not is_optional and (token["repeat"] in "*+" or ",}" in token["repeat"])
            varies[-1] = last_varies = True
        elif token[0] == "|":
            varies[-1] = True
        elif token[0].startswith("(") and not token[0].endswith(")"):
            varies.append(False)
        elif token[0] == ")" and len(varies) > 1:
            last_varies = varies.pop()
            varies[-1] |= last_varies
        else:
            last_varies = False
    if unlimited > MOST_UNLIMITED:
        raise _refused(text, f"it has {unlimited} unlimited repetitions")
    return pattern


def _refused(text: str, reason: str) -> ValueTypeError:
    return ValueTypeError(
        f"{brief(text)} could take forever: {reason}",
        remedy=f"Use character sets such as [a-z_]+, and at most {MOST_UNLIMITED} of * and +",
    )
