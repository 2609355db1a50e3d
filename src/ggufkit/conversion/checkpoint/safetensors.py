"""Reads safetensors files lazily, and plans how folders of them are written.

Checks the whole header, and leaves the tensors in the file. Source: the format's README and its
reference reader; the same files are refused.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from typing import Any, Final

from ggufkit.errors import CheckpointError, ShapeError, TensorTypeError, brief
from ggufkit.format.magic import HEAD_BYTES, identify, is_safetensors
from ggufkit.format.types import MAGIC, TensorType, padded, tensor_type
from ggufkit.models.model import Tensor
from ggufkit.models.rows import AnyFile, rows_and_width
from ggufkit.models.sources import FileSource
from ggufkit.output.layout import Extent, Layout, PlannedFile, grouped
from ggufkit.system.descriptors import AnyPath, as_path
from ggufkit.system.mapped_file import MappedFile

INDEX: Final = "model.safetensors.index.json"
MAX_HEADER_BYTES: Final = 100_000_000  # the reference reader's limit
MAX_AXES: Final = 64  # PyTorch's limit; it keeps the product of a hostile shape small
MAX_ELEMENTS: Final = 1 << 59  # of axes that are not empty: NumPy counts up to 2^63 bytes
MAX_PROBLEMS: Final = 1000  # reported for one header
_LENGTH_BYTES: Final = 8  # the size of the header comes first
_STEP: Final = 8  # the reference writer aligns the data to this
_FIELDS: Final = {"dtype", "shape", "data_offsets"}

# GGUF lacks these types. Their numbers are negative, so that no file can contain them.
F8_E4M3: Final = TensorType(-1, "F8_E4M3", 1, 1, "1")
F8_E5M2: Final = TensorType(-2, "F8_E5M2", 1, 1, "1")
F8_E8M0: Final = TensorType(-3, "F8_E8M0", 1, 1, "1")
U8: Final = TensorType(-4, "U8", 1, 1, "1", "u1")
BOOL: Final = TensorType(-5, "BOOL", 1, 1, "1", "?")
U16: Final = TensorType(-6, "U16", 1, 2, "2", "u2")
U32: Final = TensorType(-7, "U32", 1, 4, "4", "u4")
U64: Final = TensorType(-8, "U64", 1, 8, "8", "u8")
_SHARED: Final = ("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8")
_FOREIGN: Final = (F8_E4M3, F8_E5M2, F8_E8M0, U8, BOOL, U16, U32, U64)
_UNREAD: Final = (  # name, block size, bytes and dtype: no conversion reads them
    *(("F8_E4M3FNUZ", 1, 1, None), ("F8_E5M2FNUZ", 1, 1, None), ("C64", 1, 8, "c8")),
    *(("F4", 2, 1, None), ("F6_E2M3", 4, 3, None), ("F6_E3M2", 4, 3, None)),
)
DTYPES: Final = {kind.name: kind for kind in (*map(tensor_type, _SHARED), *_FOREIGN)} | {
    name: TensorType(-20 - number, name, size, nbytes, str(nbytes), dtype)
    for number, (name, size, nbytes, dtype) in enumerate(_UNREAD)
}


# Files that are neither safetensors nor PyTorch, by the rule that recognizes them.
_OTHERS: Final = ("empty", "html", "git-lfs-pointer", "text", "zeros", "compressed", "legacy-ggml")


def foreign(file: AnyFile) -> str | None:
    """Return what a file is and what to do, None if it may be a file of tensors."""
    head = file.read(0, min(file.nbytes, HEAD_BYTES)).tobytes()
    if head.startswith(MAGIC):
        return "this is a GGUF file already, which no conversion needs"
    if is_safetensors(head):
        return None
    kind = identify(head, file.nbytes)
    message = kind.message.removesuffix(", not a GGUF file").removesuffix(", not GGUF")
    return f"{message} ({kind.remedy})" if kind.rule in _OTHERS else None


@dataclass(frozen=True)
class SafetensorsEntry:
    """One tensor of a header: bytes `start` to `stop`, counted from the header's end."""

    name: str
    type: TensorType
    shape: tuple[int, ...]
    start: int
    stop: int


def open_safetensors(path: AnyPath) -> tuple[MappedFile, list[Tensor]]:
    """Map a safetensors file; return it and its tensors in the order of their names.

    Raises CheckpointError, whose `problems` list everything wrong, and OSError as `open` does.
    """
    file = MappedFile(as_path(path))
    tensors, problems = read_tensors(file)
    if problems:
        file.close()
        raise CheckpointError(f"{file.path} is not a valid safetensors file", problems)
    return file, tensors


def read_tensors(file: AnyFile) -> tuple[list[Tensor], list[str]]:
    """Return the tensors of a file by name, and its problems."""
    if instead := foreign(file):
        return [], [instead]
    header, problems = _header_bytes(file)
    if problems:
        return [], problems
    data_offset = _LENGTH_BYTES + len(header)
    entries, problems = parse_header(header, file.nbytes - data_offset)
    if problems:
        return [], problems
    return [
        stored_tensor(file, data_offset + entry.start, entry.name, entry.type, entry.shape)
        for entry in entries
    ], []


def read_notes(file: AnyFile) -> dict[str, Any]:
    """Return the texts that a valid file's `__metadata__` holds, by key."""
    notes = json.loads(_header_bytes(file)[0]).get("__metadata__")
    return notes if isinstance(notes, dict) else {}


def _header_bytes(file: AnyFile) -> tuple[bytes, list[str]]:
    if file.nbytes < _LENGTH_BYTES:
        return b"", [f"it has {file.nbytes} bytes, but the length of the header alone takes 8"]
    length = int.from_bytes(file.read(0, _LENGTH_BYTES).tobytes(), "little")
    if length > MAX_HEADER_BYTES:
        return b"", [
            f"a header of {length:,} bytes is larger than the limit of {MAX_HEADER_BYTES:,}"
        ]
    if length > file.nbytes - _LENGTH_BYTES:
        return b"", [f"it ends in the header: {length:,} bytes announced, {file.nbytes:,} in all"]
    return file.read(_LENGTH_BYTES, length).tobytes(), []


def stored_tensor(
    file: AnyFile, offset: int, name: str, kind: TensorType, shape: tuple[int, ...]
) -> Tensor:
    """Return a tensor whose bytes begin at an offset of a file."""
    rows, width = rows_and_width(shape)
    row_bytes = kind.row_bytes(width)
    nbytes = rows * row_bytes
    return Tensor(name, kind, shape, nbytes, FileSource(file, offset, nbytes, row_bytes, "little"))


def parse_header(header: bytes, data_bytes: int) -> tuple[list[SafetensorsEntry], list[str]]:
    """Return a header's entries by name, and its problems; the data has `data_bytes`."""
    try:
        table = json.loads(header.decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        return [], [f"its header is not JSON: {error}"]
    if not isinstance(table, dict):
        return [], ["its header is not a JSON object"]
    entries: list[SafetensorsEntry] = []
    problems: list[str] = []
    for name, fields in table.items():
        if name == "__metadata__":
            continue
        if len(problems) >= MAX_PROBLEMS:
            break
        try:
            entries.append(_entry(name, fields))
        except ValueError as error:
            problems.append(f"tensor {brief(name)}: {error}")
    places = _about_places(entries, data_bytes, whole=not problems)
    problems.extend(islice(places, max(MAX_PROBLEMS - len(problems), 0)))
    return sorted(entries, key=lambda entry: entry.name), problems


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"{brief(twice)} appears twice")
    return fields


def _entry(name: str, fields: Any) -> SafetensorsEntry:  # noqa: ANN401 (as JSON is)
    if not isinstance(fields, dict) or fields.keys() != _FIELDS:
        raise ValueError("it must have only dtype, shape and data_offsets")
    kind = DTYPES.get(str(fields["dtype"]))
    if kind is None:
        raise ValueError(f"unknown dtype {brief(fields['dtype'])}")
    shape, offsets = _sizes(fields["shape"]), _sizes(fields["data_offsets"])
    if shape is None or len(shape) > MAX_AXES:
        raise ValueError(f"{brief(fields['shape'])} is not a shape")
    if offsets is None or len(offsets) != 2 or offsets[0] > offsets[1]:  # noqa: PLR2004
        raise ValueError(f"{brief(fields['data_offsets'])} is not a pair of start and end")
    if shape and shape[-1] % kind.block_size:
        raise ValueError(f"rows of {shape[-1]} elements do not fill the bytes of {kind}")
    needed, nbytes = math.prod(shape) // kind.block_size * kind.block_bytes, offsets[1] - offsets[0]
    if needed != nbytes:
        raise ValueError(f"{kind} of shape {brief(shape)} needs {needed:,} bytes, not {nbytes:,}")
    if math.prod(size or 1 for size in shape) > MAX_ELEMENTS:
        raise ValueError(f"{brief(fields['shape'])} is not a shape")
    return SafetensorsEntry(name, kind, shape, *offsets)


def _sizes(items: Any) -> tuple[int, ...] | None:  # noqa: ANN401 (as JSON is)
    if not isinstance(items, list) or not all(type(item) is int and item >= 0 for item in items):
        return None
    return tuple(items)


def _about_places(
    entries: list[SafetensorsEntry], data_bytes: int, *, whole: bool
) -> Iterator[str]:
    """Yield problems unless tensors follow each other without overlap or gap to the file's end."""
    placed = sorted(entries, key=lambda entry: (entry.start, entry.stop))
    if beyond := [entry for entry in placed if entry.stop > data_bytes]:
        needed = max(entry.stop for entry in beyond)
        yield (
            f"the file is truncated: it has {data_bytes:,} of {needed:,} bytes of data, and "
            f"{len(beyond)} of {len(placed)} tensors are incomplete, the first of them "
            f"{brief(beyond[0].name)}"
        )
    for before, after in pairwise(placed):
        if after.start < before.stop:
            yield f"tensors {brief(before.name)} and {brief(after.name)} overlap"
        elif after.start > before.stop and whole:
            yield f"there is a gap between tensors {brief(before.name)} and {brief(after.name)}"
    first, last = (placed[0].start, placed[-1].stop) if placed else (0, 0)
    if whole and (first > 0 or last < data_bytes):
        yield f"bytes {first:,} to {last:,} belong to tensors, but the data has {data_bytes:,}"


def lay_folder(
    files: Sequence[Sequence[Tensor]],
    texts: Mapping[str, bytes],
    shard_size: int | None = None,
    stem: str = "model",
) -> Layout:
    """Return the plan of all files; a new shard begins before one exceeds `shard_size` bytes.

    `stem` begins the names of the files of tensors.
    """
    shards = [shard for file in files for shard in grouped(file, 1, {"shard_size": shard_size})]
    count, small, names = len(shards), dict(texts), [f"{stem}.safetensors"]
    if count > 1:
        names = [f"{stem}-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)]
        homes = {t.name: name for name, shard in zip(names, shards, strict=True) for t in shard}
        total = sum(tensor.nbytes for shard in shards for tensor in shard)
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(homes.items()))}
        small[f"{stem}.safetensors.index.json"] = as_json(index)
    planned = [lay_file(name, shard) for name, shard in zip(names, shards, strict=True)]
    planned += [PlannedFile(name, text, (), len(text)) for name, text in small.items()]
    return Layout(tuple(planned), 0, "little", _STEP)


def as_json(content: object) -> bytes:
    """Return the text of a JSON file."""
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def lay_file(name: str, tensors: Sequence[Tensor]) -> PlannedFile:
    """Return the plan of one safetensors file: tensors follow each other without gaps."""
    ends = list(accumulate((tensor.nbytes for tensor in tensors), initial=0))
    table: dict[str, object] = {"__metadata__": {"format": "pt"}}
    for tensor, start in zip(tensors, ends, strict=False):
        if tensor.type.name not in DTYPES:
            raise TensorTypeError(
                f"{tensor.name!r} of type {tensor.type} cannot be stored in a safetensors file"
            )
        table[tensor.name] = {
            "dtype": tensor.type.name,
            "shape": list(tensor.shape),
            "data_offsets": [start, start + tensor.nbytes],
        }
    text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (padded(len(text), _STEP) - len(text))
    if len(text) > MAX_HEADER_BYTES:
        raise ShapeError(
            f"{len(tensors)} tensors need a header larger than the format allows",
            remedy="Write several shards (shard_size=...)",
        )
    head = len(text).to_bytes(8, "little") + text
    extents = tuple(
        Extent(len(head) + start, t.nbytes, t.name, t.rows, t.row_bytes, t.source)
        for t, start in zip(tensors, ends, strict=False)
    )
    return PlannedFile(name, head, extents, len(head) + ends[-1])
