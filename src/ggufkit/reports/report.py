"""The public function that writes a report."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from ggufkit.errors import FormatError, OutputError
from ggufkit.models.any_model import AnyModel, Opener
from ggufkit.models.elsewhere import is_elsewhere
from ggufkit.models.model import Model
from ggufkit.reports.contents import Contents, gather
from ggufkit.reports.markdown import markdown
from ggufkit.reports.page import page
from ggufkit.system.descriptors import AnyPath, as_path, write_at
from ggufkit.system.readers_limit import ReadersLimit
from ggufkit.system.staging import staged
from ggufkit.system.threads import Progress
from ggufkit.view.shown_model import ShownModel

_FORMATS: Final[dict[str, Callable[[Contents], bytes]]] = {
    ".html": page,
    ".htm": page,
    ".md": markdown,
}


def report(  # noqa: PLR0913 (options of one verb)
    model: AnyModel,
    path: AnyPath,
    *,
    others: AnyModel | Iterable[AnyModel] = (),
    evaluation: AnyPath | None = None,
    data: bool = True,
    clobber: bool = True,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Write what there is to know about a model to `path`, a .html or .md file; return the path.

    `others` are compared with the model: metadata, types and, with `data`, the error of each
    tensor. `evaluation` is a file that `ggufkit eval --json` printed, for a chart of quality
    against size. An HTML report opens offline and contains no script. `progress(done, total)`
    counts the bytes of compared tensors.

    Raises OutputError for another ending, for a path that is an input and, without `clobber`, for a
    file that exists; FormatError for an evaluation that is none; and what `open` raises.
    """
    target = as_path(path)
    sources = [model, *_several(others)]
    with Opener() as opener:
        models = opener.open_all(sources, "others")
        if any(file.same_file(target) for found in models for file in found.inputs) or (
            evaluation is not None and target.exists() and target.samefile(as_path(evaluation))
        ):
            raise OutputError(f"{target} is also an input", remedy="Write to another name")
        write = _writer(target)
        first, *rest = map(_shown, sources, models)
        contents = gather(
            first,
            rest,
            data=data,
            evaluation=None if evaluation is None else as_path(evaluation),
            threads=threads,
            progress=progress,
        )
        for source, found in zip(sources, models, strict=True):
            _require_same_files(source, found)
        limit = ReadersLimit.all_of(found.readers_limit for found in models)
        text = write(contents)
        staged(
            target,
            lambda stage: write_at(stage.descriptor, text, 0),
            limit=limit,
            clobber=clobber,
        )
    return target


def _require_same_files(source: AnyModel, model: Model) -> None:
    """Refuse a model whose files were replaced: `check` reads them by name, all else as opened."""
    if isinstance(source, Model) or is_elsewhere(os.fsdecode(source)):
        return
    for each in model.files:
        if not any(file.same_file(each.path) for file in model.inputs):
            raise FormatError(
                "the file was replaced while it was in use",
                remedy="Run again, and do not change the input while it runs",
                path=str(each.path),
            )


def _writer(target: Path) -> Callable[[Contents], bytes]:
    """Return what writes the format that the ending of a path names."""
    write = _FORMATS.get(target.suffix.lower())
    if write is None:
        raise OutputError(f"{target} has an ending that no report has", remedy="Use .html or .md")
    return write


def _several(others: AnyModel | Iterable[AnyModel]) -> list[AnyModel]:
    """Return the other models; a single one need not be in a list."""
    if isinstance(others, Model | str | bytes | os.PathLike):
        return [others]
    return list(others)


def _shown(source: AnyModel, model: Model) -> ShownModel:
    """Return a model with the name by which the user called it."""
    if isinstance(source, Model):
        return ShownModel(str(model.path) if model.files else "model in memory", model)
    return ShownModel(os.fsdecode(source), model)
