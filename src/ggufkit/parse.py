"""Bytes to header: the native scan, and everything that can be said without tensor data.

Nothing here raises for what is wrong in a file: findings are collected, and the header holds
what could be read.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ggufkit import _native
from ggufkit.findings import Finding, finding
from ggufkit.metadata import Encoded, Metadata, value_types
from ggufkit.model import is_alignment
from ggufkit.sniff import HEAD_BYTES, identify
from ggufkit.types import (
    DEFAULT_ALIGNMENT,
    MAX_DIMS,
    MAX_KEY_BYTES,
    MAX_NAME_BYTES,
    TENSOR_TYPES,
    TensorType,
    ValueType,
    tensor_type,
)
from ggufkit.values import ByteOrder, Layout, require_uint32

if TYPE_CHECKING:
    from typing_extensions import Buffer

Table = np.ndarray[Any, np.dtype[Any]]

MAX_FINDINGS: Final = 1000  # of one rule in one file: enough for people, and memory stays small
MAX_BYTES: Final = 2**63 - 1  # what file offsets can count
GGML_MAX_NAME_BYTES: Final = 63  # GGML_MAX_NAME counts a terminator
GGML_MAX_ARRAY: Final = 2**30  # entries in a string or array that ggml reads
_KEY_FORM: Final = re.compile(r"[a-z0-9_\-]+(\.[a-z0-9_\-]+)*")

KEY_RECORD: Final = np.dtype(
    [
        ("key_at", "u8"),
        ("key_len", "u8"),
        ("value_type", "u4"),
        ("element_type", "u4"),
        ("count", "u8"),
        ("value_at", "u8"),
        ("end", "u8"),
    ]
)
TENSOR_RECORD: Final = np.dtype(
    [
        ("name_at", "u8"),
        ("name_len", "u8"),
        ("dims_at", "u8"),
        ("width", "u8"),
        ("elements", "u8"),
        ("offset", "u8"),
        ("n_dims", "u4"),
        ("type", "u4"),
    ]
)
_KNOWN_IDS: Final = max(TENSOR_TYPES) + 2  # the last entry stands for every unknown id
_BLOCK_SIZE: Final = np.zeros(_KNOWN_IDS, "u8")
_BLOCK_BYTES: Final = np.zeros(_KNOWN_IDS, "u8")
for _row in TENSOR_TYPES.values():
    _BLOCK_SIZE[_row.id] = _row.block_size
    _BLOCK_BYTES[_row.id] = _row.block_bytes


@dataclass(frozen=True)
class TensorInfo:
    """A tensor as the header has it: `start` is relative to the data, `shape` in NumPy order."""

    name: str
    type: TensorType
    shape: tuple[int, ...]
    start: int
    nbytes: int


@dataclass(frozen=True)
class Header:
    """What stands before the tensor data of one file, and what was found wrong with it.

    `end` is the byte after the last tensor info, `data_offset` the aligned beginning of the
    data. `end_padded` tells whether the file ends on its alignment, as ggml writes it.
    """

    nbytes: int
    version: int = 0
    byte_order: ByteOrder = "little"
    metadata: Metadata = field(default_factory=Metadata)
    tensors: tuple[TensorInfo, ...] = ()
    info_offsets: tuple[int, ...] = ()
    alignment: int = DEFAULT_ALIGNMENT
    end: int = 0
    data_offset: int = 0
    end_padded: bool = True
    findings: tuple[Finding, ...] = ()

    @property
    def data_nbytes(self) -> int:
        """Bytes from the beginning of the tensor data to the end of the file."""
        return self.nbytes - self.data_offset


def parse(data: Buffer, nbytes: int) -> Header:
    """Return the header of a file of `nbytes` bytes, whose whole content `data` is."""
    if nbytes == 0:
        return Header(0, findings=(finding("empty", 0),))
    version, big, _, _, end, key_table, tensor_table, problems = _native.scan(data)
    if any(rule == "magic" for rule, *_ in problems):
        found = identify(bytes(memoryview(data)[:HEAD_BYTES]), nbytes)
        return Header(nbytes, findings=(found,))
    layout = Layout("big" if big else "little", wide=version != 1)
    findings = [finding(rule, at, a=a, b=b) for rule, at, a, b in problems]
    metadata = _metadata(data, np.frombuffer(key_table, KEY_RECORD), layout, findings)
    if version:
        findings += _about_version(version, layout)
    header = Header(nbytes, version, layout.byte_order, metadata, end=end)
    if any(row.severity == "error" for row in findings):
        return _with(header, findings=tuple(findings))
    return _with_tensors(header, data, np.frombuffer(tensor_table, TENSOR_RECORD), findings)


def _with(header: Header, **changes: Any) -> Header:
    return Header(**{**header.__dict__, **changes})


def _about_version(version: int, layout: Layout) -> Iterator[Finding]:
    if version == 1:
        yield finding("version-1", 4)
    if layout.byte_order == "big":
        yield finding("big-endian", 4)
        if version < 3:  # noqa: PLR2004
            yield finding("version-byte-order", 4, version=version)


# Metadata.


def _metadata(data: Buffer, table: Table, layout: Layout, findings: list[Finding]) -> Metadata:
    view = memoryview(data)
    entries: dict[str, Encoded] = {}
    for key_at, key_len, kind, element, count, value_at, end in table.tolist():
        raw = bytes(view[key_at : key_at + key_len])
        key = raw.decode("utf-8", "surrogateescape")
        field_at = key_at - layout.count_bytes
        findings += _about_key(key, raw, field_at, key in entries)
        value, inner = value_types(kind, element)
        findings += _about_value(key, inner, count, value_at)
        entries[key] = Encoded(data, layout, value, inner, count, key_at + key_len, value_at, end)
    return Metadata.encoded(entries.items())


def _about_key(key: str, raw: bytes, at: int, is_known: bool) -> Iterator[Finding]:
    if not raw:
        yield finding("key-empty", at)
    if is_known:
        yield finding("key-duplicate", at, key=key)
    if len(raw) > MAX_KEY_BYTES:
        yield finding("key-size", at, size=len(raw), limit=MAX_KEY_BYTES)
        return
    if b"\0" in raw:
        yield finding("key-nul", at, key=key)
    elif not _is_utf8(key):
        yield finding("key-utf8", at, key=key)
    elif raw and not _KEY_FORM.fullmatch(key):
        yield finding("key-form", at, key=key)


def _about_value(key: str, inner: ValueType | None, count: int, at: int) -> Iterator[Finding]:
    if inner is ValueType.ARRAY:
        yield finding("array-nested", at, key=key)
    if count > GGML_MAX_ARRAY:
        yield finding("array-long", at, key=key, limit=GGML_MAX_ARRAY)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _alignment(metadata: Metadata, findings: list[Finding]) -> int:
    entry = metadata._entries.get("general.alignment")  # noqa: SLF001 (its place is wanted)
    if not isinstance(entry, Encoded):
        return DEFAULT_ALIGNMENT
    if entry.type is not ValueType.UINT32:
        findings.append(finding("alignment-type", entry.start, type=entry.type_name))
        return DEFAULT_ALIGNMENT
    number = require_uint32(entry.decode()) or 0
    if is_alignment(number):
        return number
    findings.append(finding("alignment-value", entry.value_at, alignment=number))
    return DEFAULT_ALIGNMENT


# Tensor infos.


def _with_tensors(header: Header, data: Buffer, table: Table, findings: list[Finding]) -> Header:
    alignment = _alignment(header.metadata, findings)
    data_offset = min(padded(header.end, alignment), header.nbytes)
    layout = Layout(header.byte_order, wide=header.version != 1)
    names = _names(data, table, layout, findings)
    shapes = _shapes(data, table, layout)
    findings += _about_shapes(names, shapes, table)
    if any(row.severity == "error" for row in findings):
        return _with(header, data_offset=data_offset, findings=tuple(findings))
    room = header.nbytes - data_offset
    sizes = _sizes(table, room)
    findings += _about_places(names, sizes, table, alignment, header.nbytes, data_offset)
    starts = table["offset"].tolist()
    infos = tuple(
        TensorInfo(name, tensor_type(kind), shape, start, size)
        for name, kind, shape, start, size in zip(
            names, table["type"].tolist(), shapes, starts, sizes.tolist(), strict=True
        )
    )
    data_end = max(itertools.chain([0], (info.start + info.nbytes for info in infos)))
    file_end = data_offset + padded(data_end, alignment) if infos else padded(header.end, alignment)
    return _with(
        header,
        tensors=infos,
        info_offsets=tuple((table["name_at"] - np.uint64(layout.count_bytes)).tolist()),
        alignment=alignment,
        data_offset=data_offset,
        end_padded=header.nbytes >= file_end,
        findings=tuple(findings),
    )


def padded(number: int, alignment: int) -> int:
    """Return the first multiple of `alignment` (a power of two) from `number` on."""
    return number + -number % alignment


def _names(data: Buffer, table: Table, layout: Layout, findings: list[Finding]) -> list[str]:
    view = memoryview(data)
    names: list[str] = []
    seen: set[str] = set()
    for at, length in zip(table["name_at"].tolist(), table["name_len"].tolist(), strict=True):
        raw = bytes(view[at : at + length])
        name = raw.decode("utf-8", "surrogateescape")
        if not raw or length > GGML_MAX_NAME_BYTES or b"\0" in raw or name in seen or (
            not name.isascii() and not _is_utf8(name)
        ):
            findings += _about_name(name, raw, at - layout.count_bytes, name in seen)
        seen.add(name)
        names.append(name)
    return names


def _about_name(name: str, raw: bytes, at: int, is_known: bool) -> Iterator[Finding]:
    size = len(raw)
    if not raw:
        yield finding("name-empty", at)
    if is_known:
        yield finding("name-duplicate", at, name=shown(name))
    if size > MAX_NAME_BYTES:
        yield finding("name-size", at, name=shown(name), size=size, limit=MAX_NAME_BYTES)
    elif size > GGML_MAX_NAME_BYTES:
        yield finding("name-size-ggml", at, name=name, size=size, limit=GGML_MAX_NAME_BYTES)
    if b"\0" in raw:
        yield finding("name-nul", at, name=shown(name))
    elif not _is_utf8(name):
        yield finding("name-utf8", at, name=shown(name))


def shown(name: str) -> str:
    """Return a name short enough for a message."""
    return name if len(name) <= 2 * MAX_NAME_BYTES else name[:MAX_NAME_BYTES] + "..."


def _shapes(data: Buffer, table: Table, layout: Layout) -> list[tuple[int, ...]]:
    shapes: list[tuple[int, ...]] = []
    view = memoryview(data)
    order = layout.byte_order
    size = layout.count_bytes
    for at, n_dims in zip(table["dims_at"].tolist(), table["n_dims"].tolist(), strict=True):
        fields = view[at : at + size * n_dims]
        dims = [int.from_bytes(fields[i : i + size], order) for i in range(0, len(fields), size)]
        shapes.append(tuple(reversed(dims)))
    return shapes


def _blocks(table: Table) -> tuple[Table, Table, Table]:
    """Return elements and bytes per block (0 for opaque types), and blocks per tensor."""
    ids = np.minimum(table["type"], _KNOWN_IDS - 1)
    block_size = _BLOCK_SIZE[ids]
    blocks = table["elements"] // np.maximum(block_size, np.uint64(1))
    return block_size, _BLOCK_BYTES[ids], blocks


def _about_shapes(
    names: list[str], shapes: list[tuple[int, ...]], table: Table
) -> Iterator[Finding]:
    block_size, block_bytes, blocks = _blocks(table)
    limit = np.uint64(MAX_BYTES)
    too_large = (table["elements"] > limit) | (
        blocks > limit // np.maximum(block_bytes, np.uint64(1))
    )
    ragged = table["width"] % np.maximum(block_size, np.uint64(1)) != 0
    empty = table["elements"] == 0
    unusual = too_large | ragged | empty | (block_size == 0) | (table["n_dims"] > MAX_DIMS)
    for index in np.flatnonzero(unusual)[:MAX_FINDINGS].tolist():
        at = int(table["dims_at"][index]) - 4
        name, shape = names[index], shapes[index]
        kind = tensor_type(int(table["type"][index]))
        nonzero = math.prod(dim for dim in shape if dim)
        if too_large[index] or nonzero * max(kind.block_bytes, 1) > MAX_BYTES:
            yield finding("shape-overflow", at, name=name, shape=shape)
            continue
        if ragged[index]:
            width, block = shape[-1] if shape else 1, kind.block_size
            yield finding("row-width", at, name=name, width=width, block=block, type=kind)
        if empty[index]:
            yield finding("tensor-empty", at, name=name, shape=shape)
        if kind.is_opaque:
            rule = "type-removed" if kind.id in TENSOR_TYPES else "type-unknown"
            yield finding(rule, at, name=name, type=f"{kind.id} ({kind})")
        if len(shape) > MAX_DIMS:
            yield finding("dims-ggml", at, name=name, dims=len(shape), limit=MAX_DIMS)


def _sizes(table: Table, room: int) -> Table:
    """Return bytes per tensor; an opaque one reaches to its neighbour or the end of the data."""
    block_size, block_bytes, blocks = _blocks(table)
    sizes = blocks * block_bytes
    opaque = (block_size == 0) & (table["elements"] > 0)
    if opaque.any():
        places = np.unique(np.append(table["offset"], np.uint64(room)))
        nearest = np.searchsorted(places, table["offset"], side="right")
        following = places[np.minimum(nearest, len(places) - 1)]
        reach = np.where(following > table["offset"], following - table["offset"], np.uint64(0))
        sizes = np.where(opaque, reach, sizes)
    return sizes


def _about_places(  # noqa: PLR0913 (one table against one file)
    names: list[str], sizes: Table, table: Table, alignment: int, nbytes: int, data_offset: int
) -> Iterator[Finding]:
    starts = table["offset"]
    field_at = table["dims_at"] - np.uint64(4)
    for index in np.flatnonzero(starts % np.uint64(alignment))[:MAX_FINDINGS].tolist():
        start, at = int(starts[index]), int(field_at[index])
        yield finding("offset-alignment", at, name=names[index], start=start, alignment=alignment)
    expected = list(itertools.accumulate((padded(n, alignment) for n in sizes.tolist()), initial=0))
    misplaced = next(
        (i for i, (a, b) in enumerate(zip(starts.tolist(), expected, strict=False)) if a != b), None
    )
    if misplaced is not None:
        yield finding(
            "tensor-order",
            int(field_at[misplaced]),
            name=names[misplaced],
            start=int(starts[misplaced]),
            expected=expected[misplaced],
        )
    beyond = _beyond(starts, sizes, nbytes - data_offset)
    if beyond and misplaced is None:
        yield _truncated(names, beyond, nbytes, data_offset + expected[-1])
    elif beyond:
        for index in beyond[:MAX_FINDINGS]:
            start, at = int(starts[index]), int(field_at[index])
            yield finding("tensor-beyond-end", at, name=names[index], start=start)
    else:
        yield from _overlaps(names, starts, sizes, field_at)


def _beyond(starts: Table, sizes: Table, room: int) -> list[int]:
    """Return the tensors that do not lie wholly within the `room` bytes of data."""
    inside = (starts <= np.uint64(room)) & (sizes <= np.uint64(room) - np.minimum(starts, room))
    return [int(index) for index in np.flatnonzero(~inside)]


def _truncated(names: list[str], beyond: list[int], nbytes: int, needed: int) -> Finding:
    missing = needed - nbytes
    return finding(
        "data-truncated",
        nbytes,
        size=nbytes,
        needed=needed,
        missing=missing,
        percent=f"{100 * missing / needed:.1f} %",
        count=len(beyond),
        total=len(names),
        name=names[beyond[0]],
    )


def _overlaps(
    names: list[str], starts: Table, sizes: Table, field_at: Table
) -> Iterator[Finding]:
    order = np.flatnonzero(sizes > 0)
    order = order[np.argsort(starts[order], kind="stable")]
    ends = starts[order] + sizes[order]
    clash = np.flatnonzero(starts[order][1:] < np.maximum.accumulate(ends)[:-1])
    for index in clash[:MAX_FINDINGS].tolist():
        first, second = int(order[index]), int(order[index + 1])
        yield finding(
            "tensor-overlap", int(field_at[second]), name=names[first], other=names[second]
        )
