"""Compute an importance matrix: run llama.cpp over a text and add up the squared activations.

For a Hessian, `moments.py` also adds up the products of all pairs of activations.

Source: `collect_imatrix` and `compute_imatrix` in llama.cpp's `tools/imatrix/imatrix.cpp`.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from ggufkit._version import __version__
from ggufkit.errors import GGUFError, ValueTypeError
from ggufkit.imatrix.checkpoint import EVERY_CHUNKS, SumsCheckpoint
from ggufkit.imatrix.hessian_file import (
    BAND_UNIT,
    HESSIAN_MEMORY,
    MomentsOrigin,
    save_hessian,
)
from ggufkit.imatrix.matrix import (
    CHUNK_SIZE,
    COUNTS,
    SUMS,
    Counts,
    Entry,
    Imatrix,
    chunks_held,
)
from ggufkit.imatrix.moments import InputMoments, parts_of, require_batches
from ggufkit.imatrix.shards import require_shard, shard_of
from ggufkit.llama_cpp.library import F32, GraphTensor, Library, library
from ggufkit.llama_cpp.session import Session
from ggufkit.models.any_model import require_weights
from ggufkit.models.model import Tensor
from ggufkit.models.open import open as open_model
from ggufkit.models.tensors.in_memory import as_tensor
from ggufkit.quants.blas import blas_limited
from ggufkit.quants.parallel import Floats
from ggufkit.system.cpu import worker_count
from ggufkit.system.descriptors import AnyPath, as_path
from ggufkit.system.text_file import Most, read_small
from ggufkit.system.threads import Progress

BATCH: Final = 2048  # tokens that llama-imatrix computes in one pass
FEW_TOKENS: Final = 16  # a product with fewer tokens is not a layer of the text
OUTPUT: Final = "output.weight"


@dataclass
class _ActivationSums:
    """The sum of squared activations of one weight, flat, and the number of tokens summed."""

    values: Floats
    counts: Counts


@dataclass
class _Collector:
    """Watches llama.cpp compute a graph, and sums the squared inputs of its matrix products."""

    llama: Library
    process_output: bool
    moments: InputMoments | None = None
    moments_only: bool = False
    sums: dict[str, _ActivationSums] = field(default_factory=dict)

    def __call__(self, node: GraphTensor, asks: bool) -> bool:  # noqa: FBT001 (as Watcher has it)
        """Say whether a node is needed (`asks`), or read it."""
        operation = self.llama.functions.ggml_op_name(node.op)
        if asks:
            is_collected = operation == b"MUL_MAT_ID" or (
                operation == b"MUL_MAT" and self._is_of_a_layer(node)
            )
            return is_collected and self._is_summed_now(node)
        name = _weight_name(node)
        if operation == b"MUL_MAT_ID":
            self._add_experts(name, node)
        else:
            self._add_dense(name, node)
        return True

    def _is_of_a_layer(self, node: GraphTensor) -> bool:
        inputs = node.src[1].contents
        if inputs.ne[1] < FEW_TOKENS or inputs.type != F32:
            return False
        name = _weight_name(node)
        return name.startswith("blk.") or (self.process_output and name == OUTPUT)

    def _is_summed_now(self, node: GraphTensor) -> bool:
        """Whether the inputs of a product are needed; moments need none of the first graph."""
        if self.moments is None:
            return True
        name = _weight_name(node)
        if self.moments.is_listing:
            self.moments.register(name, node)
            return False
        return not self.moments_only or name in self.moments.active

    def _add_dense(self, name: str, node: GraphTensor) -> None:
        weight, inputs = node.src[0].contents, node.src[1].contents
        matrices = weight.ne[2] * weight.ne[3]
        activations = self.llama.array(inputs, np.float32)
        sums = self._sums(name, inputs.ne[0] * matrices, 1)
        if len(set(sums.counts.tolist())) == 1:
            sums.counts = sums.counts[:1]
        values = sums.values.reshape(matrices, -1)
        for i3, i2 in np.ndindex(*activations.shape[:2]):
            place = (i3 % weight.ne[3]) * weight.ne[2] + i2 % weight.ne[2]
            values[place] = self._added(values[place], name, place, activations[i3, i2])
        sums.counts = sums.counts + math.prod(inputs.ne[1:4]) // matrices

    def _add_experts(self, name: str, node: GraphTensor) -> None:
        experts, inputs = node.src[0].contents.ne[2], node.src[1].contents
        chosen = self.llama.array(node.src[2].contents, np.int32)[0, 0].T  # (experts used, tokens)
        activations = self.llama.array(inputs, np.float32)[0]  # (tokens, experts used or 1, width)
        sums = self._sums(name, inputs.ne[0] * experts, experts)
        if len(sums.counts) == 1:
            sums.counts = np.repeat(sums.counts, experts)
        values = sums.values.reshape(experts, -1)
        for expert in np.unique(chosen):
            used, tokens = np.nonzero(chosen == expert)
            rows = activations[tokens, used % activations.shape[1]]
            values[expert] = self._added(values[expert], name, int(expert), rows)
        sums.counts = sums.counts + np.bincount(chosen.reshape(-1), minlength=experts)

    def _added(self, values: Floats, name: str, matrix: int, rows: Floats) -> Floats:
        if self.moments is not None:
            self.moments.add(name, matrix, rows)
        return _with_squares(values, rows, name)

    def _sums(self, name: str, size: int, counts: int) -> _ActivationSums:
        sums = self.sums.get(name)
        if sums is None:
            sums = _ActivationSums(np.zeros(size, np.float32), np.zeros(counts, np.int64))
            self.sums[name] = sums
        if sums.values.size != size:
            raise GGUFError(f"{name!r} is used with {sums.values.size} and with {size} inputs")
        return sums

    def tensors(self) -> list[Tensor]:
        """Return the sums so far, to be kept."""
        pairs = (
            (as_tensor(name + SUMS, sums.values), as_tensor(name + COUNTS, sums.counts))
            for name, sums in self.sums.items()
        )
        moments = self.moments.tensors() if self.moments else ()
        return [*itertools.chain.from_iterable(pairs), *moments]

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue with the sums that `tensors` returned."""
        for name, tensor in tensors.items():
            if name.endswith(SUMS):
                stem = name.removesuffix(SUMS)
                counts = np.array(tensors[stem + COUNTS].numpy())
                self.sums[stem] = _ActivationSums(np.array(tensor.numpy()), counts)
        if self.moments:
            self.moments.restore(tensors)

    def entries(self) -> dict[str, Entry]:
        return {
            name: Entry(sums.values.reshape(len(sums.counts), -1), sums.counts)
            for name, sums in sorted(self.sums.items(), key=lambda item: item[0].encode())
        }


def _with_squares(values: Floats, rows: Floats, name: str) -> Floats:
    """Return `values` plus the squares of all rows, added one by one as llama-imatrix does."""
    terms = np.empty((len(rows) + 1, rows.shape[1]), np.float32)
    terms[0] = values
    with np.errstate(over="ignore", invalid="ignore"):  # refused below
        np.multiply(rows, rows, out=terms[1:])
        total: Floats = np.add.reduce(terms, axis=0)
    if not np.isfinite(total).all():
        raise ValueTypeError(
            f"the activations of {name!r} are infinite or not numbers",
            remedy="The model is damaged or overflows float16; try the model in BF16 or F32",
        )
    return total


def _weight_name(node: GraphTensor) -> str:
    """Return the name of a product's weight; devices add to it: "CPU#blk.0.x.weight#0"."""
    name: str = node.src[0].contents.name.decode(errors="replace")
    parts = name.split("#")
    return parts[1] if len(parts) > 1 else name


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
    `hessian` names a file for the second moments of all inputs, for `quantize(hessian=...)`; sums
    of more than `memory` bytes are collected in several passes over the text. With `band`, only
    products within blocks of so many columns (a multiple of 256) are summed: memory and file grow
    with the width of a matrix, and not with its square.
    `resume` names the file for the result: hidden files next to it keep the sums if the run stops,
    and the same call continues, with the same result as in one run.
    `progress(done, total)` counts chunks of all passes. Raises MissingExtraError without the
    extra `llama`, GGUFError with llama.cpp's message where it fails, FormatError for a file that is
    not a model, ValueTypeError for a text that is too short.
    """
    if band is not None and (band <= 0 or band % BAND_UNIT):
        raise ValueTypeError(
            f"a band of {band} columns does not hold whole blocks of every type",
            remedy=f"Use a multiple of {BAND_UNIT}",
        )
    require_shard(shard)
    location = as_path(model)
    llama = library()
    with open_model(location) as opened:  # raises a typed error where llama.cpp would abort
        require_weights(opened)
        status = [(file.status.st_size, file.status.st_mtime_ns) for file in opened.inputs]
    content = read_small(as_path(text), Most.CALIBRATION).removesuffix(b"\n")
    sequences = max(1, batch // context)
    batch = min(batch, sequences * context)
    collector = _Collector(llama, process_output, InputMoments(band) if hessian else None)
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
        groups = shard_of(list(_groups(tokens, context, chunks, sequences)), shard)
        choices = (batch, process_output, memory if hessian else None, band)
        key = hashlib.sha256(repr((__version__, status, groups, choices)).encode()).hexdigest()
        target = as_path(resume or hessian or text)
        checkpoint = SumsCheckpoint(target, key, stays=resume is not None)
        reading = _TextPasses(session, collector, groups, batch, progress, checkpoint)
        origin = MomentsOrigin(location, content, os.fsdecode(text), context, band)
        entries = reading.entries(as_path(hessian) if hessian else None, origin, memory)
    return Imatrix(entries, (os.fsdecode(text),), chunks_held(entries, context), context)


@dataclass
class _TextPasses:
    """Reads the chunks of a text, once or several times."""

    session: Session
    collector: _Collector
    groups: Sequence[list[list[int]]]
    batch: int
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
        _compute_group(self.session, [chunk[:FEW_TOKENS] for chunk in self.groups[0]], self.batch)
        moments.end_listing()
        passes = moments.passes(memory)
        for number, names in enumerate(passes):
            moments.begin(names)
            self.collector.moments_only = number > 0
            self._read_all(number, len(passes))
            if len(passes) == 1:
                tensors += moments.tensors()
            else:  # frees the memory for the next pass
                self.checkpoint.save(number, self.collector.tensors(), len(self.groups))
                stored = self.checkpoint.stored(number).tensors
                tensors += [stored[tensor.name] for tensor in moments.tensors()]
            if not number:
                entries, self.collector.sums = self.collector.entries(), {}
        save_hessian(target, tensors, moments.owners, origin)
        return entries

    def _read_all(self, number: int, passes: int) -> None:
        """Add up the pass `number` of several, or what its checkpoint does not have yet."""
        total = passes * sum(map(len, self.groups))
        restored, unsaved = self._restore(number), 0
        parted = enumerate(zip(self.groups, parts_of(self.groups), strict=True), 1)
        for place, (group, part) in itertools.islice(parted, restored, None):
            if self.collector.moments is not None:
                self.collector.moments.part = part
            _compute_group(self.session, group, self.batch)
            self.done += len(group)
            unsaved += len(group)
            if self.checkpoint.stays and unsaved >= EVERY_CHUNKS and place < len(self.groups):
                self.checkpoint.save(number, self.collector.tensors(), place)
                unsaved = 0
            if self.progress:
                self.progress(self.done, total)

    def _restore(self, number: int) -> int:
        """Continue with what a checkpoint has of a pass; return the number of its groups."""
        model, count = self.checkpoint.restored(number)
        if model:
            self.collector.restore(model.tensors)
            self.done += sum(map(len, self.groups[:count]))
        return count


def _groups(
    tokens: list[int], context: int, chunks: int | None, sequences: int
) -> Iterator[list[list[int]]]:
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
