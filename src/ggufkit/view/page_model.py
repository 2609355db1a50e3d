"""A model on the page, with what is computed once and kept: names, tokens, answers."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ggufkit.errors import CheckpointError, MissingKeyError
from ggufkit.evaluation.quality_rows import QualityRow
from ggufkit.format.values import Strings
from ggufkit.models.model import Model, Tensor
from ggufkit.system.sandbox import Servant, StoppedError

if TYPE_CHECKING:
    from ggufkit.frameworks.tokenize import TokenPieces

TOKENS: Final = "tokenizer.ggml.tokens"
MERGES: Final = "tokenizer.ggml.merges"
MAX_SECONDS: Final = 20  # by the clock, for one text; the first one also builds the tokenizer
MAX_MEMORY: Final = 2 << 30  # bytes; 260,000 tokens take a quarter


@dataclass
class PageModel:
    """An open model and the name by which the user called it.

    Keys and tensors have numbers, in file order: names in a file may be too long for a URL.
    """

    name: str
    model: Model
    quality: dict[str, Any] | None = None  # what `eval` measured, and in which file that stands
    lock: threading.RLock = field(default_factory=threading.RLock)
    resources: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _documents: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)

    def prepare(self) -> None:
        """Make what all views need, before the first request."""
        _ = self.nbytes, self.tensor_rows

    @cached_property
    def nbytes(self) -> int:
        """The bytes of all tensors, counted once: a file may have a million."""
        return sum(tensor.nbytes for _, tensor in self.tensor_rows)

    @cached_property
    def nbytes_on_disk(self) -> int:
        """The bytes of all files; those of the tensors for a model that has none."""
        return sum(file.nbytes for file in self.model.files) or self.nbytes

    def set_quality(self, rows: Iterable[QualityRow], file: str) -> None:
        """Keep what a result of `eval` says of the model: of one with its name and its size."""
        names = {Path(self.name).name, *(file.path.name for file in self.model.files)}
        for row in rows:
            if row.name in names and row.nbytes == self.nbytes_on_disk and self.quality is None:
                self.quality = vars(row) | {"file": file}

    @cached_property
    def keys(self) -> list[str]:
        """The metadata keys by number."""
        return list(self.model.metadata)

    @cached_property
    def tensor_names(self) -> list[str]:
        """The names of the tensors by number."""
        return list(self.model.tensors)

    @cached_property
    def number_of(self) -> dict[str, int]:
        """The number of each tensor by its name."""
        return {name: number for number, name in enumerate(self.tensor_names)}

    @cached_property
    def tensor_rows(self) -> list[tuple[int, Tensor]]:
        """Every tensor with its number."""
        return list(enumerate(self.model.tensors.values()))

    def tensor(self, number: int) -> Tensor:
        """Return a tensor by its number; MissingKeyError for a number that is too large."""
        return self.model.tensors[_name_at(self.tensor_names, number, "tensor")]

    def key(self, number: int) -> str:
        """Return a key by its number; MissingKeyError for a number that is too large."""
        return _name_at(self.keys, number, "metadata key")

    @cached_property
    def tokens(self) -> list[str]:
        """The texts of all tokens, empty without a vocabulary."""
        return self._texts(TOKENS)

    @cached_property
    def merges(self) -> list[str]:
        """The merges of the tokenizer, empty if it has none."""
        return self._texts(MERGES)

    def _texts(self, key: str) -> list[str]:
        value = self.model.metadata.get(key)
        return value.tolist() if isinstance(value, Strings) else []

    def cached(self, key: tuple[str, int], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return a document made before, or make it now; others are not kept waiting."""
        with self.lock:
            if key in self._documents:
                return self._documents[key]
        document = make()
        with self.lock:
            return self._documents.setdefault(key, document)

    def ask_vocabulary(self, job: dict[str, Any]) -> dict[str, Any]:
        """Return what `vocabulary_process` answers to a job; raises what it says as GGUFError."""
        with self.lock:
            servant, path = self._vocabulary
        try:
            answer: dict[str, Any] = servant.answer_of(job | {"vocabulary": path}, MAX_SECONDS)
        except StoppedError as error:
            raise CheckpointError(
                f"work on the vocabulary was stopped: {error}",
                remedy="`ggufkit check` lists what is wrong with a vocabulary",
            ) from error
        if "error" in answer:
            raise CheckpointError(answer["error"], remedy=answer["remedy"])
        return answer

    @cached_property
    def _vocabulary(self) -> tuple[Servant, str]:
        """The process for the vocabulary, and the file that it reads: without tensors."""
        folder = Path(tempfile.mkdtemp(prefix="ggufkit-"))
        servant = Servant("ggufkit.view.vocabulary_process", MAX_MEMORY)
        self.resources.callback(shutil.rmtree, folder, ignore_errors=True)
        self.resources.callback(servant.stop)
        weakref.finalize(self, self.resources.close)
        unread_keys = [key for key in self.keys if not key.startswith(("tokenizer.", "general."))]
        metadata = self.model.metadata.without(*unread_keys)
        self.model.replace(metadata=metadata, tensors=[]).write(folder / "vocabulary.gguf")
        return servant, str(folder / "vocabulary.gguf")

    def piece(self, number: int) -> bytes:
        """Return the bytes that a token stands for, or its text where ggufkit cannot decode it."""
        with self.lock, contextlib.suppress(CheckpointError):
            return self._pieces.piece(number)
        return self.tokens[number].encode("utf-8", "surrogateescape")

    @cached_property
    def _pieces(self) -> TokenPieces:
        from ggufkit.conversion.tokenizer.keys import VocabularyKeys  # noqa: PLC0415 (the first view has none)
        from ggufkit.frameworks.tokenize import TokenPieces  # noqa: PLC0415 (the first view has none)

        return TokenPieces(VocabularyKeys(self.model.metadata))


def _name_at(names: list[str], number: int, what: str) -> str:
    if not 0 <= number < len(names):
        raise MissingKeyError(
            f"the model has no {what} number {number}", remedy="Open the page again"
        )
    return names[number]
