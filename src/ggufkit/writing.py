"""Execute a plan: chunks in parallel at their final offsets, published whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np

from ggufkit.errors import DiskSpaceError, GGUFError, OutputError
from ggufkit.layout import Extent, LayoutOptions, Plan, PlannedFile, layout
from ggufkit.metadata import Metadata
from ggufkit.model import Model, Tensor, Tensors
from ggufkit.quants import usable_cores
from ggufkit.sources import from_array
from ggufkit.store import Staging, copy_at, read_exactly, sweep, sync_folder, write_at

if TYPE_CHECKING:
    from typing_extensions import Unpack

Progress = Callable[[int, int], None]

COPY_CHUNK: Final = 32 << 20  # bytes that the kernel copies in one task
MADE_CHUNK: Final = 2 << 20  # output bytes made in one task; its float32 rows are a few times that
IN_FLIGHT: Final = 4  # tasks per thread: enough to keep all busy, few enough to stop quickly


@dataclass(frozen=True)
class Chunk:
    """A run of rows of one extent, and the bytes of the file it becomes."""

    extent: Extent
    offset: int
    nbytes: int
    start: int
    stop: int


def write(
    model: Model,
    path: str | os.PathLike[str] | IO[bytes],
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    **options: Unpack[LayoutOptions],
) -> list[Path]:
    """Write `model` to `path` and return the paths of the files written.

    `path` is a file name, or a binary stream (a pipe) for a single file. `options` are those of
    `layout`: `version`, `byte_order`, `alignment`, `shard_size` (bytes), `shard_tensors`; what
    is not given stays as the model has it. `progress(done, total)` is called with bytes.

    The output appears whole or not at all, an existing file is replaced only by a whole one, and
    memory stays at a few MiB per thread. Raises OutputError (an OSError), or DiskSpaceError
    before anything is written.
    """
    if not isinstance(path, str | os.PathLike):
        stream(layout(model, "model.gguf", **options), path, threads=threads, progress=progress)
        return []
    target = Path(path)
    plan = layout(model, target.name, **options)
    _refuse_inputs(model, [target.with_name(file.name) for file in plan.files])
    return execute(plan, target.parent, threads=threads, progress=progress)


def save(
    path: str | os.PathLike[str] | IO[bytes],
    tensors: Mapping[str, Any],
    metadata: Mapping[str, object] | None = None,
    **options: Unpack[LayoutOptions],
) -> list[Path]:
    """Write NumPy arrays and plain metadata as a GGUF file; return the paths written.

    Each tensor is an array (stored in its dtype), a pair of an array and a tensor type
    (quantized to it; uint8 means bytes already packed), or a Tensor. Values of `metadata` are
    typed as `ggufkit.coerce.typed_value` documents. `options` are
    those of `layout`.
    """
    made = Tensors(as_tensor(name, value) for name, value in tensors.items())
    return write(Model(Metadata(metadata or {}), made), path, **options)


def as_tensor(name: str, value: object) -> Tensor:
    """Return the tensor called `name` that `value` describes, as `save` documents it."""
    if isinstance(value, Tensor):
        return Tensor(name, value.type, value.shape, value.nbytes, value.source)
    if isinstance(value, tuple):
        array, kind = value
        return from_array(name, np.asarray(array), kind)
    return from_array(name, np.asarray(value))


def _refuse_inputs(model: Model, targets: list[Path]) -> None:
    for target in targets:
        if any(file.same_file(target) for file in model.inputs):
            raise OutputError(
                f"{target} is also an input",
                remedy="Write to another name, and rename afterwards if you want to replace it",
            )


# To files.


def execute(
    plan: Plan,
    folder: Path,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Write the plan's files into `folder` and return their paths, in shard order."""
    _preflight(plan, folder)
    sweep(folder)
    targets = [folder / file.name for file in plan.files]
    stages: list[Staging] = []
    try:
        stages.extend(Staging(target) for target in targets)
        workers = threads or usable_cores()
        with ThreadPoolExecutor(workers) as pool:
            _write_files(plan, stages, pool, workers * IN_FLIGHT, progress)
        for stage in stages:
            stage.sync()
        _publish(stages)
    except OSError as error:
        if isinstance(error, GGUFError):
            raise
        raise _output_error(error, targets[0]) from error
    finally:
        for stage in stages:
            stage.discard()
    sync_folder(folder)
    return targets


def _preflight(plan: Plan, folder: Path) -> None:
    if not folder.is_dir():
        raise OutputError(f"the folder {folder} does not exist", remedy="Create it first")
    free = shutil.disk_usage(folder).free
    if free < plan.nbytes:
        raise DiskSpaceError(
            f"{folder} has {free:,} bytes free, and {plan.nbytes:,} are needed",
            remedy="Free some space or write elsewhere; nothing was written",
        )


def _output_error(error: OSError, target: Path) -> OutputError:
    reason = error.strerror or str(error)
    if error.errno == errno.ENOSPC:
        return DiskSpaceError(f"writing {target}: {reason}", remedy="Nothing was left behind")
    return OutputError(f"writing {target}: {reason}", remedy="Nothing was left behind")


def _write_files(
    plan: Plan,
    stages: list[Staging],
    pool: Executor,
    in_flight: int,
    progress: Progress | None,
) -> None:
    done = 0
    for file, stage in zip(plan.files, stages, strict=True):
        stage.resize(file.nbytes)
        write_at(stage.descriptor, file.head, 0)
        done += len(file.head)
        tasks = ((_write_chunk, chunk, stage.descriptor) for chunk in chunks(file))
        for written in _completed(pool, tasks, in_flight):
            done += written
            if progress:
                progress(done, plan.nbytes)


def chunks(file: PlannedFile) -> Iterator[Chunk]:
    """Cut the extents of a file into chunks of whole rows; copied bytes need no rows."""
    for extent in file.extents:
        if extent.source.span is not None:
            for at in range(0, extent.nbytes, COPY_CHUNK):
                yield Chunk(extent, at, min(COPY_CHUNK, extent.nbytes - at), 0, 0)
            continue
        step = max(1, MADE_CHUNK // max(extent.row_bytes, 1))
        for start in range(0, extent.rows if extent.nbytes else 0, step):
            stop = min(start + step, extent.rows)
            size = (stop - start) * extent.row_bytes
            yield Chunk(extent, start * extent.row_bytes, size, start, stop)


def _write_chunk(chunk: Chunk, descriptor: int) -> int:
    """Make or copy one chunk at its place in the output; return its bytes."""
    offset = chunk.extent.offset + chunk.offset
    span = chunk.extent.source.span
    if span is None:
        write_at(descriptor, _made(chunk), offset)
        return chunk.nbytes
    source = span.file.open()
    try:
        copy_at(source, span.offset + chunk.offset, descriptor, offset, chunk.nbytes)
    finally:
        os.close(source)
    return chunk.nbytes


def _made(chunk: Chunk) -> memoryview:
    data = np.ascontiguousarray(chunk.extent.source.read(chunk.start, chunk.stop))
    return data.reshape(-1).data


def _completed(pool: Executor, tasks: Iterable[tuple[Any, ...]], in_flight: int) -> Iterator[Any]:
    """Run tasks in any order and yield their results; on any error drop what has not begun."""
    pending: set[Future[Any]] = set()
    try:
        for function, *arguments in tasks:
            pending.add(pool.submit(function, *arguments))
            if len(pending) >= in_flight:
                finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in finished)
        for future in list(pending):
            yield future.result()
    except BaseException:
        for future in pending:
            future.cancel()
        raise


def _publish(stages: list[Staging]) -> None:
    """Put all files in place, the first shard last: who sees it sees the whole set."""
    published: list[Path] = []
    if len(stages) > 1:
        stages[0].target.unlink(missing_ok=True)  # never an old first shard before new others
    try:
        for stage in reversed(stages):
            stage.publish()
            published.append(stage.target)
    except BaseException:
        for path in published:
            with contextlib.suppress(OSError):
                path.unlink()
        raise


# To a pipe.


def stream(
    plan: Plan,
    output: IO[bytes],
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> None:
    """Write a plan of one file to a binary stream, in order."""
    if len(plan.files) > 1:
        raise OutputError("a stream cannot hold several shards", remedy="Write to files instead")
    file = plan.files[0]
    done = 0
    workers = threads or usable_cores()
    with ThreadPoolExecutor(workers) as pool:
        for data in _ordered(pool, file, workers * 2):
            output.write(data)
            done += len(data)
            if progress:
                progress(done, plan.nbytes)
    output.flush()


def _ordered(pool: Executor, file: PlannedFile, in_flight: int) -> Iterator[bytes | memoryview]:
    """Yield the whole file's bytes in order, chunks being made ahead by the pool."""
    yield file.head
    at = len(file.head)
    ahead: deque[tuple[int, Future[bytes | memoryview]]] = deque()
    try:
        for chunk in chunks(file):
            offset = chunk.extent.offset + chunk.offset
            ahead.append((offset, pool.submit(_read_chunk, chunk)))
            while len(ahead) >= in_flight:
                at = yield from _next(ahead, at)
        while ahead:
            at = yield from _next(ahead, at)
    finally:
        for _, future in ahead:
            future.cancel()
    yield bytes(file.nbytes - at)


def _next(
    ahead: deque[tuple[int, Future[bytes | memoryview]]], at: int
) -> Generator[bytes | memoryview, None, int]:
    offset, future = ahead.popleft()
    if offset > at:
        yield bytes(offset - at)
    data = future.result()
    yield data
    return offset + len(data)


def _read_chunk(chunk: Chunk) -> bytes | memoryview:
    span = chunk.extent.source.span
    if span is None:
        return _made(chunk)
    source = span.file.open()
    try:
        return read_exactly(source, chunk.nbytes, span.offset + chunk.offset)
    finally:
        os.close(source)
