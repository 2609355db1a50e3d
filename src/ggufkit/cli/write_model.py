"""Writes models for commands: to files or streams, with progress and a report."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import click

import ggufkit
from ggufkit.cli import streams
from ggufkit.cli.options import NO_CLOBBER, files_read
from ggufkit.cli.output import emit, is_quiet, paged, size, table
from ggufkit.cli.progress import progress_bar
from ggufkit.cli.streams import PIPE
from ggufkit.errors import OutputError, printable
from ggufkit.format.file_name import parse_shard_name
from ggufkit.models.model import Model
from ggufkit.output.layout import layout
from ggufkit.system.cancellation import shield
from ggufkit.system.descriptors import naming
from ggufkit.system.staging import exists_already, require_file


def stem_of(source: str) -> str:
    """Return the name of a model without its folder, the number of its shard and .gguf."""
    path = Path(source)
    name = (path.resolve() if path.is_dir() else path).name.replace(":", "-")
    shard = parse_shard_name(name)
    return shard[0] if shard else name.removesuffix(".gguf")


def is_folder(out: str) -> bool:
    """Whether an output is a folder, there or to be made."""
    return out.endswith(("/", os.sep)) or (out != PIPE and Path(out).is_dir())


def write_out(model: Model, out: str, **options: Any) -> list[Path]:
    """Write `model` to the file `out`, or to stdout for "-", with progress on a terminal.

    `options` go to `ggufkit.write`; `cluster` is an address. Returns the paths of the
    files written, none for a stream.
    """
    refuse_input(out, files_read())
    with contextlib.ExitStack() as opened:
        target = _stream(out, opened)
        if target and (options.get("resume") or options.get("cluster")):
            raise click.UsageError("--resume and --cluster cannot write to stdout; name a file")
        work = opened.enter_context(working(**options))
        if out == PIPE:
            opened.enter_context(naming(Path("standard output")))
        return ggufkit.write(model, target or out, **work)


def write_all(outputs: Sequence[tuple[Model, str]], **options: Any) -> list[list[Path]]:
    """Write several models, whose source is read once; as `write_out` for each."""
    if len(outputs) == 1:
        return [write_out(*outputs[0], **options)]
    for _, target in outputs:
        refuse_input(target, files_read())
    with working(**options) as work:
        return ggufkit.write_many(outputs, **work)


def deliver(
    model: Model,
    out: str,
    *,
    dry_run: bool,
    as_json: bool,
    layout_options: Mapping[str, Any] = {},
    **work: Any,
) -> None:
    """Write `model` to `out` as `layout_options` say, and print its files.

    A dry run only prints.
    """
    if as_json and out == PIPE and not dry_run:
        raise click.UsageError("--json and the model cannot both go to stdout")
    paths = [] if dry_run else write_out(model, out, **layout_options, **work)
    if not dry_run and not as_json:
        report(paths)
        return
    folder, name = (Path(), "model.gguf") if out == PIPE else (Path(out).parent, Path(out).name)
    files = layout(model, name, **layout_options).files
    listed = [
        (PIPE if out == PIPE else str(folder / f.name), len(f.extents), f.nbytes) for f in files
    ]
    if as_json:
        names = ("path", "tensors", "nbytes")
        emit({"files": [dict(zip(names, row, strict=True)) for row in listed]})
        return
    rows = [(printable(path), f"{tensors:,}", size(nbytes)) for path, tensors, nbytes in listed]
    with paged():
        table(("FILE", "TENSORS", "SIZE"), rows, right="lrr")


@contextlib.contextmanager
def working(*, cluster: str | None = None, **options: Any) -> Iterator[dict[str, Any]]:
    """Turn a command's options into `ggufkit.write`'s, with a bar and a cluster's executor."""
    with contextlib.ExitStack() as opened:
        if cluster:
            options["executor"] = opened.enter_context(ggufkit.cluster(cluster))
        if not may_replace():
            options["clobber"] = False
        if options.get("resume"):
            opened.enter_context(shield("run the command again to continue from here"))
        yield options | {"progress": opened.enter_context(progress_bar("writing"))}
        streams.work_is_done()


def _stream(out: str, opened: contextlib.ExitStack) -> IO[bytes] | None:
    """Return a stream for stdout, a pipe or a device; None for a file."""
    if out != PIPE:
        path = Path(out)
        is_special = path.exists() and not path.is_file() and not path.is_dir()
        return opened.enter_context(path.open("wb")) if is_special else None
    if sys.stdout.isatty():
        raise click.UsageError("Standard output is a terminal; redirect it, or name a file")
    return sys.stdout.buffer


def may_replace() -> bool:
    """Whether outputs may replace files; --no-clobber forbids it."""
    return not click.get_current_context().meta.get(NO_CLOBBER)


def require_place(out: str) -> None:
    """Raise OutputError if no file `out` can be written there, before anything is computed."""
    path = Path(out)
    if path.is_dir():
        raise OutputError(f"{out} is a folder", remedy="Name a file in the folder")
    require_file(path)
    if not path.parent.is_dir():
        raise OutputError(f"the folder {path.parent} does not exist", remedy="Create it first")
    if path.exists() and not may_replace():
        raise exists_already(path)


def refuse_input(out: str, inputs: Iterable[str]) -> None:
    """Raise OutputError if `out` is one of the inputs."""
    path = Path(out)
    if path.exists() and any(path.samefile(source) for source in inputs if Path(source).exists()):
        raise OutputError(f"{out} is also an input", remedy="Write to another name")


def report(paths: list[Path]) -> None:
    """Print one line for each file written."""
    for path in () if is_quiet() else paths:
        nbytes = _nbytes(path)
        suffix = f" ({size(nbytes)})" if nbytes is not None else ""
        click.echo(f"wrote {printable(str(path))}{suffix}")


def files_written(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the path and size of each file written, for --json."""
    return [{"path": str(path), "nbytes": _nbytes(path)} for path in paths]


def _nbytes(path: Path) -> int | None:
    """Return the size of an output, None if the system cannot say it."""
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return None
