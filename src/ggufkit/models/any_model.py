"""One way in: every function that takes a model also takes what `open` takes.

Functions that are done when they return close what they opened. Functions that return a lazy model
hand over the files: closing the result closes them.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Concatenate, Final, ParamSpec, TypeAlias, TypeVar, cast

from ggufkit.errors import FormatError, ValueTypeError, brief
from ggufkit.format.arguments import refusal
from ggufkit.models.model import Model
from ggufkit.models.open import open as open_model
from ggufkit.models.rows import AnyFile
from ggufkit.remote.memory_file import Content, SeekableFile
from ggufkit.system.descriptors import AnyPath

AnyModel: TypeAlias = "Model | AnyPath | Content"
Opening: TypeAlias = "Callable[[AnyModel, str], Model]"
_OPENABLE: Final = (str, bytes, bytearray, memoryview, os.PathLike, SeekableFile)
Options = ParamSpec("Options")
Returned = TypeVar("Returned")
# What is computed from a model, by general.type, which is also the option that takes it.
_COMPUTED: Final = {"imatrix": "an importance matrix", "hessian": "a Hessian"}


def as_model(model: AnyModel, argument: str = "model") -> Model:
    """Return a model itself, or open what `open` takes; ValueTypeError (a TypeError) if not."""
    if isinstance(model, Model):
        return model
    if isinstance(model, _OPENABLE):
        return open_model(model)
    raise ValueTypeError(
        f"`{argument}` is {brief(model)}, which is neither a model nor a path nor a file object",
        remedy="Pass a Model or the path of a file; `ggufkit.model(tensors)` makes one of arrays",
    )


def require_weights(model: Model) -> None:
    """Raise FormatError for a file that was computed from a model and has no weights of its own."""
    general_type = model.metadata.get("general.type")
    if isinstance(general_type, str) and general_type in _COMPUTED:
        kind = _COMPUTED[general_type]
        raise FormatError(
            f"this file is {kind}, not a model",
            remedy=f"Name the model; {kind} is for `ggufkit quantize --{general_type}`",
            path=str(model.path or ""),
        )


@contextlib.contextmanager
def opened(model: AnyModel, argument: str = "model") -> Iterator[Model]:
    """Provide a model; close it at the end if it was opened here."""
    opened_model = as_model(model, argument)
    try:
        yield opened_model
    finally:
        if opened_model is not model:
            opened_model.close()


class Opener(contextlib.ExitStack):
    """Opens the models of a call; closes them at the end, unless a result takes them over."""

    def __init__(self) -> None:
        super().__init__()
        self._files: tuple[AnyFile, ...] = ()

    def open(self, model: AnyModel, argument: str = "model", opening: Opening = as_model) -> Model:
        """Return a model itself, or the one at a path, as `opening` reads it."""
        opened_model = opening(model, argument)
        if opened_model is not model:
            self.callback(opened_model.close)
            self._files += opened_model.inputs
        return opened_model

    def open_all(
        self,
        models: AnyModel | Iterable[AnyModel],
        argument: str,
        opening: Opening = as_model,
    ) -> tuple[Model, ...]:
        """Return one or several models; a single path is one model."""
        if isinstance(models, (Model, *_OPENABLE)):
            return (self.open(models, argument, opening),)
        if not isinstance(models, Iterable):
            raise refusal(argument, models, "a model, a path, or several of them")
        return tuple(self.open(model, argument, opening) for model in models)

    def hand_over(self, result: Model) -> Model:
        """Return a model that needs the files from now on: closing it closes them."""
        self.pop_all()
        return result.owning(self._files)


def takes_model(
    function: Callable[Concatenate[Model, Options], Returned],
) -> Callable[Concatenate[AnyModel, Options], Returned]:
    """Let a function of a model also take a path; the file is closed when it returns."""

    @functools.wraps(function)
    def taking(model: AnyModel, *args: Options.args, **options: Options.kwargs) -> Returned:
        with opened(model) as opened_model:
            return function(opened_model, *args, **options)

    return cast("Callable[Concatenate[AnyModel, Options], Returned]", taking)


def derives_model(
    function: Callable[Concatenate[Model, Options], Model],
) -> Callable[Concatenate[AnyModel, Options], Model]:
    """Let a function that derives a model also take a path; the result owns the file."""

    @functools.wraps(function)
    def taking(model: AnyModel, *args: Options.args, **options: Options.kwargs) -> Model:
        with Opener() as opener:
            return opener.hand_over(function(opener.open(model), *args, **options))

    return cast("Callable[Concatenate[AnyModel, Options], Model]", taking)
