"""Completes words for shells, and words with colons for Bash."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final

from click.shell_completion import (
    BashComplete,
    ShellComplete,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    _Item = CompletionItem[Any]

OTHERS: Final = ("zsh", "fish", "powershell")  # older versions of click lack the last
# No shell interprets these characters, and click's scripts pass them unchanged. Keys may come from
# an untrusted file, and shells insert them into the command line without quotes.
_HARMLESS: Final = re.compile(r"(?!=)[\w./:@+=,-]+")


class _Guarded(ShellComplete):
    """Offers only words that no shell interprets; shells complete and quote file names."""

    def get_completions(self, args: list[str], incomplete: str) -> list[_Item]:
        """Return the words that can be offered."""
        items = super().get_completions(args, incomplete)
        return [item for item in items if item.type != "plain" or is_harmless(item.value)]


class Bash(_Guarded, BashComplete):
    """Completes for Bash, which splits "ollama:llama3.2" at colons and replaces the last part."""

    _cut = 0

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the cursor, and the one at it, with split words joined."""
        word_index = int(os.environ["COMP_CWORD"])
        pieces = os.environ["COMP_WORDS"].split("\n")[: word_index + 1]
        words: list[str] = []
        for before, piece in zip(["", *pieces], pieces, strict=False):
            belongs = words and ":" in (piece, before)
            words[-1:] = [words[-1] + piece] if belongs else [*words[-1:], piece]
        self._cut = words[-1].rfind(":") + 1
        return words[1:-1], words[-1]

    def format_completion(self, item: _Item) -> str:
        """Return the text that replaces the last part of the word."""
        return f"{item.type},{str(item.value)[self._cut :]}"


def words_after_cursor() -> list[str]:
    """Return the words of the line after the one that is completed; fish does not say them."""
    number = os.environ.get("COMP_CWORD", "")
    if not number.isdecimal():
        return []
    return split_arg_string(os.environ.get("COMP_WORDS", ""))[int(number) + 1 :]


def is_harmless(word: object) -> bool:
    """Whether no shell interprets any character of a word."""
    return isinstance(word, str) and bool(_HARMLESS.fullmatch(word))


def register() -> None:
    """Make click use these classes for completion."""
    add_completion_class(Bash)
    for name in OTHERS:
        if shell := get_completion_class(name):
            add_completion_class(type(shell.__name__, (_Guarded, shell), {}))
