"""Add up the second moments of the inputs of matrices while a model computes."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Hashable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from ggufkit.errors import ValueTypeError
from ggufkit.imatrix.hessian_file import (
    MOMENT_COUNTS,
    MOMENTS,
    blocks_of,
    columns_of,
    folded_shape,
    moments_tensors,
    unfolded,
)
from ggufkit.imatrix.matrix import Counts
from ggufkit.models.layers import tensor_names
from ggufkit.models.model import Tensor
from ggufkit.quants.gptq import cut_columns
from ggufkit.quants.parallel import Floats

if TYPE_CHECKING:
    from ggufkit.llama_cpp.library import GraphTensor

PARTS: Final = 2  # the data to quantize with, and the data held out to judge by
FITTED, HELD_OUT = range(PARTS)
HELD_OUT_EVERY: Final = 8  # one batch in this many is held out
FLOAT_BYTES: Final = 4
OVERFLOW_REMEDY: Final = "The model is damaged or overflows float16; try the model in BF16 or F32"


@dataclass
class InputMoments:
    """Sums of the products of all pairs of inputs, for each matrix and each part of the text.

    With a `band`, pairs count only within blocks of so many columns.
    Matrices with the same inputs share a sum: `owners` has the first of them for each matrix.
    `shapes` has the number of matrices and the width of each owner. Only the owners in `active` are
    added up, into the part `part`; before `end_listing` is called, matrices are only listed.
    """

    band: int | None = None
    owners: dict[str, str] = field(default_factory=dict)
    shapes: dict[str, tuple[int, int]] = field(default_factory=dict)
    active: frozenset[str] = frozenset()
    part: int = 0
    is_listing: bool = True
    sums: dict[str, Floats] = field(default_factory=dict)
    counts: dict[str, Counts] = field(default_factory=dict)
    _inputs: dict[Hashable, str] = field(default_factory=dict)

    def register(self, name: str, inputs: Hashable, shape: tuple[int, int]) -> None:
        """List a matrix, and which one before it has the same `inputs`.

        `shape` is the number of matrices and their width.
        """
        owner = self._inputs.setdefault(inputs, name)
        self.owners.setdefault(name, owner)
        self.shapes.setdefault(owner, shape)

    def end_listing(self) -> None:
        """End the pass that only lists matrices."""
        self.is_listing = False
        self._inputs.clear()

    def passes(self, memory: int) -> list[frozenset[str]]:
        """Return groups of owners whose sums fit into `memory` bytes; each has at least one."""
        groups: list[list[str]] = [[]]
        group_bytes = 0
        for name, (matrices, width) in self.shapes.items():
            columns = columns_of(width, self.band)
            nbytes = PARTS * matrices * width * columns * FLOAT_BYTES
            if groups[-1] and group_bytes + nbytes > memory:
                groups.append([])
                group_bytes = 0
            groups[-1].append(name)
            group_bytes += nbytes
        return [frozenset(group) for group in groups]

    def begin(self, names: frozenset[str]) -> None:
        """Start a pass that adds up the moments of these owners."""
        self.active = names
        self.sums, self.counts = {}, {}
        for name in sorted(names):
            matrices, width = self.shapes[name]
            shape = (PARTS, matrices, width, columns_of(width, self.band))
            self.sums[name] = np.zeros(shape, np.float32)
            self.counts[name] = np.zeros((PARTS, matrices), np.int64)

    def tensors(self) -> list[Tensor]:
        """Return the sums of this pass as a Hessian file has them.

        Raises ValueTypeError if some are infinite or not numbers.
        """
        damaged = [name for name, sums in self.sums.items() if not np.isfinite(sums).all()]
        if damaged:
            message = f"the second moments of {tensor_names(damaged)} are infinite or not numbers"
            raise ValueTypeError(message, remedy=OVERFLOW_REMEDY)
        pairs = (moments_tensors(name, self.sums[name], self.counts[name]) for name in self.sums)
        return [*itertools.chain.from_iterable(pairs)]

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue a pass with the sums that `tensors` returned."""
        for name, sums in self.sums.items():
            stored = tensors[name + MOMENTS].numpy().reshape(-1, *folded_shape(*sums.shape[2:]))
            for matrix, folded in zip(sums.reshape(-1, *sums.shape[2:]), stored, strict=True):
                matrix[:] = unfolded(folded)
            self.counts[name] += tensors[name + MOMENT_COUNTS].numpy()

    def add(self, name: str, matrix: int, rows: Floats) -> None:
        """Add the inputs `rows` of one matrix."""
        if name in self.active:
            with np.errstate(over="ignore", invalid="ignore"):  # `tensors` refuses them
                blocks = blocks_of(self.sums[name][self.part, matrix])
                parts = cut_columns(rows, [len(block) for block in blocks])
                for block, inputs in zip(blocks, parts, strict=True):
                    np.add(block, inputs.T @ inputs, out=block)
            self.counts[name][self.part, matrix] += len(rows)


def inputs_of(node: GraphTensor) -> tuple[int, ...]:
    """Return what identifies the inputs of a product within its graph, and its matrices."""
    sources = (node.src[place] for place in (1, 2))
    addresses = (ctypes.addressof(source.contents) for source in sources if source)
    return (*addresses, *node.src[0].contents.ne[2:])


def require_batches(groups: Sized) -> None:
    """Raise ValueTypeError for a text that leaves nothing to hold out."""
    if len(groups) < PARTS:
        raise ValueTypeError(
            "the text is read in one batch, and second moments need a part that is held out",
            remedy="Use a longer text or fewer shards, or compute fewer tokens at once (batch=...)",
        )


def parts_of(groups: Sized) -> Iterator[int]:
    """Yield the part of each batch: at least one is held out, spread over the text."""
    for number in range(1, len(groups) + 1):
        is_held = number % HELD_OUT_EVERY == 0
        yield int(is_held or (number == len(groups) < HELD_OUT_EVERY))
