"""Compute an importance matrix: run llama.cpp over a text, and write what `collector.py` sums.

For a Hessian, `moments.py` also adds up the products of all pairs of activations.

Source: `compute_imatrix` in llama.cpp's `tools/imatrix/imatrix.cpp`.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ggufkit._version import __version__
from ggufkit.errors import ValueTypeError
from ggufkit.imatrix.checkpoint import EVERY_CHUNKS, SumsCheckpoint
from ggufkit.imatrix.collector import FEW_TOKENS, Collector, InputSums
from ggufkit.imatrix.coverage import cosines
from ggufkit.imatrix.hessian_file import (
    HESSIAN_MEMORY,
    MomentsOrigin,
    require_band,
    save_hessian,
)
from ggufkit.imatrix.matrix import CHUNK_SIZE, Entry, Imatrix, chunks_held
from ggufkit.imatrix.moments import FITTED, InputMoments, parts_of, require_batches
from ggufkit.imatrix.random_tokens import random_batches, usable_tokens
from ggufkit.imatrix.shards import require_shard, shard_of
from ggufkit.llama_cpp.library import library
from ggufkit.llama_cpp.session import Session
from ggufkit.models.any_model import require_weights
from ggufkit.models.model import Tensor
from ggufkit.models.open import open as open_model
from ggufkit.quants.blas import blas_limited
from ggufkit.system.cpu import worker_count
from ggufkit.system.descriptors import AnyPath, as_path
from ggufkit.system.text_file import Most, read_small
from ggufkit.system.threads import Progress

BATCH: Final = 2048  # tokens that llama-imatrix computes in one pass


def compute_imatrix(  # noqa: PLR0913 (the options of llama-imatrix)
    model: AnyPath,
    text: AnyPath,
    *,
    chunks: int | None = None,
    context: int = CHUNK_SIZE,
    batch: int = BATCH,
    from_chunk: int = 0,
    shard: tuple[int, int] = (1, 1),
    process_output: bool = False,
    parse_special: bool = False,
    hessian: AnyPath | None = None,
    band: int | None = None,
    memory: int = HESSIAN_MEMORY,
    resume: AnyPath | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Imatrix:
    """Run `model` over the file `text` and return its importance matrix, as llama-imatrix does.

    The text is cut into chunks of `context` tokens. At most `chunks` of them are computed, `batch`
    tokens at a time; the first `from_chunk` chunks are skipped. With `shard=(i, n)` only part i of
    n of these chunks is computed, in whole batches; `merge` adds up the n results.
    `process_output` collects data for output.weight too, and `parse_special` reads the names of
    special tokens as such.
    `hessian` names a file for the second moments of all inputs, for `quantize(hessian=...)`. They
    also count random tokens, a quarter as many as the text has, so that they hold for other texts.
    Sums of more than `memory` bytes are collected in several passes over the text. With `band`,
    only products within blocks of so many columns (a multiple of 256) are summed: memory and file
    grow with the width of a matrix, and not with its square.
    `resume` names the file for the result: hidden files next to it keep the sums if the run stops,
    and the same call continues, with the same result as in one run.
    `progress(done, total)` counts chunks of all passes. Raises MissingExtraError without the
    extra `llama`, GGUFError with llama.cpp's message where it fails, FormatError for a file that is
    not a model, ValueTypeError for a text that is too short.
    """
    require_band(band)
    require_shard(shard)
    location = as_path(model)
    llama = library()
    with open_model(location) as opened:  # raises a typed error where llama.cpp would abort
        require_weights(opened)
        usable = usable_tokens(opened.metadata)
        status = [(file.status.st_size, file.status.st_mtime_ns) for file in opened.inputs]
    content = read_small(as_path(text), Most.CALIBRATION).removesuffix(b"\n")
    sequences = max(1, batch // context)
    batch = min(batch, sequences * context)
    moments = InputMoments(band) if hessian else None
    collector = Collector(llama=llama, process_output=process_output, moments=moments)
    workers = worker_count(threads)
    with (
        blas_limited(workers),
        Session(
            location,
            length=context,
            batch=batch,
            sequences=sequences,
            threads=workers,
            watcher=collector,
            llama=llama,
        ) as session,
    ):
        tokens = session.tokenize(content, special=parse_special)[from_chunk * context :]
        numbered = list(enumerate(chunk_groups(tokens, context, chunks, sequences)))
        own = shard_of(numbered, shard)
        groups = [group for _, group in own]
        added = random_batches(usable, own) if hessian else []
        key = _key(status, groups, added, batch, process_output, memory if hessian else None, band)
        target = as_path(resume or hessian or text)
        checkpoint = SumsCheckpoint(target, key, stays=resume is not None)
        compute = functools.partial(_compute_group, session, batch=batch)
        reading = TextPasses(compute, collector, groups, added, progress, checkpoint)
        origin = MomentsOrigin(location, content, os.fsdecode(text), context, band)
        entries = reading.entries(as_path(hessian) if hessian else None, origin, memory)
    count, similar = chunks_held(entries, context), cosines(collector.half, entries)
    return Imatrix(entries, (os.fsdecode(text),), count, context, half_cosines=similar)


def _key(*inputs: object) -> str:
    """Return what names the inputs and options of a run, and the version that reads them."""
    return hashlib.sha256(repr((__version__, *inputs)).encode()).hexdigest()


@dataclass
class TextPasses:
    """Reads the chunks of a text, once or several times."""

    compute: Callable[[list[list[int]]], None]  # the model on a group of chunks
    collector: InputSums
    groups: Sequence[list[list[int]]]
    added: Sequence[list[list[int]]]  # random tokens, for moments only
    progress: Progress | None
    checkpoint: SumsCheckpoint
    done: int = 0

    def entries(self, hessian: Path | None, origin: MomentsOrigin, memory: int) -> dict[str, Entry]:
        """Return the sums of squares; write the second moments to `hessian`."""
        with self.checkpoint:
            if hessian:
                entries = self._moments(hessian, origin, memory)
            else:
                self._read_all(0, 1)
                entries = self.collector.entries()
            self.checkpoint.finish()
        return entries

    def _moments(self, target: Path, origin: MomentsOrigin, memory: int) -> dict[str, Entry]:
        moments, tensors = self.collector.moments, list[Tensor]()
        assert moments is not None  # noqa: S101 (for mypy)
        require_batches(self.groups)
        self.compute([chunk[:FEW_TOKENS] for chunk in self.groups[0]])
        moments.end_listing()
        passes = moments.passes(memory)
        for number, names in enumerate(passes):
            moments.begin(names)
            self._read_all(number, len(passes))
            if len(passes) == 1:
                tensors += moments.tensors()
            else:  # frees the memory for the next pass
                read = len(self.groups) + len(self.added)
                self.checkpoint.save(number, self.collector.tensors(), read)
                stored = self.checkpoint.stored(number).tensors
                tensors += [stored[tensor.name] for tensor in moments.tensors()]
            if not number:
                entries, self.collector.sums = self.collector.entries(), {}
        save_hessian(target, tensors, moments.owners, origin)
        return entries

    def _read_all(self, number: int, passes: int) -> None:
        """Add up the pass `number` of several, or what its checkpoint does not have yet."""
        groups = [*self.groups, *self.added]
        total = passes * sum(map(len, groups))
        restored, unsaved = self._restore(number, groups), 0
        parts = itertools.chain(parts_of(self.groups), itertools.repeat(FITTED))
        parted = enumerate(zip(groups, parts, strict=False), 1)
        for place, (group, part) in itertools.islice(parted, restored, None):
            self.collector.moments_only = number > 0 or place > len(self.groups)
            if self.collector.moments is not None:
                self.collector.moments.part = part
            self.compute(group)
            if number == 0 and place == len(self.groups) // 2:
                self.collector.keep_half()
            self.done += len(group)
            unsaved += len(group)
            if self.checkpoint.stays and unsaved >= EVERY_CHUNKS and place < len(groups):
                self.checkpoint.save(number, self.collector.tensors(), place)
                unsaved = 0
            if self.progress:
                self.progress(self.done, total)

    def _restore(self, number: int, groups: Sequence[list[list[int]]]) -> int:
        """Continue with what a checkpoint has of a pass; return the number of its groups."""
        model, count = self.checkpoint.restored(number)
        if model:
            self.collector.restore(model.tensors)
            self.done += sum(map(len, groups[:count]))
        return count


def chunk_groups(
    tokens: list[int], context: int, chunks: int | None, sequences: int
) -> Iterator[list[list[int]]]:
    """Yield groups of `sequences` chunks of `context` tokens, at most `chunks` in all.

    Raises ValueTypeError for a text without a whole chunk.
    """
    available = len(tokens) // context
    if not available:
        raise ValueTypeError(
            f"the text has {len(tokens)} tokens, but a chunk needs {context}",
            remedy="Use a longer text, or fewer tokens per chunk",
        )
    total = available if chunks is None else min(chunks, available)
    for first in range(0, total, sequences):
        last = min(first + sequences, total)
        yield [tokens[number * context : (number + 1) * context] for number in range(first, last)]


def _compute_group(session: Session, group: list[list[int]], batch: int) -> None:
    session.clear()
    beginning = session.beginning
    if beginning is not None:
        group = [[beginning, *chunk[1:]] for chunk in group]
    length = len(group[0])
    for start in range(0, length, batch):
        session.decode([chunk[start : start + batch] for chunk in group], start)
