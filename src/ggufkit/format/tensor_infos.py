"""Tensor infos: from the scanner's table to names, shapes, sizes, positions and findings.

Tables are processed as NumPy columns; single tensors are examined only if something is unusual,
so that a header of a million tensors costs little more than its names.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from operator import add
from typing import Any, Final

import numpy as np

from ggufkit.format import types
from ggufkit.format.encoding import Encoding, is_utf8
from ggufkit.format.types import TensorType
from ggufkit.rules.findings import Findings
from ggufkit.system.mapped_file import Data

Table = np.ndarray[Any, np.dtype[Any]]

GGML_MAX_NAME_BYTES: Final = 63  # GGML_MAX_NAME counts a terminator
# NumPy counts the bytes of an array of eight-byte elements in 63 bits, empty dimensions aside.
MAX_ELEMENTS: Final = 2**60 - 1
# A file cut short still begins as it should, gaps included. Tensors that claim to reach further
# than this many times their total bytes are not truncated: their offsets are wrong.
PLAUSIBLE_REACH: Final = 2


@dataclass(frozen=True)
class Infos:
    """The tensor infos of one header: the scanner's table, and the name and shape of each row.

    `rows` are the types of numbers that mean another type in this file than in the table of types.
    `fits` has how many tensors each dialect explains, -1 if one contradicts it, where programs
    share a number of this file.
    """

    table: Table
    encoding: Encoding
    names: list[str]
    shapes: list[tuple[int, ...]]
    rows: Mapping[int, TensorType] = dataclasses.field(default_factory=dict)
    fits: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def read(cls, data: Data, table: Table, encoding: Encoding) -> Infos:
        """Read names and shapes without checks."""
        return cls(table, encoding, _names(data, table), _shapes(data, table, encoding))

    def types(self) -> list[TensorType]:
        """Return the type of each tensor."""
        kinds, places = self.kinds
        return [kinds[place] for place in places.tolist()]

    @functools.cached_property
    def kinds(self) -> tuple[list[TensorType], Table]:
        """The types that occur, by their numbers, and the index among them for each tensor."""
        numbers, places = np.unique(self.table["type"], return_inverse=True)
        return [self.rows.get(key) or types.tensor_type(key) for key in numbers.tolist()], places

    def of_kinds(self, value: Callable[[TensorType], int]) -> Table:
        """Return a value of the type of each tensor."""
        kinds, places = self.kinds
        values: Table = np.array([value(kind) for kind in kinds], "u8")[places]
        return values

    def place(self, index: int, field: str) -> int:
        """Return where in the file a `field` of a tensor lies: name, dims, type or offset."""
        row = self.table[index]
        if field == "name":
            return int(row["name_at"]) - self.encoding.count_bytes
        after_dims = int(row["dims_at"]) + int(row["n_dims"]) * self.encoding.count_bytes
        places = {"dims": int(row["dims_at"]) - 4, "type": after_dims, "offset": after_dims + 4}
        return places[field]


def _names(data: Data, table: Table) -> list[str]:
    starts = table["name_at"]
    spans = zip(starts.tolist(), (starts + table["name_len"]).tolist(), strict=True)
    return [data[start:stop].decode("utf-8", "surrogateescape") for start, stop in spans]


def _shapes(data: Data, table: Table, encoding: Encoding) -> list[tuple[int, ...]]:
    places, counts = table["dims_at"].tolist(), table["n_dims"].tolist()
    form = encoding.mark + "{}" + ("Q" if encoding.wide else "I")
    unpack = {count: struct.Struct(form.format(count)).unpack_from for count in set(counts)}
    shapes = (
        unpack[count](data, offset)[::-1] for offset, count in zip(places, counts, strict=True)
    )
    shared: dict[tuple[int, ...], tuple[int, ...]] = {}  # layers share shapes
    return [shared.setdefault(shape, shape) for shape in shapes]


def about_names(infos: Infos, findings: Findings) -> None:
    """Find empty, repeated, overlong and undecodable names, and NUL in them."""
    text = "".join(infos.names)
    if (  # all names are certainly fine
        len(set(infos.names)) == len(infos.names)
        and text.isprintable()
        and int(infos.table["name_len"].min(initial=1)) > 0
        and int(infos.table["name_len"].max(initial=0)) <= GGML_MAX_NAME_BYTES
    ):
        return
    places = (infos.table["name_at"] - np.uint64(infos.encoding.count_bytes)).tolist()
    sizes = infos.table["name_len"].tolist()
    names_seen: set[str] = set()
    for name, size, offset in zip(infos.names, sizes, places, strict=True):
        for rule, details in _broken_by(name, size, name in names_seen):
            findings.add(rule, offset, name=name, **details)
        names_seen.add(name)


def _broken_by(name: str, size: int, is_known: bool) -> Iterator[tuple[str, dict[str, int]]]:  # noqa: FBT001
    if not name:
        yield "name-empty", {}
    if is_known:
        yield "name-duplicate", {}
    if size > types.MAX_NAME_BYTES:
        yield "name-size", {"size": size, "limit": types.MAX_NAME_BYTES}
    elif size > GGML_MAX_NAME_BYTES:
        yield "name-size-ggml", {"size": size, "limit": GGML_MAX_NAME_BYTES}
    if "\0" in name:
        yield "name-nul", {}
    if not is_utf8(name):
        yield "name-utf8", {}


def about_shapes(infos: Infos, findings: Findings) -> None:
    """Find shapes that overflow, do not divide into blocks, are empty, or unknown to ggml."""
    table = infos.table
    block_size = infos.of_kinds(lambda kind: kind.block_size)
    is_foreign = infos.of_kinds(lambda kind: kind.program is not None) > 0
    is_opaque = (block_size == 0) & ~is_foreign
    is_listed = infos.of_kinds(lambda kind: kind.id in types.TENSOR_TYPES) > 0
    is_removed = infos.of_kinds(lambda kind: types.TENSOR_TYPES.get(kind.id) == kind) > 0
    is_vast = _is_vast(infos)
    ragged = table["width"] % np.maximum(block_size, 1) != 0
    for rule, field, mask in (
        ("shape-overflow", "dims", is_vast),
        ("row-width", "dims", ragged & ~is_vast),
        ("tensor-empty", "dims", table["elements"] == 0),
        ("dims-ggml", "dims", table["n_dims"] > types.MAX_DIMS),
        ("type-removed", "type", is_opaque & is_removed),
        ("type-unknown", "type", is_opaque & ~is_listed),
        ("type-program", "type", is_foreign),
    ):
        for index in findings.worth_adding(rule, np.flatnonzero(mask).tolist()):
            findings.add(rule, infos.place(index, field), **_shape_details(infos, index))


def _is_vast(infos: Infos) -> Table:
    """Tell which shapes are beyond MAX_ELEMENTS, not counting dimensions that are 0."""
    is_vast: Table = infos.table["elements"] > MAX_ELEMENTS
    for index in np.flatnonzero(infos.table["elements"] == 0).tolist():
        is_vast[index] = math.prod(filter(None, infos.shapes[index])) > MAX_ELEMENTS
    return is_vast


def _shape_details(infos: Infos, index: int) -> dict[str, object]:
    kinds, places = infos.kinds
    shape, kind = infos.shapes[index], kinds[int(places[index])]
    return {
        "name": infos.names[index],
        "shape": shape,
        "dims": len(shape),
        "limit": types.MAX_DIMS,
        "width": shape[-1] if shape else 1,
        "type": kind,
        "program": kind.program,
        "id": kind.id,
        "block": kind.block_size,
    }


@dataclass(frozen=True)
class Places:
    """Where tensors, whose shapes are right, lie in a data section of `room` bytes.

    `starts` and `stops` are relative to the data; `room` is negative where the file ends before.
    """

    infos: Infos
    room: int
    starts: list[int]
    stops: list[int]
    sizes: list[int]
    row_bytes: list[int]

    @classmethod
    def of(cls, infos: Infos, room: int) -> Places:
        """Compute sizes from types and shapes, and positions from the offsets."""
        starts = infos.table["offset"].tolist()
        sizes, row_bytes = _sizes(infos, room)
        return cls(infos, room, starts, list(map(add, starts, sizes)), sizes, row_bytes)

    def tensor(self, index: int) -> tuple[str, TensorType, tuple[int, ...], int, int, int]:
        """Return name, type, shape (in NumPy order), start, bytes and bytes per row of one."""
        infos = self.infos
        kind = self.kinds[index]
        place = (self.starts[index], self.sizes[index], self.row_bytes[index])
        return infos.names[index], kind, infos.shapes[index], *place

    @functools.cached_property
    def kinds(self) -> list[TensorType]:
        """The type of each tensor."""
        return self.infos.types()

    @functools.cached_property
    def end(self) -> int:
        """The end of the last tensor."""
        return max(self.stops, default=0)

    def beyond(self) -> list[int]:
        """Return the tensors that are not wholly inside the data."""
        return [index for index, stop in enumerate(self.stops) if stop > self.room]

    def overlaps(self) -> Iterator[tuple[int, int]]:
        """Yield pairs of tensors where the second begins before the first ends."""
        furthest = None
        filled = (index for index, size in enumerate(self.sizes) if size)
        for index in sorted(filled, key=self.starts.__getitem__):
            if furthest is not None and self.starts[index] < self.stops[furthest]:
                yield furthest, index
            if furthest is None or self.stops[index] > self.stops[furthest]:
                furthest = index


def _sizes(infos: Infos, room: int) -> tuple[list[int], list[int]]:
    """Return bytes and bytes per row of each tensor.

    An opaque tensor reaches to its neighbour or the end of the data, all in one row.
    """
    table, block_size = infos.table, infos.of_kinds(lambda kind: kind.block_size)
    block_bytes = infos.of_kinds(lambda kind: kind.block_bytes)
    is_opaque = (block_size == 0) & (table["elements"] > 0)
    block_size = np.maximum(block_size, 1)
    prefix = infos.of_kinds(lambda kind: kind.row_prefix)
    rows = prefix + table["width"] // block_size * block_bytes
    sizes = table["elements"] // block_size * block_bytes
    sizes += table["elements"] // np.maximum(table["width"], 1) * prefix
    if is_opaque.any():
        sizes[is_opaque] = rows[is_opaque] = reaches(table["offset"], max(room, 0))[is_opaque]
    return sizes.tolist(), rows.tolist()


def reaches(starts: Table, room: int) -> Table:
    """Return the bytes from each start to the next one, or to the end; one at least."""
    places = np.unique(starts)
    ends = np.append(places, np.uint64(room))[np.searchsorted(places, starts, side="right")]
    return np.where(ends > starts, ends - starts, np.uint64(1))


def about_places(places: Places, alignment: int, data_offset: int, findings: Findings) -> None:
    """Find tensors that are misaligned, out of order, overlapping or not in the file."""
    *expected, total = accumulate(
        (types.padded(size, alignment) for size in places.sizes), initial=0
    )
    is_cut = True
    if places.starts != expected:
        _about_order(places, expected, alignment, findings)
        is_cut = places.end <= total * PLAUSIBLE_REACH and not any(places.overlaps())
        names = places.infos.names
        for first, second in places.overlaps():
            if max(places.stops[first], places.stops[second]) <= places.room:
                offset = places.infos.place(second, "offset")
                findings.add("tensor-overlap", offset, name=names[first], other=names[second])
    if places.starts and places.end > places.room:
        about_end = _about_missing if is_cut else _about_beyond
        about_end(places, data_offset, findings)


def _about_order(places: Places, expected: list[int], alignment: int, findings: Findings) -> None:
    infos, starts = places.infos, places.starts
    rule = "offset-alignment"
    misaligned = np.flatnonzero(infos.table["offset"] % alignment).tolist()
    for index in findings.worth_adding(rule, misaligned):
        findings.add(
            rule,
            infos.place(index, "offset"),
            name=infos.names[index],
            start=starts[index],
            alignment=alignment,
        )
    first = next(i for i, start in enumerate(starts) if start != expected[i])
    findings.add(
        "tensor-order",
        infos.place(first, "offset"),
        name=infos.names[first],
        start=starts[first],
        expected=expected[first],
    )


def _about_missing(places: Places, data_offset: int, findings: Findings) -> None:
    nbytes, needed = data_offset + places.room, data_offset + places.end
    cut = places.beyond()
    findings.add(
        "data-truncated",
        nbytes,
        size=nbytes,
        needed=needed,
        missing=needed - nbytes,
        percent=100 * (needed - nbytes) / needed,
        count=len(cut),
        total=len(places.starts),
        name=places.infos.names[cut[0]],
    )


def _about_beyond(places: Places, data_offset: int, findings: Findings) -> None:
    rule = "tensor-beyond-end"
    for index in findings.worth_adding(rule, places.beyond()):
        findings.add(
            rule,
            places.infos.place(index, "offset"),
            name=places.infos.names[index],
            start=data_offset + places.starts[index],
            stop=data_offset + places.stops[index],
            nbytes=data_offset + places.room,
        )
