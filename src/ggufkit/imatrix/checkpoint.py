"""What is summed so far of a text, in hidden files, so that a stopped run can continue."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ggufkit.errors import GGUFError, OutputError
from ggufkit.format.coerce import typed
from ggufkit.format.metadata import Metadata
from ggufkit.format.values import whole_number
from ggufkit.models.model import Model, Tensor, Tensors
from ggufkit.models.open import open as open_model
from ggufkit.output.write import write
from ggufkit.system.descriptors import close
from ggufkit.system.hidden_files import RESUME, hidden, open_own

EVERY_CHUNKS: Final = 16  # what a stopped run computes again at most
KEY: Final = "checkpoint.key"
DONE: Final = "checkpoint.done"


class SumsCheckpoint(contextlib.ExitStack):
    """The sums of each pass over a text, in hidden GGUF files next to `target`; a context manager.

    `key` is a digest of all that the sums depend on. If the checkpoint `stays`, a run that raises
    or is killed leaves the files, and the next one continues. The files hold float32 as it was
    added up, so the result is the same.
    """

    def __init__(self, target: Path, key: str, *, stays: bool) -> None:
        super().__init__()
        self.stays = stays
        self._target, self._key = target, key
        self._passes: dict[int, int] = {}  # the groups that each has in its file

    def _path(self, number: int) -> Path:
        return hidden(self._target.with_name(f"{self._target.name}-{number}"), RESUME)

    def restored(self, number: int) -> tuple[Model | None, int]:
        """Return the sums of a pass and how many groups they have, (None, 0) if there are none.

        Raises ForeignFileError for a file that is not of this user.
        """
        path = self._path(number)
        if not self.stays or not path.exists():
            return None, 0
        self._passes[number] = 0
        close(open_own(path, os.O_RDONLY))
        try:
            model = self.enter_context(open_model(path))
        except GGUFError:  # a damaged file is replaced
            return None, 0
        if model.metadata.get(KEY) != self._key:
            return None, 0
        return model, whole_number(model.metadata.get(DONE)) or 0

    def save(self, number: int, tensors: Iterable[Tensor], done: int) -> None:
        """Write the sums that a pass has after `done` groups."""
        keys = {"general.type": "checkpoint", KEY: self._key, DONE: typed("uint64", done)}
        write(Model(Metadata(keys), Tensors(tensors)), self._path(number))
        self._passes[number] = done

    def stored(self, number: int) -> Model:
        """Return the sums of a pass that was saved; they are in the file, and not in memory.

        Raises OutputError if another run with the same target replaced or removed the file.
        """
        path, saved = self._path(number), None
        with contextlib.suppress(FileNotFoundError):
            model = self.enter_context(open_model(path))
            saved = model.metadata.get(KEY), whole_number(model.metadata.get(DONE))
        if saved != (self._key, self._passes[number]):
            raise OutputError(
                f"another run replaced {path}, which keeps the sums for {self._target}",
                remedy="Run one after the other, or give each run its own output",
            )
        if not self.stays:
            self.callback(path.unlink, missing_ok=True)
            with contextlib.suppress(OSError):  # the open file stays readable, but not on Windows
                path.unlink(missing_ok=True)
        return model

    def finish(self) -> None:
        """Remove all files: the result is complete."""
        self.close()
        for number in self._passes:
            self._path(number).unlink(missing_ok=True)
