"""Lay out a Model as a Layout: all files, offsets and byte counts, before any byte is read.

Pure: sizes follow from shapes and types alone. Only the layout knows shards: merging means writing
an opened set, and splitting means writing with a limit.
"""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypedDict

import numpy as np

from ggufkit.errors import ShapeError, TensorTypeError, ValueTypeError, brief
from ggufkit.format import types
from ggufkit.format.coerce import typed
from ggufkit.format.dialects import SHARED, is_of_one_dialect
from ggufkit.format.encoding import BYTE_ORDERS, ByteOrder, Encoding, is_utf8
from ggufkit.format.file_name import parse_shard_name, shard_name
from ggufkit.format.html import definitions, table
from ggufkit.format.metadata import Metadata, alignment_of, encoded_nbytes, is_alignment
from ggufkit.format.values import TypedValue, whole_number
from ggufkit.models.model import Model, Tensor, as_ggml_counts
from ggufkit.models.rows import Source
from ggufkit.models.sources import in_order
from ggufkit.system.readers_limit import NO_LIMIT, ReadersLimit

if TYPE_CHECKING:
    from typing_extensions import Unpack

# llama-gguf-split sets the count last, when it is known; the others set it second.
GGUF_SPLIT_ORDER: Final[tuple[str, ...]] = ("split.no", "split.tensors.count", "split.count")
MERGED: Final = 0  # split.count in the output of llama-gguf-split --merge
WRITABLE_VERSIONS: Final = (2, 3)
MAX_SHARDS: Final = 65535  # split.count is a uint16
MAX_FILE_BYTES: Final = 2**63 - 1  # the range of file offsets
_COUNTS: Final = "IQQ"  # version, tensors, keys
_FIXED_BYTES: Final = len(types.MAGIC) + struct.calcsize(f"<{_COUNTS}")


@dataclass(frozen=True, slots=True)
class Extent:
    """Where a tensor's bytes go in its file: `offset` from the beginning, rows from `source`."""

    offset: int
    nbytes: int
    name: str
    rows: int
    row_bytes: int
    source: Source


@dataclass(frozen=True)
class PlannedFile:
    """One file: its `head` (header, metadata and tensor infos), its extents, its size in bytes.

    Bytes outside the head and the extents are zero.
    """

    name: str
    head: bytes
    extents: tuple[Extent, ...]
    nbytes: int


@dataclass(frozen=True)
class Layout:
    """The files to write for one model, in shard order, and who may read them."""

    files: tuple[PlannedFile, ...]
    version: int
    byte_order: ByteOrder
    alignment: int
    limit: ReadersLimit = NO_LIMIT

    @property
    def nbytes(self) -> int:
        """Bytes of all files together."""
        return sum(file.nbytes for file in self.files)

    def _repr_html_(self) -> str:
        rows = [
            (file.name, f"{file.nbytes:,}", f"{len(file.head):,}", len(file.extents))
            for file in self.files
        ]
        title = f"{len(rows):,} file{'' if len(rows) == 1 else 's'}, {self.nbytes:,} bytes"
        columns = ("file", "bytes", "header", "tensors")
        return f"{definitions(title, {})}{table(columns, rows, len(rows))}"


@dataclass(frozen=True)
class _FileForm:
    """The properties that all files of a plan share."""

    version: int
    encoding: Encoding
    alignment: int
    pad_end: bool


class ShardOptions(TypedDict, total=False):
    """The options of `layout` about shards."""

    shard_size: int | None
    shard_tensors: int | None
    shard_counts: Sequence[int] | None
    no_tensor_first_split: bool
    converter_shards: bool


class LayoutOptions(ShardOptions, total=False):
    """The options of the layout; see `layout`."""

    version: int | None
    byte_order: ByteOrder | None
    alignment: int | None


def layout(
    model: Model,
    name: str,
    *,
    version: int | None = None,
    byte_order: ByteOrder | None = None,
    alignment: int | None = None,
    **shards: Unpack[ShardOptions],
) -> Layout:
    """Return the plan that writes `model` to a file called `name`, or to shards named after it.

    Options not given keep the model's value (version 1 becomes 3). A new shard starts before the
    padded tensor bytes of a shard would exceed `shard_size`, or its tensors `shard_tensors`; or
    `shard_counts` gives the number of tensors of each shard. With `no_tensor_first_split` a shard
    with all keys and no tensors comes before the others.

    Shards, and the one file that an opened set becomes, equal llama-gguf-split's: the same
    bytes. With `shard_counts` they equal llama-quantize --keep-split's. With
    `converter_shards` they equal llama.cpp's converter's, which counts sizes without padding.
    """
    metadata = _aligned(model.metadata, alignment)
    step = alignment_of(metadata)
    is_by_converter = shards.get("converter_shards", False)
    has_both_counts = is_by_converter or shards.get("shard_counts") is not None
    order = types.SPLIT_KEYS if has_both_counts else GGUF_SPLIT_ORDER
    groups = grouped(list(model.tensors.values()), step, shards)
    is_merged = len(groups) == 1 and len(model.files) > 1
    if is_merged:
        metadata = metadata.updated(_split_values(order, (0, MERGED, len(model.tensors))))
    is_by_tool = is_merged or len(groups) > 1
    if is_by_tool and not is_by_converter:
        groups = [[as_ggml_counts(tensor) for tensor in group] for group in groups]
    encoding = Encoding(_byte_order(byte_order, model))
    form = _FileForm(_version(version, model), encoding, step, model.end_padded or is_by_tool)
    files = tuple(
        _file(shard, part, tensors, form)
        for shard, part, tensors in _shards(name, metadata, groups, order)
    )
    return Layout(files, form.version, encoding.byte_order, step, model.readers_limit)


def file_nbytes(model: Model) -> int:
    """Return the size of the one file that `layout` plans for a model without files.

    The plan itself is not made, which takes most of the time where only sizes are asked for. Raises
    the errors of `layout`.
    """
    encoding, step = Encoding(_byte_order(None, model)), alignment_of(model.metadata)
    head = _FIXED_BYTES + encoded_nbytes(model.metadata, encoding)
    data = end = 0
    for tensor in model.tensors.values():
        _require_writable(tensor, encoding)
        head += _info_nbytes(tensor, encoding)
        end = data + tensor.nbytes
        data = types.padded(end, step)
    nbytes = types.padded(head, step) + end if model.tensors else head
    return _possible(types.padded(nbytes, step) if model.end_padded else nbytes, "the file")


def _version(version: int | None, model: Model) -> int:
    if version is None:
        return model.version if model.version in WRITABLE_VERSIONS else WRITABLE_VERSIONS[-1]
    if version in WRITABLE_VERSIONS:
        return version
    raise ValueTypeError(f"version {version} cannot be written", remedy="Use version 2 or 3")


def _byte_order(order: ByteOrder | None, model: Model) -> ByteOrder:
    if order is None:
        return model.byte_order
    if order in BYTE_ORDERS:
        return order
    raise ValueTypeError(f"unknown byte order {order!r}", remedy="Use 'little' or 'big'")


def _aligned(metadata: Metadata, alignment: object) -> Metadata:
    if alignment is None:
        return metadata
    number = whole_number(alignment.item() if isinstance(alignment, np.integer) else alignment)
    if number is None or not is_alignment(number) or number > np.iinfo(np.uint32).max:
        raise ValueTypeError(
            f"an alignment of {brief(alignment)} is not possible",
            remedy="Use a power of two from 8 to 2147483648",
        )
    if number == alignment_of(metadata):
        return metadata
    return metadata.updated({"general.alignment": np.uint32(number)})


def grouped(tensors: Sequence[Tensor], step: int, shards: ShardOptions) -> list[list[Tensor]]:
    """Return the tensors of each shard; in a file each begins at a multiple of `step` bytes."""
    counts = shards.get("shard_counts")
    if counts is not None:
        groups = _counted_groups(tensors, counts)
    else:
        counted_step = 1 if shards.get("converter_shards") else step
        shard_size = shards.get("shard_size")
        shard_tensors = shards.get("shard_tensors")
        for limit, name in ((shard_size, "size"), (shard_tensors, "number of tensors")):
            if limit is not None and limit < 1:
                raise ShapeError(
                    f"a shard {name} of {limit} is not possible", remedy="Use 1 or more"
                )
        groups = [[]]
        nbytes = 0
        for tensor in tensors:
            size = types.padded(tensor.nbytes, counted_step)
            is_full = (shard_size is not None and nbytes + size > shard_size) or (
                shard_tensors is not None and len(groups[-1]) >= shard_tensors
            )
            if groups[-1] and is_full:
                groups.append([])
                nbytes = 0
            groups[-1].append(tensor)
            nbytes += size
    return [[], *groups] if tensors and shards.get("no_tensor_first_split") else groups


def _counted_groups(tensors: Sequence[Tensor], counts: Sequence[int]) -> list[list[Tensor]]:
    ends = list(itertools.accumulate(counts))
    if not ends or min(counts) < 0 or ends[-1] != len(tensors):
        raise ShapeError(
            f"shards of {list(counts)} tensors cannot hold the {len(tensors)} tensors of the model"
        )
    return [list(tensors[end - count : end]) for end, count in zip(ends, counts, strict=True)]


def _shards(
    name: str, metadata: Metadata, groups: list[list[Tensor]], order: Sequence[str]
) -> list[tuple[str, Metadata, list[Tensor]]]:
    if len(groups) == 1:
        return [(name, metadata, groups[0])]
    parsed = parse_shard_name(name)
    prefix = parsed[0] if parsed else name.removesuffix(".gguf")
    count = len(groups)
    if count > MAX_SHARDS:
        raise ShapeError(
            f"these limits give {count} shards, but at most {MAX_SHARDS} are possible",
            remedy="Allow larger shards",
        )
    total = sum(len(group) for group in groups)
    first = metadata.without(*types.SPLIT_KEYS, missing_ok=True)
    # Readers open each file on its own, so each must have the alignment key.
    step = alignment_of(metadata)
    others = Metadata() if step == types.DEFAULT_ALIGNMENT else _aligned(Metadata(), step)
    return [
        (
            shard_name(prefix, number, count),
            (others if number else first).updated(_split_values(order, (number, count, total))),
            group,
        )
        for number, group in enumerate(groups)
    ]


def _split_values(order: Sequence[str], values: tuple[int, int, int]) -> dict[str, TypedValue]:
    """Return the keys of a shard in `order`: its number, and the counts of shards and tensors."""
    numbers = dict(zip(types.SPLIT_KEYS, values, strict=True))
    return {key: typed(types.SPLIT_TYPES[key], numbers[key]) for key in order}


def _file(name: str, metadata: Metadata, tensors: Sequence[Tensor], form: _FileForm) -> PlannedFile:
    head, starts = _head(metadata, tensors, form)
    data_offset = types.padded(len(head), form.alignment)
    extents = tuple(
        Extent(
            *(data_offset + start, t.nbytes, t.name, t.rows, t.row_bytes),
            in_order(t, form.encoding.byte_order),
        )
        for t, start in zip(tensors, starts, strict=False)
    )
    end = extents[-1].offset + extents[-1].nbytes if extents else len(head)
    nbytes = types.padded(end, form.alignment) if form.pad_end else end
    return PlannedFile(name, head, extents, _possible(nbytes, name))


def _possible(nbytes: int, name: str) -> int:
    if nbytes > MAX_FILE_BYTES:
        raise ShapeError(f"{name} would have {nbytes} bytes, more than a file can have")
    return nbytes


def _head(
    metadata: Metadata, tensors: Sequence[Tensor], form: _FileForm
) -> tuple[bytes, list[int]]:
    """Return all bytes before the data, and the offset of each tensor in the data."""
    encoding = form.encoding
    starts = [0]
    for tensor in tensors:
        starts.append(types.padded(starts[-1] + tensor.nbytes, form.alignment))
    _require_one_meaning(tensors)
    infos = [_info(t, start, encoding) for t, start in zip(tensors, starts, strict=False)]
    counts = struct.pack(f"{encoding.mark}{_COUNTS}", form.version, len(tensors), len(metadata))
    return b"".join((types.MAGIC, counts, metadata.encode(encoding), *infos)), starts


def _require_one_meaning(tensors: Sequence[Tensor]) -> None:
    rows: dict[int, types.TensorType] = {}
    for tensor in tensors:
        kind = rows.setdefault(tensor.type.id, tensor.type)
        if kind != tensor.type:
            raise TensorTypeError(
                f"tensor {tensor.name!r} is of type {tensor.type}, but type {kind.id} is {kind} in "
                "another tensor",
                remedy="Write one of the two as another type, in a file of its own first; or name "
                "the program that made their file (dialect=...)",
            )
    kinds = set(rows.values())
    if not is_of_one_dialect(kinds):
        names = ", ".join(sorted(kind.name for kind in kinds if kind.id in SHARED))
        raise TensorTypeError(
            f"no program reads tensors of all these types in one file: {names}",
            remedy="Write those of one program as another type",
        )


def _require_writable(tensor: Tensor, encoding: Encoding) -> None:
    if not tensor.type.fields and tensor.source.byte_order != encoding.byte_order:
        raise TensorTypeError(
            f"tensor {tensor.name!r} of type {tensor.type} cannot change its byte order, "
            "because its fields are unknown",
            remedy="Keep the byte order",
        )
    if tensor.type.id < 0:  # a type of another format
        raise TensorTypeError(
            f"tensor {tensor.name!r} is of type {tensor.type}, which GGUF lacks",
            remedy="Leave it out, or write it as another type",
        )
    if not all(0 <= number <= MAX_FILE_BYTES for number in tensor.shape):
        raise ShapeError(f"{brief(tensor.shape)} is not possible as the shape of {tensor.name!r}")


@functools.lru_cache(maxsize=1 << 16)
def _name_bytes(name: str) -> bytes:
    raw = name.encode() if isinstance(name, str) and is_utf8(name) else b""
    if not raw or b"\0" in raw or len(raw) > types.MAX_NAME_BYTES:
        raise ShapeError(
            f"{brief(name)} is not a valid tensor name",
            remedy=f"Use 1 to {types.MAX_NAME_BYTES} bytes of UTF-8 without NUL",
        )
    return raw


def _info(tensor: Tensor, start: int, encoding: Encoding) -> bytes:
    _require_writable(tensor, encoding)
    name = _name_bytes(tensor.name)
    dims = len(tensor.shape)
    numbers = (dims, *reversed(tensor.shape), tensor.type.id, start)
    return b"".join(
        (encoding.count(len(name)), name, struct.pack(f"{encoding.mark}I{dims}QIQ", *numbers))
    )


def _info_nbytes(tensor: Tensor, encoding: Encoding) -> int:
    dims = len(tensor.shape)
    return encoding.count_bytes + len(_name_bytes(tensor.name)) + 4 + 8 * dims + 4 + 8
