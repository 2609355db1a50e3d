"""Parses the names of models on the command line, and opens models of every kind."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

import ggufkit
from ggufkit.cli.options import will_read
from ggufkit.cli.output import note
from ggufkit.cli.pipes import incoming
from ggufkit.errors import GGUFError
from ggufkit.format.header import HEADER_CUT
from ggufkit.models.caches import SOURCES
from ggufkit.models.model import Model

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    _Name = click.ParamType[str]
else:
    _Name = click.ParamType


class ModelName(_Name):
    """The name of a model: a file, a folder, one in a cache, or - for standard input.

    With `foreign`, other files are allowed too, such as importance matrices. Without `reads_pipes`,
    the command reads them itself, once its options are known.
    """

    name = "model"

    def __init__(self, *, foreign: bool = False, reads_pipes: bool = True) -> None:
        """Set which files are allowed."""
        self.foreign = foreign
        self.reads_pipes = reads_pipes

    def get_metavar(self, *_: Any, **__: Any) -> str | None:
        """Return what stands for other files in the help of an option."""
        return "FILE" if self.foreign else None

    def convert(
        self,
        value: str,
        param: click.Parameter | None,  # noqa: ARG002 (click's signature)
        ctx: click.Context | None,
    ) -> str:
        """Return the path to open: `value` unless it is a pipe."""
        if not self.reads_pipes or (ctx and ctx.resilient_parsing):  # a shell completes a line
            return value
        if ctx is not None and self.foreign:
            will_read(value)
        return incoming(value, foreign=self.foreign)

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """Offer files, or the names of cached models after the name of a cache."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415 (only shells ask)

        files = CompletionItem(incomplete, type="file")
        if incomplete.partition(":")[0] not in SOURCES:
            return [files]
        names = (model.name for model in ggufkit.find_models(incomplete))
        fits = (name for name in names if name.startswith(incomplete))
        return [CompletionItem(name) for name in fits]


Completion = Callable[..., list[str]]


def _completion(part: str, end: str = "") -> Completion:
    """Return a completion: the names of keys or tensors of the model on the line, plus `end`."""

    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        files = (ctx.params.get("file"), *(ctx.params.get("files") or ()), *ctx.args)
        candidates = (str(file) for file in files if file)  # click leaves it in one of these
        file = next(candidates, "") or _model_nearby()
        with contextlib.suppress(GGUFError, OSError), ggufkit.open(file) as model:
            return [f"{name}{end}" for name in getattr(model, part) if name.startswith(incomplete)]
        return []

    return complete


def _model_nearby() -> str:
    """Return the model that the line names after the cursor, or else one in the current folder."""
    from ggufkit.cli.completion import words_after_cursor  # noqa: PLC0415 (only shells ask)
    from ggufkit.models.open import first_files  # noqa: PLC0415 (only shells ask)

    words = (word for word in words_after_cursor() if Path(word).is_file())
    return next(words, "") or str(next(iter(first_files(Path()).values()), ""))


complete_key: Completion = _completion("metadata")
complete_tensor: Completion = _completion("tensors")
complete_setting: Completion = _completion("metadata", "=")


MODEL: Final = ModelName()
FILE: Final = ModelName(foreign=True)


def is_checkpoint(path: str) -> bool:
    """Whether `path` is a Hugging Face checkpoint without a GGUF file, or an image model's file."""
    place = Path(path)
    if place.is_file() and place.suffix.lower() in (".gguf", ".bin"):  # .bin: from before GGUF
        return False
    from ggufkit.conversion.diffusion import checkpoint_files  # noqa: PLC0415 (16 modules)

    configs = ("config.json", checkpoint_files.INDEX)
    is_folder = any((place / name).is_file() for name in configs) and not any(place.glob("*.gguf"))
    return is_folder or (place.is_file() and place.suffix.lower() in checkpoint_files.TENSOR_FILES)


def open_any(path: str) -> Model:
    """Open a GGUF model, or convert a checkpoint lazily and print its notes."""
    return ggufkit.convert(path, say=note) if is_checkpoint(path) else ggufkit.open(path)


def look_at(path: str, *, partial: bool = False) -> Model:
    """Open a model or checkpoint for its header alone; print a note for what is missing.

    Raises FormatError for a file that ends inside its header, unless `partial`.
    """
    if is_checkpoint(path):
        return open_any(path)
    model = ggufkit.open(path, partial=True)
    for finding in model.missing:
        if finding.rule in HEADER_CUT and not partial:
            model.close()
            raise finding.exception()
        note(f"{finding.path}: {finding.message}" + ("" if partial else f". {finding.remedy}"))
    return model
