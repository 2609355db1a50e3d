"""Execute plans, in threads or in an executor, and publish each output whole or not at all."""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from ggufkit.errors import DiskSpaceError, GGUFError, OutputError, RemoteError
from ggufkit.output.chunks import (
    AWAY,
    HERE,
    Chunk,
    PlacedExtent,
    Written,
    coalesced_extents,
    grouped_by_tensor,
    run,
    run_pickled,
    shortened,
    whole,
)
from ggufkit.output.layout import Layout, PlannedFile
from ggufkit.output.resume import ByteRun, ResumeJournal, journal_of
from ggufkit.output.verify import verify_copies
from ggufkit.system.cancellation import check_cancelled, shield
from ggufkit.system.cpu import worker_count
from ggufkit.system.descriptors import sync_folder, write_at
from ggufkit.system.staging import (
    DISK_FULL,
    Staging,
    allocated_bytes,
    require_file,
    require_space,
    sweep,
)
from ggufkit.system.threads import Progress, as_completed, pool_of

Task = Callable[[], Future[list[Written]]]

ZEROS: Final = 1 << 20  # bytes of a gap written at once
IN_FLIGHT: Final = 4  # tasks per thread: enough to keep all busy, few enough to stop soon
IN_FLIGHT_AWAY: Final = 256  # tasks handed to an executor of unknown size
TRAVEL_BYTES: Final = 16 << 20  # bytes; larger sources in memory are not sent to other processes


class Order(NamedTuple):
    """A plan and the folder for its files."""

    plan: Layout
    folder: Path

    @property
    def targets(self) -> list[Path]:
        """The paths of the files, in shard order."""
        return [self.folder / file.name for file in self.plan.files]


class Job:
    """A layout that is being written: its unfinished files and, with resume, its journal."""

    def __init__(self, order: Order, *, resume: bool, clobber: bool) -> None:
        """Open nothing yet; `begin` does."""
        self.clobber = clobber
        self.order = order
        self.resume = resume
        self.stages: list[Staging] = []
        self.journal: ResumeJournal | None = None

    def begin(self) -> None:
        """Create the files and write all bytes that do not come from tensors."""
        targets = self.order.targets
        for target in targets:
            limit = self.order.plan.limit
            stage = Staging(target, resumable=self.resume, limit=limit, clobber=self.clobber)
            self.stages.append(stage)
        if self.resume:
            is_new = all(stage.is_new for stage in self.stages)
            self.journal = ResumeJournal(targets[0], self.order.plan, is_new=is_new)
        else:
            with contextlib.suppress(OSError):  # another user's file there must not stop us
                journal_of(targets[0]).unlink()
        for file, stage in zip(self.order.plan.files, self.stages, strict=True):
            os.ftruncate(stage.descriptor, file.nbytes)
            write_at(stage.descriptor, file.head, 0)
            if not stage.is_new:
                _clear_gaps(file, stage.descriptor)

    def parts(self, number: int) -> Iterator[PlacedExtent]:
        """Yield the extents of all files; `number` is the job's own."""
        for index, (file, stage) in enumerate(zip(self.order.plan.files, self.stages, strict=True)):
            for extent in coalesced_extents(file.extents):
                yield PlacedExtent(number, index, stage.output, shortened(extent))

    def recorded(self, chunk: Chunk, part: PlacedExtent) -> int | None:
        """Return the checksum of a part's bytes if an earlier run recorded one."""
        if self.journal is None:
            return None
        return self.journal.checksums.get(ByteRun(part.file, *chunk.place(part)))

    def note(self, written: Written) -> None:
        """Record finished bytes, if the job can be resumed."""
        if self.journal:
            self.journal.add(ByteRun(*written[1:4]), written.checksum)

    def forget(self) -> None:
        """Remove unpublished files: their bytes are wrong."""
        for stage in self.stages:
            stage.discard()
        if self.journal:
            self.journal.remove()

    def end(self) -> None:
        """Remove unpublished files, or leave them for a resumed run."""
        for stage in self.stages:
            stage.leave()
        if self.journal:
            self.journal.close()


def _clear_gaps(file: PlannedFile, descriptor: int) -> None:
    """Write the zeros between tensors; a new file already has them."""
    offset = len(file.head)
    for start, nbytes in (*((e.offset, e.nbytes) for e in file.extents), (file.nbytes, 0)):
        for data in zeros(start - offset):
            write_at(descriptor, data, offset)
            offset += len(data)
        offset = start + nbytes


def zeros(count: int) -> Iterator[bytes]:
    """Yield the zeros of a gap in pieces: a large alignment makes large gaps."""
    for offset in range(0, count, ZEROS):
        yield bytes(min(ZEROS, count - offset))


def execute_all(  # noqa: PLR0913 (as `write`)
    orders: Sequence[Order],
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
    resume: bool = False,
    clobber: bool = True,
) -> list[list[Path]]:
    """Write the files of all plans, and return the paths of each, in shard order."""
    jobs = [Job(order, resume=resume, clobber=clobber) for order in orders]
    with shield():
        try:
            _prepare(orders)
            _write_and_publish(jobs, worker_count(threads), progress, executor)
        except OSError as error:
            if isinstance(error, GGUFError):
                raise
            raise output_error(error, orders[0].targets[0], resume=resume) from error
        finally:
            for job in jobs:
                job.end()
        for folder in {order.folder for order in orders}:
            sync_folder(folder)
    return [order.targets for order in orders]


def _write_and_publish(
    jobs: list[Job], threads: int, progress: Progress | None, executor: Executor | None
) -> None:
    for job in jobs:
        job.begin()
    in_flight = IN_FLIGHT_AWAY if executor else threads * IN_FLIGHT
    with pool_of(threads) as pool:
        _work(jobs, _tasks(jobs, pool, executor), in_flight, progress)
    for stage in [stage for job in jobs for stage in job.stages]:
        check_cancelled()
        os.fsync(stage.descriptor)
    _verify(jobs, threads)
    check_cancelled()
    _publish(jobs)


def _prepare(orders: Sequence[Order]) -> None:
    """Remove leftovers, and refuse what cannot be written."""
    folders = {order.folder for order in orders}
    for folder in folders:
        sweep(folder)
        if not folder.is_dir():
            raise OutputError(f"the folder {folder} does not exist", remedy="Create it first")
    for target in (target for order in orders for target in order.targets):
        require_file(target)
    for folder in folders:
        in_folder = [order for order in orders if order.folder == folder]
        needed = sum(order.plan.nbytes for order in in_folder)
        needed -= sum(allocated_bytes(target) for order in in_folder for target in order.targets)
        require_space(folder, needed, "Free some space, or write elsewhere; nothing was written")


def output_error(error: OSError, target: Path, *, resume: bool) -> OutputError:
    """Return the error of an output that cannot be written."""
    reason = error.strerror or str(error)
    place = f"{error.filename}: " if error.filename else ""
    kind = DiskSpaceError if error.errno in DISK_FULL else OutputError
    partial = (
        "The finished part is kept; resume when the cause is solved"
        if resume
        else "No partial output remains"
    )
    return kind(f"writing {target}: {place}{reason}", remedy=partial)


def _work(
    jobs: list[Job], tasks: Iterable[Task], in_flight: int, progress: Progress | None
) -> None:
    """Run all chunks, and record what is done."""
    total = sum(job.order.plan.nbytes for job in jobs)
    written_bytes = sum(len(file.head) for job in jobs for file in job.order.plan.files)
    for chunk in as_completed(tasks, in_flight):
        for written in chunk:
            jobs[written.job].note(written)
            written_bytes += written.nbytes
            if progress:
                progress(written_bytes, total)
    if progress:
        progress(total, total)


def _tasks(jobs: list[Job], pool: Executor, executor: Executor | None) -> Iterator[Task]:
    """Yield a function per chunk that starts it, here or in the executor."""
    checked = any(job.journal for job in jobs)
    parts = (part for number, job in enumerate(jobs) for part in job.parts(number))
    for group in grouped_by_tensor(parts):
        away = executor if executor and _is_sendable(group) else None
        for chunk in whole(group).cut_into(AWAY if away else HERE):
            recorded = tuple(jobs[part.job].recorded(chunk, part) for part in group)
            resumed = replace(chunk, recorded=recorded)
            if away:
                yield partial(away.submit, run_pickled, pickle.dumps(resumed), checked=checked)
            else:
                yield partial(pool.submit, run, resumed, checked=checked)


def _is_sendable(group: tuple[PlacedExtent, ...]) -> bool:
    """Whether a source can be sent: not if it cannot be pickled, or carries its data."""
    with contextlib.suppress(pickle.PicklingError, TypeError, AttributeError):
        return len(pickle.dumps(group, 5)) <= TRAVEL_BYTES
    return False


def _verify(jobs: list[Job], threads: int) -> None:
    """Check copies of remote files; wrong ones are removed, also where resume keeps others."""
    written = [
        (file, stage.descriptor)
        for job in jobs
        for file, stage in zip(job.order.plan.files, job.stages, strict=True)
    ]
    try:
        verify_copies(written, threads)
    except RemoteError:
        for job in jobs:
            job.forget()
        raise


def _publish(jobs: list[Job]) -> None:
    """Rename all files into place, the first shard last: a reader who finds it finds all."""
    stages = [stage for job in jobs for stage in job.stages]
    try:
        for job in jobs:
            # Never leave an old first shard with new others.
            if len(job.stages) > 1 and job.clobber:
                job.stages[0].target.unlink(missing_ok=True)
            for stage in reversed(job.stages):
                stage.publish()
    except BaseException:
        # KeyboardInterrupt may be raised after the rename, before it is recorded: look at the disk.
        published = [stage.target for stage in stages if not stage.path.exists()]
        for path in published if len(published) < len(stages) else ():
            with contextlib.suppress(OSError):
                path.unlink()
        raise
    for job in jobs:
        if job.journal:
            job.journal.remove()
