"""What shells are offered to complete a word, and how Bash completes words with colons."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final

from click.shell_completion import (
    BashComplete,
    ShellComplete,
    add_completion_class,
    get_completion_class,
)

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    _Item = CompletionItem[Any]

OTHERS: Final = ("zsh", "fish", "powershell")  # older versions of click lack the last
# No shell acts on these characters, and click's scripts pass them on as they are. A stranger's file
# holds the names of keys, and shells put them into the command line as they come.
_HARMLESS: Final = re.compile(r"(?!=)[\w./:@+=,-]+")


class _Guarded(ShellComplete):
    """Offers only words on which no shell acts; shells complete and quote names of files."""

    def get_completions(self, args: list[str], incomplete: str) -> list[_Item]:
        """Return the words that can be offered."""
        found = super().get_completions(args, incomplete)
        return [item for item in found if item.type != "plain" or is_harmless(item.value)]


class Bash(_Guarded, BashComplete):
    """Bash takes a word such as "ollama:llama3.2" apart at its colons, and wants the last part."""

    _cut = 0

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the cursor, and the one at it, put together again."""
        at = int(os.environ["COMP_CWORD"])
        pieces = os.environ["COMP_WORDS"].split("\n")[: at + 1]
        words: list[str] = []
        for before, piece in zip(["", *pieces], pieces, strict=False):
            belongs = words and ":" in (piece, before)
            words[-1:] = [words[-1] + piece] if belongs else [*words[-1:], piece]
        self._cut = words[-1].rfind(":") + 1
        return words[1:-1], words[-1]

    def format_completion(self, item: _Item) -> str:
        """Return what replaces the part that Bash completes."""
        return f"{item.type},{str(item.value)[self._cut :]}"


def is_harmless(word: object) -> bool:
    """Whether no shell acts on any character of a word."""
    return isinstance(word, str) and bool(_HARMLESS.fullmatch(word))


def register() -> None:
    """Have click ask these where a shell asks."""
    add_completion_class(Bash)
    for name in OTHERS:
        if found := get_completion_class(name):
            add_completion_class(type(found.__name__, (_Guarded, found), {}))
