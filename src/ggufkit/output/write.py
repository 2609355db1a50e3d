"""Write models: to files, published whole or not at all, or to a stream in order."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from ggufkit.errors import OutputError
from ggufkit.models.any_model import AnyModel, opened, takes_model
from ggufkit.models.byte_ranges import reading_threads
from ggufkit.models.model import Model
from ggufkit.models.tensors.in_memory import model
from ggufkit.output.chunks import PIECE, Chunk, PlacedExtent, shortened, whole
from ggufkit.output.execute import Order, execute_all, zeros
from ggufkit.output.layout import Layout, LayoutOptions, PlannedFile, layout
from ggufkit.system.cpu import worker_count
from ggufkit.system.descriptors import AnyPath, as_path
from ggufkit.system.mapped_file import Bytes
from ggufkit.system.staging import Output, exists_already
from ggufkit.system.threads import Progress, in_turn, pool_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

AHEAD: Final = 2  # pieces per thread made before the stream accepts them
_NOWHERE: Final = Output(Path(os.devnull), 0)  # the bytes of a stream need no file


class WriteOptions(LayoutOptions, total=False):
    """The options of layout and writing; see `write`."""

    threads: int | None
    progress: Progress | None
    executor: Executor | None
    resume: bool
    clobber: bool


@takes_model
def write(  # noqa: PLR0913 (who does it and how)
    model: Model,
    path: AnyPath | IO[bytes],
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
    resume: bool = False,
    clobber: bool = True,
    **options: Unpack[LayoutOptions],
) -> list[Path]:
    """Write `model` to `path` and return the paths of the files written.

    `path` is a file name, or a binary stream (a pipe) for a single file. `options` are those of
    `layout`: `version`, `byte_order`, `alignment`, `shard_size` (bytes), `shard_tensors`; options
    not given keep the model's value. `progress(done, total)` counts bytes.

    An `executor` of `concurrent.futures` replaces threads: other processes, or a cluster
    (`ggufkit.cluster`), which must see inputs and outputs under the same paths. Work that
    cannot be sent to it is done here. `resume` keeps finished bytes if the job ends early, and
    continues from there when called again. With `clobber=False` an output that already exists
    raises OutputError before anything is written.

    The output appears whole or not at all: only a complete file replaces an existing file (or
    link). Memory stays at a few MiB per thread. Raises OutputError (an OSError), DiskSpaceError
    before writing if free space is known to be too small, and FormatError if an input changed since
    it was opened.
    """
    if isinstance(path, str | bytes | os.PathLike):
        return write_many(
            [(model, path)],
            threads=threads,
            progress=progress,
            executor=executor,
            resume=resume,
            clobber=clobber,
            **options,
        )[0]
    if executor or resume:
        raise OutputError(
            "a stream is written in order by one process, so it cannot be resumed or use a cluster",
            remedy="Write to a file instead",
        )
    threads = reading_threads(model.inputs, threads)
    stream(layout(model, "model.gguf", **options), path, threads=threads, progress=progress)
    return []


def write_many(  # noqa: PLR0913 (as `write`)
    outputs: Sequence[tuple[AnyModel, AnyPath]],
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
    resume: bool = False,
    clobber: bool = True,
    **options: Unpack[LayoutOptions],
) -> list[list[Path]]:
    """Write several models at once; return the paths of the files of each.

    If tensors of several models are made from the same tensor, its rows are read once for all of
    them. All outputs appear when all are complete. Otherwise like `write`.
    """
    with contextlib.ExitStack() as stack:
        models = [stack.enter_context(opened(argument, "outputs")) for argument, _ in outputs]
        orders: list[Order] = []
        for model, (_, path) in zip(models, outputs, strict=True):
            output = as_path(path)
            orders.append(Order(layout(model, output.name, **options), output.parent))
        targets = [target for order in orders for target in order.targets]
        for target in targets:
            if targets.count(target) > 1:
                raise OutputError(
                    f"two outputs are called {target}", remedy="Give each output its own name"
                )
            if not clobber and os.path.lexists(target):
                raise exists_already(target)
        for model, (plan, folder) in itertools.product(models, orders):
            _refuse_inputs(model, plan, folder)
        files = [file for model in models for file in model.inputs]
        threads = reading_threads(files, threads)
        return execute_all(
            orders,
            threads=threads,
            progress=progress,
            executor=executor,
            resume=resume,
            clobber=clobber,
        )


def _refuse_inputs(model: Model, plan: Layout, folder: Path) -> None:
    spans = [tensor.source.span for tensor in model.tensors.values()]
    inputs = {*model.inputs, *(span.file for span in spans if span)}
    for name in (file.name for file in plan.files):
        if any(file.same_file(folder / name) for file in inputs):
            raise OutputError(
                f"{folder / name} is also an input",
                remedy="Write to another name; rename the output afterwards to replace the input",
            )


def save(
    path: AnyPath | IO[bytes],
    tensors: Mapping[str, Any],
    metadata: Mapping[str, object] | None = None,
    **options: Unpack[WriteOptions],
) -> list[Path]:
    """Write arrays and plain metadata as a GGUF file; return the paths written.

    `tensors` and `metadata` go to `ggufkit.model`, `options` to `write`.
    """
    return write(model(tensors, metadata), path, **options)


def stream(
    plan: Layout, output: IO[bytes], *, threads: int | None = None, progress: Progress | None = None
) -> None:
    """Write a plan of one file to a binary stream, in order."""
    if len(plan.files) > 1:
        raise OutputError("a stream cannot hold several shards", remedy="Write to files instead")
    sent_bytes = 0
    count = worker_count(threads)
    with pool_of(count) as pool:
        for data in _ordered(pool, plan.files[0], count * AHEAD):
            _write_all(output, data)
            sent_bytes += len(data)
            if progress:
                progress(sent_bytes, plan.nbytes)
    output.flush()


def _write_all(output: IO[bytes], data: bytes | memoryview) -> None:
    """Write all of `data`, in as many calls as an unbuffered stream needs."""
    remaining = memoryview(data)
    while remaining:
        written: int | None = output.write(remaining)
        if written is None:
            raise OutputError("the stream is full", remedy="Pass a stream in blocking mode")
        remaining = remaining[written:]


def _ordered(pool: Executor, file: PlannedFile, in_flight: int) -> Iterator[bytes | memoryview]:
    """Yield the bytes of the whole file in order; the pool makes pieces ahead."""
    yield file.head
    written = len(file.head)
    for offset, data in in_turn(pool, _pieces(file), in_flight - 1):
        yield from zeros(offset - written)
        yield data.reshape(-1).data
        written = offset + data.nbytes
    yield from zeros(file.nbytes - written)


def _pieces(file: PlannedFile) -> Iterator[Callable[[], tuple[int, Bytes]]]:
    """Yield a function per piece of a file; it returns the piece with its place."""
    for extent in file.extents:
        part = PlacedExtent(0, 0, _NOWHERE, shortened(extent))
        for piece in whole((part,)).cut(PIECE) if extent.nbytes else ():
            yield functools.partial(_encoded, piece, piece.place(part)[0])


def _encoded(piece: Chunk, offset: int) -> tuple[int, Bytes]:
    (data,) = piece.contents()
    return offset, data
