"""What the commands that write a model share: where to, progress, and the report."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Final

import click

import ggufkit
from ggufkit.cli.output import emit, paged, size, table
from ggufkit.clusters import executor_of
from ggufkit.errors import printable
from ggufkit.layout import layout
from ggufkit.model import Model

PIPE: Final = "-"
_SIZE: Final = re.compile(
    r"(?P<number>\d+(\.\d+)?)\s*((?P<unit>[kmgt])(?P<binary>i)?)?b?", re.IGNORECASE
)

threads_option = click.option(
    "--threads",
    type=click.IntRange(min=1),
    metavar="N",
    help="Threads to work with.  [default: one for each usable core]",
)


dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Show which files would be written; write nothing."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print the files as JSON.")
resume_option = click.option(
    "--resume",
    is_flag=True,
    help="Keep what is done if this ends early, and go on from what an earlier --resume kept.",
)
cluster_option = click.option(
    "--cluster",
    metavar="ADDRESS",
    help="Have the workers of this Dask scheduler do the work, such as tcp://host:8786.",
)


def parse_size(text: str) -> int:
    """Return a number of bytes: plain, or as 500M and 2G (powers of 1000) or 512MiB (of 1024)."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise click.BadParameter(f"{text!r} is no size; write it as 500M, 2G or 512MiB")
    base = 1024 if found["binary"] else 1000
    power = " kmgt".index((found["unit"] or " ").lower())
    return int(float(found["number"]) * base**power)


def write_out(model: Model, out: str, **options: Any) -> list[Path]:
    """Write `model` to the file `out`, or to stdout for "-", with progress on a terminal.

    `options` are those of `ggufkit.write` and `cluster`, an address. Returns the paths of the
    files written, none for a stream.
    """
    with contextlib.ExitStack() as opened:
        target = _stream(out, opened)
        if target and (options.get("resume") or options.get("cluster")):
            raise click.UsageError("--resume and --cluster need a file to write to")
        work = opened.enter_context(working(**options))
        return ggufkit.write(model, target or out, **work)


def deliver(
    model: Model, out: str, *, dry_run: bool, as_json: bool, laid: dict[str, Any], **work: Any
) -> None:
    """Write `model` to `out`, laid out as `laid` says, and tell of its files; or tell alone."""
    if as_json and out == PIPE and not dry_run:
        raise click.UsageError("--json and a model cannot share stdout")
    paths = [] if dry_run else write_out(model, out, **laid, **work)
    if not dry_run and not as_json:
        report(paths)
        return
    folder, name = (Path(), "model.gguf") if out == PIPE else (Path(out).parent, Path(out).name)
    files = layout(model, name, **laid).files
    told = [
        (PIPE if out == PIPE else str(folder / f.name), len(f.extents), f.nbytes) for f in files
    ]
    if as_json:
        emit(
            {"files": [dict(zip(("path", "tensors", "nbytes"), row, strict=True)) for row in told]}
        )
        return
    rows = [(printable(path), f"{tensors:,}", size(nbytes)) for path, tensors, nbytes in told]
    with paged():
        table(("FILE", "TENSORS", "SIZE"), rows, right="lrr")


@contextlib.contextmanager
def working(*, cluster: str | None = None, **options: Any) -> Iterator[dict[str, Any]]:
    """Turn options of a command into those of `ggufkit.write`: a bar, and a cluster's executor."""
    with contextlib.ExitStack() as opened:
        if cluster:
            options["executor"] = opened.enter_context(executor_of(cluster))
        try:
            yield options | {"progress": opened.enter_context(progress_bar("writing"))}
        except KeyboardInterrupt:
            if not options.get("resume"):
                raise
            raise click.Abort("run it again to go on from here") from None


def _stream(out: str, opened: contextlib.ExitStack) -> IO[bytes] | None:
    """Return what to write to in order: stdout, or a pipe or device that must not be replaced."""
    if out != PIPE:
        path = Path(out)
        is_special = path.exists() and not path.is_file() and not path.is_dir()
        return opened.enter_context(path.open("wb")) if is_special else None
    if sys.stdout.isatty():
        raise click.UsageError("A model is no text: redirect stdout, or name a file")
    return sys.stdout.buffer


def report(paths: list[Path]) -> None:
    """Print one line for each file written."""
    for path in paths:
        nbytes = path.stat().st_size
        click.echo(f"wrote {printable(str(path))} ({size(nbytes)})")


@contextlib.contextmanager
def progress_bar(
    doing: str, *, in_bytes: bool = True
) -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar with rate and time left on stderr, or nothing where that is no terminal.

    What is done is counted `in_bytes`, or else in whatever it is.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress as rich  # noqa: PLC0415 (dear, and most runs need none)
    from rich.console import Console  # noqa: PLC0415

    counts = (rich.MofNCompleteColumn(),)
    nbytes = (rich.TaskProgressColumn(), rich.DownloadColumn(), rich.TransferSpeedColumn())
    bar = rich.Progress(
        rich.BarColumn(),
        *(nbytes if in_bytes else counts),
        rich.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(doing, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
