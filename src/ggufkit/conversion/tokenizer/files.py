"""Reads the tokenizer files of a checkpoint, each once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from ggufkit.conversion.checkpoint.folder import Checkpoint
from ggufkit.conversion.tokenizer.sentencepiece_model import PieceModel, parse_pieces
from ggufkit.errors import CheckpointError
from ggufkit.system.threads import Say

MAX_ROWS: Final = 1 << 21  # eight times the largest vocabulary; each row takes some 250 bytes


@dataclass(frozen=True)
class TokenizerFiles:
    """The tokenizer files of a checkpoint; `say` is called with each note for the user.

    `names_template` is whether the name of a template that llama.cpp has built in may stand for a
    missing one.
    """

    checkpoint: Checkpoint
    say: Say
    asked_rows: int | None = None
    asked_pre: str | None = None
    architecture: str = ""
    names_template: bool = True

    @cached_property
    def tokenizer(self) -> dict[str, Any] | None:
        """The content of tokenizer.json."""
        return self.checkpoint.json("tokenizer.json")

    @cached_property
    def settings(self) -> dict[str, Any] | None:
        """The content of tokenizer_config.json."""
        return self.checkpoint.json("tokenizer_config.json")

    @cached_property
    def added(self) -> dict[str, int]:
        """The content of added_tokens.json: ids by text."""
        return self.checkpoint.json("added_tokens.json") or {}

    @property
    def config(self) -> dict[str, Any]:
        """The content of config.json."""
        return self.checkpoint.config

    def rows(self, otherwise: int) -> int:
        """Return the rows of the embeddings: as requested, by config.json, or `otherwise`."""
        rows = self.asked_rows
        if rows is None:
            rows = self.of_model("vocab_size") or otherwise
        if not isinstance(rows, int) or not 0 < rows <= MAX_ROWS:
            raise CheckpointError(f"a vocabulary of {rows} tokens is not possible")
        return rows

    def of_model(self, key: str) -> Any:  # noqa: ANN401 (as JSON is)
        """Return a field of config.json, or of its `text_config` if missing."""
        inner = self.config.get("text_config")
        found = self.config.get(key)
        return inner.get(key) if found is None and isinstance(inner, dict) else found

    def has(self, name: str) -> bool:
        """Whether the checkpoint has a file `name`."""
        return self.checkpoint.path(name) is not None

    def pieces(self, *names: str) -> PieceModel:
        """Return the SentencePiece model of the first existing file among `names`."""
        for name in names:
            content = self.checkpoint.content(name)
            if content is not None:
                return parse_pieces(content, name)
        raise CheckpointError(
            f"{self.checkpoint.folder} has no {' or '.join(names)}",
            remedy="This kind of tokenizer needs the SentencePiece model",
        )
