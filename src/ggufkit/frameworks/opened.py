"""Accept a model in the forms that a user has it: opened, or as a path."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from ggufkit.errors import ValueTypeError
from ggufkit.models.model import Model
from ggufkit.models.open import open as open_model
from ggufkit.system.descriptors import AnyPath


@contextlib.contextmanager
def opened(model: Model | AnyPath) -> Iterator[Model]:
    """Provide `model`, opened if it is a path, and then closed again."""
    if isinstance(model, Model):
        yield model
        return
    if not isinstance(model, str | bytes | os.PathLike):
        raise ValueTypeError(
            f"`model` is a {type(model).__name__}",
            remedy="Pass a path, or a Model as `ggufkit.open` returns it",
        )
    with open_model(model) as own:
        yield own
