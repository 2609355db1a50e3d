"""Reads the tokenizer files of a checkpoint, each once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from ggufkit.conversion.checkpoint.folder import Checkpoint, published_text_config
from ggufkit.conversion.tokenizer.sentencepiece_model import PieceModel, parse_pieces
from ggufkit.errors import CheckpointError
from ggufkit.system.threads import Notify

MAX_ROWS: Final = 1 << 21  # eight times the largest vocabulary; each row takes some 250 bytes


@dataclass(frozen=True)
class TokenizerFiles:
    """The tokenizer files of a checkpoint; `say` is called with each note for the user.

    With `names_template`, a missing template may be the name of one that is built into llama.cpp.
    """

    checkpoint: Checkpoint
    say: Notify
    asked_rows: int | None = None
    asked_pre: str | None = None
    architecture: str = ""
    names_template: bool = True

    @cached_property
    def tokenizer(self) -> dict[str, Any]:
        """The content of tokenizer.json, empty if missing."""
        return self.checkpoint.json("tokenizer.json") or {}

    @property
    def model(self) -> dict[str, Any]:
        """The model in tokenizer.json: its type, vocabulary and merges."""
        return self.tokenizer.get("model") or {}

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The content of tokenizer_config.json, empty if missing."""
        return self.checkpoint.json("tokenizer_config.json") or {}

    @property
    def described(self) -> dict[str, Any]:
        """The added tokens that tokenizer_config.json describes, by id."""
        return self.settings.get("added_tokens_decoder") or {}

    @cached_property
    def added(self) -> dict[str, int]:
        """The content of added_tokens.json: ids by text."""
        return self.checkpoint.json("added_tokens.json") or {}

    def rows(self, otherwise: int) -> int:
        """Return the rows of the embeddings: as requested, by config.json, or `otherwise`."""
        requested = self.asked_rows
        rows = (self.of_model("vocab_size") or otherwise) if requested is None else requested
        if not isinstance(rows, int) or not 0 < rows <= MAX_ROWS:
            raise CheckpointError(f"a vocabulary of {rows} tokens is not possible")
        return rows

    def rows_for(self, count: int, what: str, otherwise: int | None = None) -> int:
        """Return the rows of the embeddings; CheckpointError if `what` has more tokens."""
        rows = self.rows(count if otherwise is None else otherwise)
        if count > rows:
            raise CheckpointError(
                f"{what} has ids up to {count - 1}, the embeddings {rows} rows",
                remedy="Check that vocab_size and the tokenizer belong to the same checkpoint",
            )
        return rows

    def of_model(self, key: str) -> Any:  # noqa: ANN401 (as JSON is)
        """Return a field of config.json, or of its `text_config` (no other name) if missing."""
        config = self.checkpoint.config
        inner = published_text_config(config)
        value = config.get(key)
        return inner.get(key) if value is None and isinstance(inner, dict) else value

    def text(self, name: str) -> str:
        """Return the text of a file; CheckpointError if it is missing."""
        text = self.checkpoint.text(name)
        if text is None:
            raise CheckpointError(
                f"{self.checkpoint.folder} has no {name}",
                remedy="This kind of tokenizer needs it: download it with the checkpoint",
            )
        return text

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
