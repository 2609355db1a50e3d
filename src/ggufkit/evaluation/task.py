"""The arguments of an evaluation, and checks that they make sense."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ggufkit.errors import OutputError, ValueTypeError
from ggufkit.evaluation.base_file import LEAST_CONTEXT
from ggufkit.format.values import Strings
from ggufkit.models.any_model import require_weights
from ggufkit.models.open import open as open_model
from ggufkit.system.staging import exists_already

VOCABULARY: Final = "tokenizer.ggml.tokens"


@dataclass(frozen=True)
class EvaluationTask:
    """The arguments of `evaluate`."""

    paths: tuple[Path, ...]
    text: Path | None
    base: Path | None
    base_logits: Path | None
    context: int | None
    chunks: int | None
    micro_batch: int
    threads: int
    resume: bool
    clobber: bool

    @property
    def all_paths(self) -> tuple[Path, ...]:
        """The models in the order of their reading."""
        return self.paths if self.base is None else (self.base, *self.paths)


def require_sensible(task: EvaluationTask) -> None:
    """Raise a GGUFError for arguments or models that do not go together."""
    if not task.paths and (task.base is None or task.base_logits is None):
        raise ValueTypeError("no model is named", remedy="Name the models to measure")
    if task.text is None and (task.base is not None or task.base_logits is None):
        raise ValueTypeError("no text is named", remedy="Name a file of text to read (text=...)")
    if task.context is not None and task.context < LEAST_CONTEXT:
        raise ValueTypeError(
            f"a chunk of {task.context} tokens is too short",
            remedy=f"Use at least {LEAST_CONTEXT}; 512 is usual",
        )
    if task.resume and task.base is not None and task.base_logits is None:
        raise ValueTypeError(
            "to resume, the base needs a file that stays",
            remedy="Name the file to write (base_logits=...)",
        )
    if len(set(task.all_paths)) < len(task.all_paths):
        raise ValueTypeError("a model is named twice", remedy="Name each model once")
    _require_other_output(task)
    # Before hours of work; `open` also refuses what llama.cpp would abort on.
    vocabularies: dict[Path, object] = {}
    for path in task.all_paths:
        with open_model(path) as model:
            require_weights(model)
            vocabulary = model.metadata.get(VOCABULARY)
            vocabularies[path] = list(vocabulary) if isinstance(vocabulary, Strings) else vocabulary
    first = task.all_paths[0]
    for path, tokens in vocabularies.items():
        if tokens != vocabularies[first]:
            raise ValueTypeError(
                f"{path} has another vocabulary than {first}",
                remedy="Compare models with the same tokenizer",
            )


def nbytes_of(path: Path) -> int:
    """Return the size of all files of a model."""
    with open_model(path) as model:
        return sum(file.nbytes for file in model.files)


def _require_other_output(task: EvaluationTask) -> None:
    out = task.base_logits
    if task.base is None or out is None or not out.exists():
        return
    inputs = (*task.all_paths, *((task.text,) if task.text else ()))
    if any(path.exists() and out.samefile(path) for path in inputs):
        raise OutputError(f"{out} is also an input", remedy="Write to another name")
    if not task.clobber and not task.resume:  # a resumed run may find its finished base there
        raise exists_already(out)
