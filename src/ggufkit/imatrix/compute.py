"""Compute an importance matrix: run llama.cpp over a text and add up the squared activations.

Source: `collect_imatrix` and `compute_imatrix` in llama.cpp's `tools/imatrix/imatrix.cpp`.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ggufkit.errors import GGUFError, ValueTypeError
from ggufkit.imatrix.matrix import CHUNK_SIZE, Counts, Entry, Imatrix, chunks_held
from ggufkit.llama_cpp.library import F32, GraphTensor, Library, library
from ggufkit.llama_cpp.session import Session
from ggufkit.models.open import open as open_model
from ggufkit.quants.parallel import Floats
from ggufkit.system.cpu import worker_count
from ggufkit.system.descriptors import AnyPath, as_path
from ggufkit.system.text_file import Most, read_small
from ggufkit.system.threads import Progress

BATCH: Final = 2048  # tokens that llama-imatrix computes in one pass
FEW_TOKENS: Final = 16  # products of fewer tokens are not part of reading a text
OUTPUT: Final = "output.weight"


@dataclass
class _ActivationSums:
    """The sum of squared activations of one weight, flat, and the number of tokens summed."""

    values: Floats
    counts: Counts


@dataclass
class _Collector:
    """Watches the computation of a graph, and sums the inputs of its matrix products."""

    llama: Library
    process_output: bool
    sums: dict[str, _ActivationSums] = field(default_factory=dict)

    def __call__(self, node: GraphTensor, asks: bool) -> bool:  # noqa: FBT001 (as Watcher has it)
        """Say whether a node is needed (`ask`), or read it."""
        operation = self.llama.functions.ggml_op_name(node.op)
        if asks:
            return operation == b"MUL_MAT_ID" or (operation == b"MUL_MAT" and self._wants(node))
        name = _weight_name(node.src[0].contents.name.decode(errors="replace"))
        if operation == b"MUL_MAT_ID":
            self._add_experts(name, node)
        else:
            self._add_dense(name, node)
        return True

    def _wants(self, node: GraphTensor) -> bool:
        inputs = node.src[1].contents
        if inputs.ne[1] < FEW_TOKENS or inputs.type != F32:
            return False
        name = _weight_name(node.src[0].contents.name.decode(errors="replace"))
        return name.startswith("blk.") or (self.process_output and name == OUTPUT)

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
            values[place] = _with_squares(values[place], activations[i3, i2], name)
        sums.counts = sums.counts + math.prod(inputs.ne[1:4]) // matrices

    def _add_experts(self, name: str, node: GraphTensor) -> None:
        """Add each token's activations to the experts that the router chose for it."""
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
            values[expert] = _with_squares(values[expert], rows, name)
        sums.counts = sums.counts + np.bincount(chosen.reshape(-1), minlength=experts)

    def _sums(self, name: str, size: int, counts: int) -> _ActivationSums:
        known = self.sums.get(name)
        if known is None:
            known = _ActivationSums(np.zeros(size, np.float32), np.zeros(counts, np.int64))
            self.sums[name] = known
        if known.values.size != size:
            raise GGUFError(f"{name!r} is used with {known.values.size} and with {size} inputs")
        return known

    def entries(self) -> dict[str, Entry]:
        """Return the sums as entries."""
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


def _weight_name(name: str) -> str:
    """Return a weight's name without what devices add to it: "CPU#blk.0.x.weight#0"."""
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
    process_output: bool = False,
    parse_special: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Imatrix:
    """Run `model` over the file `text` and return its importance matrix, as llama-imatrix does.

    The text is cut into chunks of `context` tokens. At most `chunks` of them are computed, `batch`
    tokens at a time; the first `from_chunk` chunks are skipped. `process_output` collects data for
    output.weight too, and `parse_special` reads the names of special tokens as such.
    `progress(done, total)` counts chunks. Raises MissingExtraError without the
    extra `llama`, GGUFError with llama.cpp's message where it fails, FormatError for a file that is
    not a model, ValueTypeError for a text that is too short.
    """
    location = as_path(model)
    llama = library()
    open_model(location).close()  # raises a typed error where llama.cpp would abort
    content = read_small(as_path(text), Most.CALIBRATION).removesuffix(b"\n")
    sequences = max(1, batch // context)
    batch = min(batch, sequences * context)
    collector = _Collector(llama, process_output)
    with Session(
        location,
        length=context,
        batch=batch,
        sequences=sequences,
        threads=worker_count(threads),
        watcher=collector,
        llama=llama,
    ) as session:
        tokens = session.tokenize(content, special=parse_special)[from_chunk * context :]
        groups = list(_groups(tokens, context, chunks, sequences))
        total = sum(map(len, groups))
        for done, group in zip(itertools.accumulate(map(len, groups)), groups, strict=True):
            _read(session, group, batch)
            if progress:
                progress(done, total)
    entries = collector.entries()
    return Imatrix(entries, (os.fsdecode(text),), chunks_held(entries, context), context)


def _groups(
    tokens: list[int], context: int, chunks: int | None, sequences: int
) -> Iterator[list[list[int]]]:
    """Yield the chunks of each batch."""
    held = len(tokens) // context
    if not held:
        raise ValueTypeError(
            f"the text has {len(tokens)} tokens, but a chunk needs {context}",
            remedy="Use a longer text, or fewer tokens per chunk",
        )
    total = held if chunks is None else min(chunks, held)
    for first in range(0, total, sequences):
        last = min(first + sequences, total)
        yield [tokens[at * context : (at + 1) * context] for at in range(first, last)]


def _read(session: Session, group: list[list[int]], batch: int) -> None:
    """Compute chunks as parallel sequences, starting with an empty cache."""
    session.clear()
    beginning = session.beginning
    if beginning is not None:
        group = [[beginning, *chunk[1:]] for chunk in group]
    length = len(group[0])
    for start in range(0, length, batch):
        session.decode([chunk[start : start + batch] for chunk in group], start)
