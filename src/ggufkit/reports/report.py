"""Writes a report: as HTML, or as Markdown for a model card or a README."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, cast

from ggufkit.errors import FormatError, OutputError
from ggufkit.models.any_model import AnyModel, Opener
from ggufkit.models.model import Model
from ggufkit.models.remote_resolvers import is_remote
from ggufkit.remote.memory_file import SeekableFile
from ggufkit.reports import words
from ggufkit.reports.contents import Contents, gather
from ggufkit.reports.elements import printable
from ggufkit.reports.page import page
from ggufkit.system.descriptors import AnyPath, as_path
from ggufkit.system.readers_limit import ReadersLimit
from ggufkit.system.staging import write_whole
from ggufkit.system.threads import Progress
from ggufkit.view.page_model import PageModel

_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>#|~$&])")


def markdown(contents: Contents) -> bytes:
    """Return the report as Markdown in UTF-8."""
    return "\n".join(_lines(contents)).encode()


def escaped(text: str) -> str:
    """Return a text that Markdown shows as it is, in one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(printable(text).split()))


def _lines(contents: Contents) -> Iterator[str]:
    yield f"# {escaped(contents.overview['name'])}\n"
    yield from table_lines(words.FILES, words.file_rows(contents))
    yield from table_lines(words.FACTS, words.fact_rows(contents))
    yield from _findings(contents.faults)
    if contents.treemap["groups"]:
        yield "## Where the bytes are\n"
        rows = ((group["name"], str(group["tensors"]), words.megabytes(group["nbytes"]))
                for group in contents.treemap["groups"])  # fmt: skip
        yield from table_lines(("part", "tensors", "MB"), rows)
    if contents.memory:
        yield "## Memory in llama.cpp, in MB\n"
        yield from table_lines(words.MEMORY, words.memory_rows(contents.memory))
    if contents.comparisons:
        yield "## Differences\n"
    for file, comparison in zip(contents.files[1:], contents.comparisons, strict=True):
        count = comparison["changed_keys"]
        yield f"Metadata keys that differ in {escaped(file.name)}: {count:,}.\n"
    errors = words.error_rows(contents)[: words.WORST]
    if errors:
        yield f"The {len(errors)} most damaged tensors:\n"
        yield from table_lines(words.ERRORS, errors)


def table_lines(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table; all texts are escaped."""
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for row in rows:
        yield f"| {' | '.join(map(escaped, row))} |"
    yield ""


def _findings(faults: dict[str, Any]) -> Iterator[str]:
    yield "## Check\n"
    if not faults["findings"]:
        yield "`ggufkit check` finds nothing wrong.\n"
        return
    rows = ((finding["severity"], finding["rule"], f"{finding['message']} {finding['remedy']}")
            for finding in faults["findings"])  # fmt: skip
    yield from table_lines(("severity", "rule", "finding and remedy"), rows)


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
    result = None if evaluation is None else as_path(evaluation)
    is_one = isinstance(others, Model | str | bytes | bytearray | os.PathLike | SeekableFile)
    sources = [model, *cast("Iterable[AnyModel]", (others,) if is_one else others)]
    with Opener() as opener:
        models = opener.open_all(sources, "others")
        if any(file.same_file(target) for model in models for file in model.inputs) or (
            result is not None and target.exists() and target.samefile(result)
        ):
            raise OutputError(f"{target} is also an input", remedy="Write to another name")
        write = _FORMATS.get(target.suffix.lower())
        if write is None:
            raise OutputError(
                f"{target} has an ending that no report has", remedy="Use .html or .md"
            )
        first, *rest = map(_page_model, sources, models)
        contents = gather(
            first, rest, data=data, evaluation=result, threads=threads, progress=progress
        )
        for source, own_model in zip(sources, models, strict=True):
            _require_same_files(source, own_model)
        limit = ReadersLimit.all_of(model.readers_limit for model in models)
        write_whole(target, write(contents), limit=limit, clobber=clobber)
    return target


def _require_same_files(source: AnyModel, model: Model) -> None:
    """Refuse a model whose files were replaced: `check` reads them by name, all else as opened."""
    if not isinstance(source, str | bytes | os.PathLike) or is_remote(os.fsdecode(source)):
        return
    for own in model.files:
        if not any(file.same_file(own.path) for file in model.inputs):
            raise FormatError(
                "the file was replaced while it was in use",
                remedy="Run again, and do not change the input while it runs",
                path=str(own.path),
            )


def _page_model(source: AnyModel, model: Model) -> PageModel:
    """Return a model with the name by which the user called it."""
    if not isinstance(source, str | bytes | os.PathLike):
        return PageModel(str(model.path) if model.files else "model in memory", model)
    return PageModel(os.fsdecode(source), model)
