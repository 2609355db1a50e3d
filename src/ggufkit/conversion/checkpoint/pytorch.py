"""Reads PyTorch files (`.bin`, `.pth`) lazily: a zip of a pickle and of storages.

Needs no PyTorch, and runs no code from the pickle. Source: PyTorch's notes on its format.
"""

from __future__ import annotations

import io
import itertools
import math
import struct
import zipfile
from pathlib import Path
from typing import Any, Final, NamedTuple

from ggufkit.conversion.checkpoint.pickle_reader import Rebuilt, loads
from ggufkit.conversion.checkpoint.safetensors import DTYPES, MAX_AXES, foreign, stored_tensor
from ggufkit.conversion.tensors.moves import transpose
from ggufkit.errors import CheckpointError, brief
from ggufkit.format.types import TORCH_DTYPES, TensorType
from ggufkit.models.model import Tensor
from ggufkit.system.mapped_file import MappedFile

MAX_PICKLE_BYTES: Final = 1 << 25  # a tensor takes some 250
MAX_DIRECTORY_BYTES: Final = 1 << 26  # a storage takes some 80
_LOCAL_HEADER: Final = struct.Struct("<4s22xHH")
_MAGIC: Final = b"PK\x03\x04"
_LEGACY: Final = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"  # pickled magic number
_TAR: Final = b"ustar"
_TAR_AT: Final = 257
_ENCRYPTED: Final = 1

_STORAGES: Final = {
    "Double": "F64", "Float": "F32", "Half": "F16", "BFloat16": "BF16", "Long": "I64", "Int": "I32",
    "Short": "I16", "Char": "I8", "Byte": "U8", "Bool": "BOOL",
}  # fmt: skip
_DTYPES: Final = ("F8_E4M3", "F8_E5M2", "F8_E8M0", "U16", "U32", "U64")
_TYPES: Final = {
    **{f"torch.{word}Storage": name for word, name in _STORAGES.items()},
    "torch.storage.UntypedStorage": "U8",
    **{f"torch.{TORCH_DTYPES[name]}": name for name in _DTYPES},
}
_RESAVE: Final = "Load it with PyTorch where you trust it, and save it as safetensors"


class Member(NamedTuple):
    """The place of an uncompressed file in the zip."""

    offset: int
    nbytes: int


def read_pytorch(file: MappedFile) -> tuple[list[Tensor], list[str]]:
    """Return the tensors of a mapped file in its order, and its problems."""
    if instead := foreign(file):
        return [], [instead]
    try:
        storages, contents = _opened(file)
    except CheckpointError as error:
        return [], [str(error)]
    tensors: list[Tensor] = []
    problems: list[str] = []
    for name, rebuilt in contents.items():
        if not isinstance(name, str) or not isinstance(rebuilt, Rebuilt):
            problems.append(
                f"{brief(name)} in it is not a tensor but {type(rebuilt).__name__}: only a flat "
                "dictionary of tensors can be converted"
            )
            continue
        try:
            tensors.append(storages.tensor(name, rebuilt))
        except CheckpointError as error:
            problems.append(error.message)
    return tensors, problems


def read_dictionary(file: MappedFile) -> dict[str, Any]:
    """Return a dictionary that PyTorch saved: tensors, and other plain values as they are."""
    storages, contents = _opened(file)
    return {
        str(name): storages.tensor(str(name), value) if isinstance(value, Rebuilt) else value
        for name, value in contents.items()
    }


class _BoundedFile(io.FileIO):
    """A file that refuses reads larger than a sane zip directory."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read; CheckpointError for more bytes than a directory may have."""
        if size is not None and size > MAX_DIRECTORY_BYTES:
            raise CheckpointError(f"its directory has {size:,} bytes, too large for weights")
        return super().read(-1 if size is None else size) or b""


def _members(file: MappedFile) -> dict[str, Member]:
    head = file.read(0, min(file.nbytes, _TAR_AT + len(_TAR))).tobytes()
    if head.startswith(_LEGACY) or head[_TAR_AT:] == _TAR:
        raise CheckpointError("it has the layout of PyTorch before 1.6", remedy=_RESAVE)
    if not head.startswith(_MAGIC):
        raise CheckpointError("it is not a PyTorch file, because it is not a zip file")
    try:
        with _BoundedFile(Path(file.path)) as opened, zipfile.ZipFile(opened) as archive:
            infos = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error, OverflowError) as e:
        raise CheckpointError(f"it is a broken zip file: {e}") from None
    members: dict[str, Member] = {}
    for info in infos:
        if info.filename in members:
            raise CheckpointError(f"it holds {brief(info.filename)} twice")
        members[info.filename] = _member(file, info)
    # Files that share bytes: a small archive could hold any number of them.
    placed = sorted((member, name) for name, member in members.items())
    for (first, name), (second, other) in itertools.pairwise(placed):
        if first.offset + first.nbytes > second.offset:
            raise CheckpointError(f"{brief(name)} and {brief(other)} in it overlap")
    return members


def _member(file: MappedFile, info: zipfile.ZipInfo) -> Member:
    name = brief(info.filename)
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & _ENCRYPTED:
        raise CheckpointError(f"{name} in it is compressed or encrypted, which PyTorch never does")
    if not 0 <= info.header_offset <= file.nbytes - _LOCAL_HEADER.size:
        raise CheckpointError(f"{name} in it starts beyond the end: the file is truncated")
    header = file.read(info.header_offset, _LOCAL_HEADER.size).tobytes()
    magic, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(header)
    start = info.header_offset + _LOCAL_HEADER.size + name_bytes + extra_bytes
    if magic != _MAGIC or start + info.file_size > file.nbytes:
        raise CheckpointError(f"{name} in it is incomplete: the file is truncated or damaged")
    return Member(start, info.file_size)


def _opened(file: MappedFile) -> tuple[_Storages, dict[Any, Any]]:
    members = _members(file)
    pickles = [name for name in members if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(pickles) != 1:
        raise CheckpointError("it is a zip file without PyTorch's data.pkl")
    root = pickles[0].removesuffix("data.pkl")
    order = members.get(f"{root}byteorder")
    if order is not None and _content(file, order) != b"little":
        raise CheckpointError("its numbers are big-endian", remedy=_RESAVE)
    contents = loads(_content(file, members[pickles[0]]), frozenset(_TYPES))
    if not isinstance(contents, dict):
        raise CheckpointError("it does not contain a dictionary of tensors")
    return _Storages(file, members, root), contents


def _content(file: MappedFile, member: Member) -> bytes:
    if member.nbytes > MAX_PICKLE_BYTES:
        raise CheckpointError(f"its pickle has {member.nbytes:,} bytes, too large for weights")
    return file.read(*member).tobytes()


class _Storages(NamedTuple):
    """The runs of elements in a file, by their keys."""

    file: MappedFile
    members: dict[str, Member]
    root: str

    def tensor(self, name: str, rebuilt: Rebuilt) -> Tensor:
        """Return a tensor over its storage; CheckpointError if it does not fit."""
        kind_name = rebuilt.dtype or rebuilt.storage.kind
        if kind_name not in _TYPES:
            raise CheckpointError(
                f"{name!r} is of the type {kind_name}, which is not a tensor type"
            )
        kind = DTYPES[_TYPES[kind_name]]
        member = self.members.get(f"{self.root}data/{rebuilt.storage.key}")
        if member is None:
            raise CheckpointError(
                f"the storage {brief(rebuilt.storage.key)} of {name!r} is missing"
            )
        _require_within(name, rebuilt, kind, member)
        start = member.offset + rebuilt.offset * kind.block_bytes
        if _is_contiguous(rebuilt.shape, rebuilt.strides):
            return stored_tensor(self.file, start, name, kind, rebuilt.shape)
        swapped = rebuilt.shape[::-1]
        if len(swapped) == 2 and _is_contiguous(swapped, rebuilt.strides[::-1]):  # noqa: PLR2004
            return transpose(stored_tensor(self.file, start, name, kind, swapped))
        raise CheckpointError(f"{name!r} is a view that skips elements of its storage")


def _require_within(name: str, rebuilt: Rebuilt, kind: TensorType, member: Member) -> None:
    if len(rebuilt.shape) != len(rebuilt.strides) or len(rebuilt.shape) > MAX_AXES:
        raise CheckpointError(f"{name!r} has a shape and strides that do not fit each other")
    last = sum((n - 1) * step for n, step in zip(rebuilt.shape, rebuilt.strides, strict=True))
    needed = rebuilt.offset + last + 1 if math.prod(rebuilt.shape) else rebuilt.offset
    if needed * kind.block_bytes > member.nbytes:
        raise CheckpointError(
            f"{name!r} of shape {brief(rebuilt.shape)} needs {needed * kind.block_bytes:,} bytes "
            f"of a storage that has {member.nbytes:,}"
        )


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether elements follow each other; the stride of an axis of size 1 does not matter."""
    needed = 1
    for size, step in zip(reversed(shape), reversed(strides), strict=True):
        if size > 1 and step != needed:
            return not math.prod(shape)
        needed *= size
    return True
