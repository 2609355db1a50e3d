"""Compare two models by name: what only one has, what differs, and by how much."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from ggufkit.format.encoding import CANONICAL
from ggufkit.format.html import table
from ggufkit.format.metadata import Metadata
from ggufkit.format.types import LAYOUT_KEYS
from ggufkit.format.values import Value
from ggufkit.models.any_model import AnyModel, opened
from ggufkit.models.byte_ranges import (
    Tally,
    byte_ranges,
    decoded,
    little_endian_bytes,
    reading_threads,
)
from ggufkit.models.model import Model, Tensor
from ggufkit.models.sources import separable
from ggufkit.quants.codec import can_decode
from ggufkit.quants.parallel import Doubles
from ggufkit.system.threads import Progress, in_turn, pool_of

TensorPair: TypeAlias = "tuple[Tensor, Tensor]"
DifferenceKind = Literal["added", "removed", "reshaped", "retyped", "changed"]
RunTasks: TypeAlias = "Callable[[Iterable[Callable[[], Any]]], Iterator[Any]]"  # tasks in threads

TILE_BYTES: Final = 4 << 20  # compared in one task
TILE_ELEMENTS: Final = 1 << 18  # decoded per task; a multiple of every type's block
IN_FLIGHT: Final = 4  # tasks per thread


@dataclass(frozen=True)
class KeyChange:
    """A key that only one model has, or whose type or value differs; None if it is missing.

    `before_type` and `after_type` are the types as `typed` names them, empty if it is missing.
    """

    key: str
    before: Value | None
    after: Value | None
    before_type: str = ""
    after_type: str = ""


@dataclass(frozen=True)
class Deviation:
    """The error of one tensor compared with another, which is the signal.

    `rmse` is the root of the mean squared error, `max_abs` the largest error, `cosine` the cosine
    of the angle between the two (NaN where one is zero), `snr_db` the signal-to-noise ratio in
    decibels (infinite without an error). `unequal` counts elements that differ. `not_finite` counts
    elements that are NaN or infinite in either; they enter no other figure.
    """

    rmse: float
    max_abs: float
    cosine: float
    snr_db: float
    unequal: int
    not_finite: int


@dataclass(frozen=True)
class TensorChange:
    """A tensor that only one model has, or that differs: in shape, else in type, else in data.

    `deviation` is set for tensors of one shape that can be decoded, if data was compared.
    """

    kind: DifferenceKind
    before: Tensor | None
    after: Tensor | None
    deviation: Deviation | None = None

    @property
    def name(self) -> str:
        """The tensor's name."""
        tensor = self.before or self.after
        return tensor.name if tensor else ""


@dataclass(frozen=True)
class Difference:
    """What differs between two models, in the order of the first, then of the second.

    `total` is the deviation of all compared tensors together, as if they were one; None if there
    are none. Tensors that are equal are not part of it.
    """

    keys: tuple[KeyChange, ...]
    tensors: tuple[TensorChange, ...]
    total: Deviation | None = None

    def __bool__(self) -> bool:
        """Whether there is any difference."""
        return bool(self.keys or self.tensors)

    def _repr_html_(self) -> str:
        keys = [(key.key, key.before, key.after) for key in self.keys]
        tensors = [(tensor.name, tensor.kind) for tensor in self.tensors]
        names = table(("key", "before", "after"), keys, len(keys))
        return f"{names}{table(('tensor', 'difference'), tensors, len(tensors))}"


def diff(
    before: AnyModel,
    after: AnyModel,
    *,
    data: bool = True,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Difference:
    """Return what differs from `before` to `after`: keys by type and value, tensors by data.

    The layout makes no difference: files or shards, byte order, version, alignment, and the order
    of keys and tensors. With `data=False`, tensors of one type and shape count as equal and no data
    is read. Data is read in tiles with a few MiB of memory per thread, and the result does not
    depend on `threads`; `progress(done, total)` counts bytes. Raises
    FormatError if a file changes meanwhile.
    """
    with opened(before, "before") as old, opened(after, "after") as new:
        workers = reading_threads((*old.inputs, *new.inputs), threads)
        tally = Tally(progress) if data else None
        common = [(old.tensors[n], new.tensors[n]) for n in old.tensors if n in new.tensors]
        pairs = [pair for pair in common if pair[0].shape == pair[1].shape]
        unequal: set[str] = set()
        sums: dict[str, _DeviationSums] = {}
        if tally:
            with pool_of(workers) as pool:
                run = functools.partial(in_turn, pool, ahead=workers * IN_FLIGHT - 1)
                unequal = _unequal(
                    run, tally, [pair for pair in pairs if pair[0].type == pair[1].type]
                )
                sums = _deviation_sums(
                    run, tally, [pair for pair in pairs if _deviates(pair, unequal)]
                )
        keys = key_changes(old.metadata, new.metadata)
        deviations = {name: total.deviation() for name, total in sums.items()}
        total = functools.reduce(_DeviationSums.plus, sums.values()).deviation() if sums else None
        return Difference(tuple(keys), tuple(_changes(old, new, unequal, deviations)), total)


def key_changes(before: Metadata, after: Metadata) -> Iterator[KeyChange]:
    """Yield the keys that differ in type or value, except layout keys."""
    for key in dict.fromkeys((*before, *after)):
        if key not in LAYOUT_KEYS and _encoded(before, key) != _encoded(after, key):
            types = (m.type_name(key) if key in m else "" for m in (before, after))
            yield KeyChange(key, before.get(key), after.get(key), *types)


def _encoded(metadata: Metadata, key: str) -> bytes:
    """Return type and value of a key as bytes, empty if it is missing."""
    return metadata.arranged([key]).encode(CANONICAL) if key in metadata else b""


def _changes(
    before: Model, after: Model, unequal: set[str], deviations: dict[str, Deviation]
) -> Iterator[TensorChange]:
    olds, news = dict(before.tensors), dict(after.tensors)  # `get` looks for no nearest name
    for name in dict.fromkeys((*olds, *news)):
        old, new = olds.get(name), news.get(name)
        kind = _kind(old, new, is_unequal=name in unequal)
        if kind:
            yield TensorChange(kind, old, new, deviations.get(name))


def _kind(old: Tensor | None, new: Tensor | None, *, is_unequal: bool) -> DifferenceKind | None:
    if old is None or new is None:
        return "added" if old is None else "removed"
    if old.shape != new.shape:
        return "reshaped"
    if old.type != new.type:
        return "retyped"
    return "changed" if is_unequal else None


# Differences of data, tile by tile, in order.


def _unequal(run: RunTasks, tally: Tally, pairs: list[TensorPair]) -> set[str]:
    """Return the names of those pairs of one type whose bytes differ."""
    unequal = {old.name for old, new in pairs if old.nbytes != new.nbytes}  # unknown types may
    tally.expect(sum(old.nbytes for old, _ in pairs))

    def tasks() -> Iterator[Callable[[], tuple[str, int, bool]]]:
        for old, new in pairs:
            for start, stop in byte_ranges(old, TILE_BYTES):
                if old.name not in unequal:
                    yield functools.partial(_tile_differs, old, new, start, stop)

    for name, nbytes, differs in run(tasks()):
        tally.add(nbytes)
        if differs:
            unequal.add(name)
    return unequal


def _tile_differs(old: Tensor, new: Tensor, start: int, stop: int) -> tuple[str, int, bool]:
    differs = not np.array_equal(
        little_endian_bytes(old, start, stop), little_endian_bytes(new, start, stop)
    )
    return old.name, stop - start, differs


def _deviates(pair: TensorPair, unequal: set[str]) -> bool:
    """Whether to compare elements: the tensors differ and can be decoded."""
    old, new = pair
    differs = old.type != new.type or old.name in unequal
    return differs and all(t.type.dtype or can_decode(t.type) for t in pair)


def _deviation_sums(
    run: RunTasks, tally: Tally, pairs: list[TensorPair]
) -> dict[str, _DeviationSums]:
    tally.expect(sum(old.nbytes for old, _ in pairs))
    sums = {old.name: NOTHING for old, _ in pairs}

    def tasks() -> Iterator[Callable[[], tuple[Tensor, _DeviationSums]]]:
        for old, new in pairs:
            for start in range(0, old.elements, TILE_ELEMENTS):
                yield functools.partial(_measured, old, new, start)

    for old, part in run(tasks()):
        sums[old.name] = sums[old.name].plus(part)
        tally.add(old.nbytes * part.elements // old.elements)
    return sums


def _measured(old: Tensor, new: Tensor, start: int) -> tuple[Tensor, _DeviationSums]:
    stop = min(start + TILE_ELEMENTS, old.elements)
    return old, _summed(_decoded(old, start, stop), _decoded(new, start, stop))


def _decoded(tensor: Tensor, start: int, stop: int) -> Doubles:
    """Return elements of the tensor, counted through all rows."""
    tensor = separable(tensor)
    kind = tensor.type
    return decoded(little_endian_bytes(tensor, kind.row_bytes(start), kind.row_bytes(stop)), kind)


class _DeviationSums(NamedTuple):
    """Sums for a deviation over some elements."""

    elements: int
    unequal: int
    not_finite: int
    max_error: float
    error: float  # sums of squares, and of products
    before: float
    after: float
    product: float

    def plus(self, other: _DeviationSums) -> _DeviationSums:
        """Return the sums over both sets of elements."""
        largest = max(self.max_error, other.max_error)
        return _DeviationSums(*map(operator.add, self, other))._replace(max_error=largest)

    def deviation(self) -> Deviation:
        """Return the deviation that the sums give."""
        finite = self.elements - self.not_finite
        norms = math.sqrt(self.before) * math.sqrt(self.after)
        return Deviation(
            rmse=math.sqrt(self.error / finite) if finite else 0.0,
            max_abs=self.max_error,
            cosine=min(max(self.product / norms, -1.0), 1.0) if norms else math.nan,
            snr_db=_decibels(self.before, self.error),
            unequal=self.unequal,
            not_finite=self.not_finite,
        )


NOTHING: Final = _DeviationSums(0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0)


def _decibels(signal: float, noise: float) -> float:
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf


def _summed(old: Doubles, new: Doubles) -> _DeviationSums:
    elements = old.size
    is_nonfinite = ~(np.isfinite(old) & np.isfinite(new))
    nonfinite = 0
    if is_nonfinite.any():
        same = (old == new) | (np.isnan(old) & np.isnan(new))
        nonfinite = int(np.count_nonzero(is_nonfinite & ~same))
        old, new = old[~is_nonfinite], new[~is_nonfinite]
        elements = old.size + nonfinite
    error = new - old
    return _DeviationSums(
        elements=elements,
        unequal=int(np.count_nonzero(error)) + nonfinite,
        not_finite=nonfinite,
        max_error=float(np.abs(error).max(initial=0.0)),
        # NumPy sums, not BLAS: its order of addition depends on threads.
        error=float(np.square(error).sum()),
        before=float(np.square(old).sum()),
        after=float(np.square(new).sum()),
        product=float((old * new).sum()),
    )
