"""Open a file, any shard of a set, or a folder that holds one set, as one model."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ggufkit.errors import FormatError, ShardError
from ggufkit.findings import Finding, finding, first_error
from ggufkit.layout import SPLIT_KEYS, parse_shard_name, shard_name
from ggufkit.model import Model, ModelFile, Tensor, Tensors, rows_and_width
from ggufkit.parse import Header, parse
from ggufkit.sources import FileSource
from ggufkit.store import MappedFile


@dataclass(frozen=True)
class Part:
    """One mapped file and its header."""

    file: MappedFile
    header: Header


def open(path: str | os.PathLike[str], *, shards: bool = True) -> Model:  # noqa: A001
    """Open a GGUF file, shard set or folder lazily, as one Model.

    `path` names a file, any shard of a set, or a folder that holds exactly one file or set.
    With `shards=False` a shard is opened alone. Raises a FormatError (a ValueError) for the
    first thing that is wrong in a file, ShardError for a missing or foreign shard, OSError as
    the builtin `open` does.
    """
    first = locate(Path(path))
    with contextlib.ExitStack() as opened:
        part = _opened(first, opened)
        parts = [part]
        if shards and shard_count(part.header) > 1:
            parts = [
                part if other == first else _opened(other, opened)
                for other in shard_paths(first, shard_count(part.header))
            ]
            wrong = first_error(list(about_set(parts)))
            if wrong:
                raise ShardError(wrong.message, remedy=wrong.remedy)
        model = _model(parts, is_set=len(parts) > 1)
        opened.pop_all()
    return model.reading(part.file for part in parts)


def locate(path: Path) -> Path:
    """Return the file that `path` means: itself, or the first file of the set in a folder."""
    if not path.is_dir():
        return path
    found = sorted(path.glob("*.gguf"))
    sets = {(parse_shard_name(each.name) or (each.name,))[0] for each in found}
    if len(sets) == 1:
        return found[0]
    names = ", ".join(sorted(sets)[:5]) or "none"
    raise ShardError(
        f"the folder {path} holds {len(sets)} GGUF models ({names}), not exactly one",
        remedy="Name the file",
    )


def map_part(path: Path) -> Part:
    """Map and parse one file; the caller closes it. Raises only what opening a file can."""
    file = MappedFile(path)
    return Part(file, parse(file.data, file.nbytes))


def _opened(path: Path, opened: contextlib.ExitStack) -> Part:
    part = map_part(path)
    opened.callback(part.file.close)
    wrong = first_error(list(part.header.findings))
    if wrong:
        raise wrong.at(str(path)).exception()
    return part


def shard_count(header: Header) -> int:
    """Return split.count; 1 where the key is absent, or 0 as gguf-split leaves it."""
    return _split(header, "split.count", 1) or 1


def _split(header: Header, key: str, absent: int) -> int:
    if key not in header.metadata:
        return absent
    value: Any = header.metadata[key]
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        return int(value)
    raise FormatError(f"{key} is {value!r}, not a number", remedy="Get all shards anew")


def shard_paths(path: Path, count: int) -> list[Path]:
    """Return the paths of all shards of the set that `path` belongs to, by its name.

    Raises ShardError for a name that is no shard's, and for missing shards, naming them.
    """
    named = parse_shard_name(path.name)
    if named is None or named[2] != count:
        raise ShardError(
            f"{path} belongs to a set of {count} shards, but its name is not of the form "
            f"PREFIX-00001-of-{count:05d}.gguf, so the others cannot be found",
            remedy="Give it its original name, or open it alone with shards=False",
        )
    paths = [path.with_name(shard_name(named[0], number, count)) for number in range(count)]
    missing = [each.name for each in paths if not each.exists()]
    if missing:
        shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")  # noqa: PLR2004
        raise ShardError(
            f"of the {count} shards of {named[0]}, {len(missing)} are missing: {shown}",
            remedy=f"Put them beside {path.name}, or open it alone with shards=False",
        )
    return paths


def about_set(parts: list[Part]) -> Iterator[Finding]:
    """Check that shards belong together: count, number, byte order, names, total."""
    head = parts[0].header
    names: dict[str, str] = {}
    for number, part in enumerate(parts):
        name, header = part.file.path.name, part.header
        if shard_count(header) != len(parts) or _split(header, "split.no", -1) != number:
            said = f"number {_split(header, 'split.no', -1)} of {shard_count(header)}"
            yield _mismatch(f"{name} says that it is shard {said}, not {number} of {len(parts)}")
        if header.byte_order != head.byte_order:
            yield _mismatch(f"{name} is {header.byte_order} endian, the first shard is not")
        for info in header.tensors:
            if info.name in names:
                yield _mismatch(f"the tensor {info.name!r} stands in {names[info.name]} and {name}")
            names[info.name] = name
    total = _split(head, "split.tensors.count", len(names))
    if total != len(names):
        yield _mismatch(f"the set should hold {total} tensors, but its shards hold {len(names)}")


def _mismatch(detail: str) -> Finding:
    return finding("shard-mismatch", 0, detail=detail)


def _model(parts: list[Part], *, is_set: bool) -> Model:
    head = parts[0].header
    metadata = head.metadata.without(*SPLIT_KEYS) if is_set else head.metadata
    files = tuple(
        ModelFile(p.file.path, p.header.nbytes, p.header.data_offset, p.header.data_nbytes)
        for p in parts
    )
    return Model(
        metadata,
        Tensors(tensor for part in parts for tensor in _tensors(part)),
        version=head.version,
        byte_order=head.byte_order,
        files=files,
        end_padded=head.end_padded or is_set,
    )


def _tensors(part: Part) -> Iterator[Tensor]:
    header = part.header
    for info in header.tensors:
        width = (
            info.nbytes
            if info.type.is_opaque
            else info.type.row_bytes(rows_and_width(info.shape)[1])
        )
        at = header.data_offset + info.start
        source = FileSource(part.file, at, info.nbytes, width, header.byte_order)
        yield Tensor(info.name, info.type, info.shape, info.nbytes, source)
