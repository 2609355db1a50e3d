"""Sum the squared inputs of matrix products while llama.cpp computes them.

Source: `collect_imatrix` in llama.cpp's `tools/imatrix/imatrix.cpp`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from ggufkit.errors import GGUFError, ValueTypeError
from ggufkit.format.coerce import frozen
from ggufkit.imatrix.matrix import COUNTS, SUMS, Counts, Entry
from ggufkit.imatrix.moments import OVERFLOW_REMEDY, InputMoments, inputs_of
from ggufkit.llama_cpp.library import F32, GraphTensor, Library
from ggufkit.models.model import Tensor
from ggufkit.models.tensors.in_memory import as_tensor
from ggufkit.quants.parallel import Floats

FEW_TOKENS: Final = 16  # a product with fewer tokens is not a layer of the text
OUTPUT: Final = "output.weight"
LAST_NORM: Final = b"result_norm"  # llama.cpp's name of the output matrix's inputs
HALF: Final = ".half_sum2"
EXPERTS: Final = b"MUL_MAT_ID"
PRODUCTS: Final = (b"MUL_MAT", EXPERTS)


class _LastInputs(NamedTuple):
    """The inputs of the matrix that was added up last, and its sums before and after."""

    inputs: tuple[int, ...] = ()
    before: Entry | None = None
    after: Entry | None = None


@dataclass(kw_only=True)
class InputSums:
    """The sums of the squared inputs of each weight by name, and of the products of all inputs.

    With `moments_only` squares are complete, and only products are added.
    """

    moments: InputMoments | None = None
    moments_only: bool = False
    sums: dict[str, Entry] = field(default_factory=dict)
    half: dict[str, Floats] = field(default_factory=dict)  # the sums of the first half of the text

    def keep_half(self) -> None:
        """Keep the sums of the first half of the text, to compare them with those of the whole."""
        self.half = {name: entry.sums for name, entry in self.sums.items()}

    def tensors(self) -> list[Tensor]:
        """Return the sums so far, to be kept."""
        pairs = (
            (as_tensor(name + SUMS, entry.sums), as_tensor(name + COUNTS, entry.counts))
            for name, entry in self.sums.items()
        )
        halves = (as_tensor(name + HALF, sums) for name, sums in self.half.items())
        moments = self.moments.tensors() if self.moments else ()
        return [*itertools.chain.from_iterable(pairs), *halves, *moments]

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue with the sums that `tensors` returned."""
        entries: dict[bytes, Entry] = {}  # of matrices with the same inputs
        for name, tensor in tensors.items():
            if name.endswith(SUMS):
                stem = name.removesuffix(SUMS)
                counts = np.array(tensors[stem + COUNTS].numpy())
                entry = Entry(np.array(tensor.numpy()).reshape(len(counts), -1), counts)
                key = entry.sums.tobytes() + entry.counts.tobytes()
                self.sums[stem] = entries.setdefault(key, entry)
            elif name.endswith(HALF):
                self.half[name.removesuffix(HALF)] = np.array(tensor.numpy())
        if self.moments:
            self.moments.restore(tensors)

    def entries(self) -> dict[str, Entry]:
        """Return the sums, in the order of llama-imatrix."""
        return dict(sorted(self.sums.items(), key=lambda item: item[0].encode()))


@dataclass(kw_only=True)
class Collector(InputSums):
    """Watches llama.cpp compute a graph, and sums the squared inputs of its matrix products.

    Entries are replaced and never changed, so matrices with the same inputs share one.
    """

    llama: Library
    process_output: bool
    _last: _LastInputs = field(default_factory=_LastInputs)
    _operations: dict[int, bytes] = field(default_factory=dict)
    _squares: Floats = field(default_factory=lambda: np.empty(0, np.float32))

    def __call__(self, node: GraphTensor, asks: bool) -> bool:  # noqa: FBT001 (as Watcher has it)
        """Say whether a node is needed (`asks`), or read it and say whether to compute on."""
        operation = self._operations.get(node.op)
        if operation is None:
            operation = self._operations[node.op] = self.llama.functions.ggml_op_name(node.op)
        if operation not in PRODUCTS:  # the output matrix, which costs much, is not needed
            return node.name == LAST_NORM and not self.process_output and asks
        name = _weight_name(node)
        if asks:
            is_collected = operation == EXPERTS or self._is_of_a_layer(name, node)
            return is_collected and self._is_summed_now(name, node)
        before = self.sums.get(name)
        if operation == EXPERTS:
            self._add_experts(name, node)
        else:
            self._add_dense(name, node)
        if not self.moments_only:
            self._last = _LastInputs(inputs_of(node), before, self.sums[name])
        return True

    def _is_of_a_layer(self, name: str, node: GraphTensor) -> bool:
        inputs = node.src[1].contents
        if inputs.ne[1] < FEW_TOKENS or inputs.type != F32:
            return False
        return name.startswith("blk.") or (self.process_output and name == OUTPUT)

    def _is_summed_now(self, name: str, node: GraphTensor) -> bool:
        """Whether the inputs of a product are needed; moments need none of the first graph."""
        if self.moments is not None:
            if self.moments.is_listing:
                weight = node.src[0].contents
                shape = weight.ne[2] * weight.ne[3], weight.ne[0]
                self.moments.register(name, inputs_of(node), shape)
                return False
            if self.moments_only:
                return name in self.moments.active
        return not self._repeats(name, node)

    def _repeats(self, name: str, node: GraphTensor) -> bool:
        """Take over the sums of the matrix before, if both always had the same inputs.

        These are query, key and value, and gate and up: llama.cpp need not stop for each.
        """
        inputs, before, after = self._last
        if after is None or self.sums.get(name) is not before or inputs != inputs_of(node):
            return False
        self.sums[name] = after
        return True

    def _add_dense(self, name: str, node: GraphTensor) -> None:
        weight, inputs = node.src[0].contents, node.src[1].contents
        matrices = weight.ne[2] * weight.ne[3]
        activations = self.llama.array(inputs, np.float32)
        sums, counts = self._before(name, inputs.ne[0] * matrices, 1)
        if len(set(counts.tolist())) == 1:
            counts = counts[:1]
        values = sums.reshape(matrices, -1)
        for i3, i2 in np.ndindex(*activations.shape[:2]):
            place = (i3 % weight.ne[3]) * weight.ne[2] + i2 % weight.ne[2]
            self._add(values[place], name, place, activations[i3, i2])
        self._keep(name, values, counts + math.prod(inputs.ne[1:4]) // matrices)

    def _add_experts(self, name: str, node: GraphTensor) -> None:
        experts, inputs = node.src[0].contents.ne[2], node.src[1].contents
        chosen = self.llama.array(node.src[2].contents, np.int32)[0, 0].T  # (experts used, tokens)
        activations = self.llama.array(inputs, np.float32)[0]  # (tokens, experts used or 1, width)
        sums, counts = self._before(name, inputs.ne[0] * experts, experts)
        if len(counts) == 1:
            counts = np.repeat(counts, experts)
        values = sums.reshape(experts, -1)
        added = np.bincount(chosen.reshape(-1), minlength=experts)
        by_expert = np.split(chosen.argsort(axis=None, kind="stable"), added.cumsum()[:-1])
        for expert in np.flatnonzero(added):
            used, tokens = np.divmod(by_expert[expert], chosen.shape[1])
            rows = activations[tokens, used % activations.shape[1]]
            self._add(values[expert], name, int(expert), rows)
        self._keep(name, values, counts + added)

    def _before(self, name: str, size: int, counts: int) -> tuple[Floats, Counts]:
        """Return a copy of the sums of a weight, and its counts."""
        entry = self.sums.get(name)
        if entry is None:
            return np.zeros(size, np.float32), np.zeros(counts, np.int64)
        if entry.sums.size != size:
            raise GGUFError(f"{name!r} is used with {entry.sums.size} and with {size} inputs")
        return entry.sums.copy(), entry.counts

    def _keep(self, name: str, values: Floats, counts: Counts) -> None:
        if not self.moments_only:
            self.sums[name] = Entry(frozen(values.reshape(len(counts), -1)), frozen(counts))

    def _add(self, sums: Floats, name: str, matrix: int, rows: Floats) -> None:
        """Add the squares of all rows to `sums`, one by one as llama-imatrix does."""
        if self.moments is not None:
            self.moments.add(name, matrix, rows)
            if self.moments_only:
                return
        if self._squares.size < rows.size:
            self._squares = np.empty(rows.size, np.float32)
        squares = self._squares[: rows.size].reshape(rows.shape)
        with np.errstate(over="ignore", invalid="ignore"):  # refused below
            np.multiply(rows, rows, out=squares)
            squares[0] += sums
            np.add.reduce(squares, axis=0, out=sums)
        require_finite(sums, name)


def require_finite(squares: Floats, name: str) -> None:
    """Raise ValueTypeError for sums of squares that are infinite or not numbers."""
    if not np.isfinite(squares).all():
        message = f"the activations of {name!r} are infinite or not numbers"
        raise ValueTypeError(message, remedy=OVERFLOW_REMEDY)


def _weight_name(node: GraphTensor) -> str:
    """Return the name of a product's weight; devices add to it: "CPU#blk.0.x.weight#0"."""
    name: str = node.src[0].contents.name.decode(errors="replace")
    parts = name.split("#")
    return parts[1] if len(parts) > 1 else name
