"""How Bash completes words with colons, such as the names of cached models."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from click.shell_completion import BashComplete, add_completion_class

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    _Item = CompletionItem[Any]


class Bash(BashComplete):
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


def register() -> None:
    """Have click ask these where a shell asks."""
    add_completion_class(Bash)
