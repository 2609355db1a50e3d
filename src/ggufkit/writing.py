"""Execute a plan: chunks in parallel at their final offsets, published whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import (
    FIRST_COMPLETED,
    Executor,
    Future,
    ThreadPoolExecutor,
    as_completed,
    wait,
)
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np

from ggufkit.errors import (
    DiskSpaceError,
    GGUFError,
    OutputError,
    TensorTypeError,
    ValueTypeError,
)
from ggufkit.layout import Extent, LayoutOptions, Plan, PlannedFile, layout
from ggufkit.machine import usable_cores
from ggufkit.metadata import Metadata
from ggufkit.model import Model, Tensor, Tensors
from ggufkit.sources import from_array
from ggufkit.store import AnyPath, Staging, as_path, sweep, sync_folder, write_at
from ggufkit.types import TensorType

if TYPE_CHECKING:
    from typing_extensions import Unpack

Progress = Callable[[int, int], None]

COPY_CHUNK: Final = 32 << 20  # bytes that the kernel copies in one task
MADE_CHUNK: Final = 1 << 20  # output bytes made in one task; its float32 rows are a few times that
IN_FLIGHT: Final = 4  # tasks per thread: enough to keep all busy, few enough to stop quickly
_DISK_FULL: Final = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}


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
    path: AnyPath | IO[bytes],
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    **options: Unpack[LayoutOptions],
) -> list[Path]:
    """Write `model` to `path` and return the paths of the files written.

    `path` is a file name, or a binary stream (a pipe) for a single file. `options` are those of
    `layout`: `version`, `byte_order`, `alignment`, `shard_size` (bytes), `shard_tensors`; what
    is not given stays as the model has it. `progress(done, total)` is called with bytes.

    The output appears whole or not at all, an existing file (or link) is replaced only by a whole
    one, and memory stays at a few MiB per thread. Raises OutputError (an OSError), DiskSpaceError
    before anything is written where it can be known, and FormatError if an input changed since it
    was opened.
    """
    if not isinstance(path, str | bytes | os.PathLike):
        stream(layout(model, "model.gguf", **options), path, threads=threads, progress=progress)
        return []
    target = as_path(path)
    plan = layout(model, target.name, **options)
    _refuse_inputs(model, plan, target.parent)
    return execute(plan, target.parent, threads=threads, progress=progress)


def save(
    path: AnyPath | IO[bytes],
    tensors: Mapping[str, Any],
    metadata: Mapping[str, object] | None = None,
    **options: Unpack[LayoutOptions],
) -> list[Path]:
    """Write NumPy arrays and plain metadata as a GGUF file; return the paths written.

    Each tensor is an array (stored in its dtype), a pair of an array and a tensor type
    (quantized to it; uint8 means bytes already packed), or a Tensor. Values of `metadata` are
    typed as `ggufkit.coerce.typed_value` documents. `options` are those of `layout`. Raises
    TensorTypeError, ShapeError and ValueTypeError for what has no place in a file, and else as
    `write` does.
    """
    made = Tensors(as_tensor(name, value) for name, value in tensors.items())
    return write(Model(Metadata(metadata or {}), made), path, **options)


def as_tensor(name: str, value: object) -> Tensor:
    """Return the tensor called `name` that `value` describes, as `save` documents it."""
    if isinstance(value, Tensor):
        return Tensor(name, value.type, value.shape, value.nbytes, value.source)
    if not isinstance(value, tuple):
        return from_array(name, _as_array(name, value))
    if len(value) != 2 or not isinstance(value[1], str | int | TensorType):  # noqa: PLR2004
        raise TensorTypeError(
            f"tensor {name!r}: a tuple is a pair of an array and a tensor type",
            remedy='Write (array, "Q8_0"), or give numbers as a NumPy array',
        )
    return from_array(name, _as_array(name, value[0]), value[1])


def _as_array(name: str, value: object) -> np.ndarray[Any, Any]:
    try:
        return np.asarray(value)
    except (TypeError, ValueError) as error:  # ragged lists, and what other libraries refuse
        raise TensorTypeError(
            f"tensor {name!r} is no array: {error}", remedy="Give a NumPy array"
        ) from error


def _refuse_inputs(model: Model, plan: Plan, folder: Path) -> None:
    spans = [extent.source.span for file in plan.files for extent in file.extents]
    inputs = {*model.inputs, *(span.file for span in spans if span)}
    for name in (file.name for file in plan.files):
        if any(file.same_file(folder / name) for file in inputs):
            raise OutputError(
                f"{folder / name} is also an input",
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
    targets = [folder / file.name for file in plan.files]
    stages: list[Staging] = []
    try:
        sweep(folder)
        _preflight(plan, folder, targets)
        for target in targets:
            stages.append(Staging(target))  # noqa: PERF401 (those made before an error count)
        _write_files(plan, stages, _workers(threads), progress)
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


def _workers(threads: int | None) -> int:
    if threads is None:
        return usable_cores()
    if threads < 1:
        raise ValueTypeError(f"{threads} threads cannot work", remedy="Use one or more, or None")
    return threads


def _preflight(plan: Plan, folder: Path, targets: list[Path]) -> None:
    if not folder.is_dir():
        raise OutputError(f"the folder {folder} does not exist", remedy="Create it first")
    for target in targets:
        if target.exists() and not target.is_file():
            raise OutputError(
                f"{target} is there and no regular file",
                remedy="Name a file; a pipe or device takes what is written to standard output",
            )
    free = shutil.disk_usage(folder).free
    if free < plan.nbytes:
        raise DiskSpaceError(
            f"{folder} has {free:,} bytes free, and {plan.nbytes:,} are needed",
            remedy="Free some space or write elsewhere; nothing was written",
        )


def _output_error(error: OSError, target: Path) -> OutputError:
    reason = error.strerror or str(error)
    kind = DiskSpaceError if error.errno in _DISK_FULL else OutputError
    return kind(f"writing {target}: {reason}", remedy="Nothing was left behind")


def _write_files(
    plan: Plan, stages: list[Staging], workers: int, progress: Progress | None
) -> None:
    done = 0
    with _pool(workers) as pool:
        for file, stage in zip(plan.files, stages, strict=True):
            stage.resize(file.nbytes)
            write_at(stage.descriptor, file.head, 0)
            written = len(file.head)
            for nbytes in _all_written(pool, file, stage.descriptor, workers * IN_FLIGHT):
                written += nbytes
                if progress:
                    progress(done + written, plan.nbytes)
            done += file.nbytes
            if progress:
                progress(done, plan.nbytes)


@contextlib.contextmanager
def _pool(workers: int) -> Iterator[Executor]:
    """Lend a pool that, on any error, drops what has not begun."""
    pool = ThreadPoolExecutor(workers)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def chunks(file: PlannedFile, copied: int) -> Iterator[Chunk]:
    """Cut the extents of a file into chunks of whole rows, or of `copied` bytes as they lie."""
    for extent in file.extents:
        if extent.source.span is not None:
            for at in range(0, extent.nbytes, copied):
                yield Chunk(extent, at, min(copied, extent.nbytes - at), 0, 0)
            continue
        step = max(1, MADE_CHUNK // max(extent.row_bytes, 1))
        for start in range(0, extent.rows if extent.nbytes else 0, step):
            stop = min(start + step, extent.rows)
            size = (stop - start) * extent.row_bytes
            yield Chunk(extent, start * extent.row_bytes, size, start, stop)


def _all_written(
    pool: Executor, file: PlannedFile, descriptor: int, in_flight: int
) -> Iterator[int]:
    """Write all chunks of a file in any order, and yield the bytes of each that is done."""
    pending: set[Future[int]] = set()
    for chunk in chunks(file, COPY_CHUNK):
        pending.add(pool.submit(_write_chunk, chunk, descriptor))
        if len(pending) >= in_flight:
            finished, pending = wait(pending, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in finished)
    yield from (future.result() for future in as_completed(pending))


def _write_chunk(chunk: Chunk, descriptor: int) -> int:
    """Make or copy one chunk at its place in the output; return its bytes."""
    offset = chunk.extent.offset + chunk.offset
    span = chunk.extent.source.span
    if span is None:
        write_at(descriptor, _made(chunk), offset)
    else:
        span.file.copy(span.offset + chunk.offset, chunk.nbytes, descriptor, offset)
    return chunk.nbytes


def _made(chunk: Chunk) -> memoryview:
    data = np.ascontiguousarray(chunk.extent.source.read(chunk.start, chunk.stop))
    return data.reshape(-1).data


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
    workers = _workers(threads)
    with _pool(workers) as pool:
        for data in _ordered(pool, file, workers * 2):
            _write_all(output, data)
            done += len(data)
            if progress:
                progress(done, plan.nbytes)
    output.flush()


def _write_all(output: IO[bytes], data: bytes | memoryview) -> None:
    """Write all of `data`, however many calls an unbuffered stream takes."""
    left = memoryview(data)
    while left:
        written: int | None = output.write(left)
        if written is None:
            raise OutputError(
                "the stream is full", remedy="Give a stream that waits for its reader"
            )
        left = left[written:]


def _ordered(pool: Executor, file: PlannedFile, in_flight: int) -> Iterator[bytes | memoryview]:
    """Yield the whole file's bytes in order, chunks being made ahead by the pool."""
    yield file.head
    at = len(file.head)
    ahead: deque[tuple[int, Future[memoryview]]] = deque()
    for chunk in chunks(file, MADE_CHUNK):
        offset = chunk.extent.offset + chunk.offset
        ahead.append((offset, pool.submit(_read_chunk, chunk)))
        while len(ahead) >= in_flight:
            at = yield from _next(ahead, at)
    while ahead:
        at = yield from _next(ahead, at)
    yield from _zeros(file.nbytes - at)


def _zeros(count: int) -> Iterator[bytes]:
    """Yield the zeros of a gap, which an alignment may make large."""
    for at in range(0, count, MADE_CHUNK):
        yield bytes(min(MADE_CHUNK, count - at))


def _next(
    ahead: deque[tuple[int, Future[memoryview]]], at: int
) -> Generator[bytes | memoryview, None, int]:
    offset, future = ahead.popleft()
    yield from _zeros(offset - at)
    data = future.result()
    yield data
    return offset + len(data)


def _read_chunk(chunk: Chunk) -> memoryview:
    span = chunk.extent.source.span
    if span is None:
        return _made(chunk)
    return span.file.read(span.offset + chunk.offset, chunk.nbytes).data
