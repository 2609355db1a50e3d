"""Measure how well models predict a text, and how far they are from a base."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ggufkit.errors import OutputError, ValueTypeError
from ggufkit.evaluation.base_file import LEAST_CONTEXT
from ggufkit.evaluation.passes import EvaluationTask, Passes
from ggufkit.evaluation.scores import Scores, counted
from ggufkit.evaluation.statistics import (
    Comparison,
    Divergence,
    Measurement,
    comparisons,
    divergence,
    perplexity,
    perplexity_with_base,
)
from ggufkit.format.values import Strings
from ggufkit.llama_cpp.session import MICRO_BATCH
from ggufkit.models.any_model import require_weights
from ggufkit.models.open import open as open_model
from ggufkit.system.cpu import worker_count
from ggufkit.system.descriptors import AnyPath, as_path
from ggufkit.system.staging import exists_already
from ggufkit.system.threads import Progress

VOCABULARY: Final = "tokenizer.ggml.tokens"


@dataclass(frozen=True)
class Quality:
    """How well one model predicts the text; `scores` has the figures of each position."""

    name: str
    nbytes: int
    perplexity: Measurement
    divergence: Divergence | None
    scores: Scores = field(repr=False, compare=False)


@dataclass(frozen=True)
class Evaluation:
    """The quality of models on one text.

    `positions` is the number of tokens that were predicted. `base` is None unless its model was
    read in this run.
    """

    context: int
    chunks: int
    positions: int
    base: Quality | None
    models: tuple[Quality, ...]
    comparisons: tuple[Comparison, ...]


def evaluate(  # noqa: PLR0913 (the options of llama-perplexity)
    models: AnyPath | Sequence[AnyPath],
    text: AnyPath | None = None,
    *,
    base: AnyPath | None = None,
    base_logits: AnyPath | None = None,
    context: int | None = None,
    chunks: int | None = None,
    micro_batch: int = MICRO_BATCH,
    threads: int | None = None,
    resume: bool = False,
    clobber: bool = True,
    progress: Progress | None = None,
) -> Evaluation:
    """Measure the perplexity of `models` on the file `text`, and their divergence from a base.

    The text is cut into chunks of `context` tokens (512); at most `chunks` are read. The
    base is the model `base`, or the file `base_logits` of llama-perplexity, which also has the
    text's tokens. With both, `base_logits` is written. All figures equal llama-perplexity's
    on the same chunks. `resume` keeps what is done if the run stops, and continues from what is
    kept. Without `clobber` no base file is replaced. `progress(done, total)` counts chunks.

    Raises MissingExtraError without the extra `llama`, GGUFError with llama.cpp's message where it
    fails, ValueTypeError for a text that is too short or models that do not fit together,
    FormatError for a damaged base file, and OutputError for one that may not be replaced.
    """
    model_paths = (models,) if isinstance(models, (str, bytes, os.PathLike)) else tuple(models)
    task = EvaluationTask(
        paths=tuple(as_path(name) for name in model_paths),
        text=None if text is None else as_path(text),
        base=None if base is None else as_path(base),
        base_logits=None if base_logits is None else as_path(base_logits),
        context=context,
        chunks=chunks,
        micro_batch=micro_batch,
        threads=worker_count(threads),
        resume=resume,
        clobber=clobber,
    )
    _require_sensible(task)
    with Passes(task, progress) as passes:
        base_scores = passes.read_base()
        scores = {str(path): passes.read(path) for path in task.paths}
        passes.finish()
    return _evaluation(task, passes, base_scores, scores)


def _evaluation(
    task: EvaluationTask, passes: Passes, base_scores: Scores | None, scores: dict[str, Scores]
) -> Evaluation:
    chunks, context = passes.tokens.shape
    with_base = passes.base is not None
    base = None
    if task.base is not None and base_scores is not None:
        value = perplexity(base_scores)
        base = Quality(str(task.base), _nbytes_of(task.base), value, None, base_scores)
    return Evaluation(
        context=context,
        chunks=chunks,
        positions=chunks * counted(context),
        base=base,
        models=tuple(_quality(path, scores[str(path)], with_base=with_base) for path in task.paths),
        comparisons=comparisons(scores, with_base=with_base),
    )


def _quality(path: Path, scores: Scores, *, with_base: bool) -> Quality:
    value = perplexity_with_base(scores) if with_base else perplexity(scores)
    distance = divergence(scores) if with_base else None
    return Quality(str(path), _nbytes_of(path), value, distance, scores)


def _nbytes_of(path: Path) -> int:
    with open_model(path) as model:
        return sum(file.nbytes for file in model.files)


def _require_sensible(task: EvaluationTask) -> None:
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


def _require_other_output(task: EvaluationTask) -> None:
    out = task.base_logits
    if task.base is None or out is None or not out.exists():
        return
    inputs = (*task.all_paths, *((task.text,) if task.text else ()))
    if any(path.exists() and out.samefile(path) for path in inputs):
        raise OutputError(f"{out} is also an input", remedy="Write to another name")
    if not task.clobber and not task.resume:  # a resumed run may find its finished base there
        raise exists_already(out)
