"""gguf-py's GGUFReader on ggufkit's scanner: arrays of a header are made when asked for."""

from __future__ import annotations

import math
import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, NoReturn

import gguf.gguf_reader
import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFEndian, GGUFValueType
from gguf.gguf_reader import GGUFReader as InstalledReader
from gguf.gguf_reader import ReaderField, ReaderTensor

import ggufkit._native as _native
from ggufkit.compat.gguf.field_bytes import FileBytes, InfoBytes, KeyBytes, Part
from ggufkit.errors import FormatError, TruncatedError
from ggufkit.format.header import KEY_RECORD, TENSOR_RECORD
from ggufkit.format.magic import HEAD_BYTES, identify
from ggufkit.format.types import DEFAULT_ALIGNMENT, GGML_TYPES, MAGIC, MAX_DIMS, padded
from ggufkit.rules.findings import finding


class LazyField(ReaderField):
    """A field of a file: `parts` and `data` are made when first asked for.

    gguf-py makes one or two arrays of each token of a vocabulary while it opens a file. Here
    `contents()` decodes them in one step.
    """

    source: KeyBytes | InfoBytes

    @classmethod
    def over(cls, source: KeyBytes | InfoBytes) -> LazyField:
        """Make a field that reads its bytes through `source`."""
        field = cls.__new__(cls, source.offset, source.name, [], [], [*source.types])
        field.source = source
        return field

    @property
    def parts(self) -> list[Part]:
        """The arrays of the field's bytes."""
        return self.source.lists[0]

    @property
    def data(self) -> list[int]:
        """The numbers of the parts that hold the value."""
        return self.source.lists[1]

    def contents(self, index_or_slice: int | slice = slice(None)) -> Any:  # noqa: ANN401 (gguf-py's)
        """Return the value; of an array also a part."""
        are_made = "lists" in vars(self.source)  # a program may have changed bytes through them
        elements = None if are_made else self.source.elements()
        return super().contents(index_or_slice) if elements is None else elements[index_or_slice]

    # A tuple's own methods would show the empty lists that stand where lists will be.

    def _whole(self) -> tuple[Any, ...]:
        return (self.offset, self.name, self.parts, self.data, self.types)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._whole())

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 (as of a tuple)
        return self._whole()[index]

    def __eq__(self, other: object) -> bool:
        """Compare as tuples do."""
        return self is other or (isinstance(other, tuple) and self._whole() == tuple(other))

    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(ReaderField(*self._whole()))

    def __reduce__(self) -> tuple[Callable[..., ReaderField], tuple[Any, ...]]:
        """Pickle as a field of arrays in memory."""
        return ReaderField, self._whole()


READER_SUPPORTED_VERSIONS: Final = [2, 3]
_REMEDY: Final = "`ggufkit check` tells what else is wrong with the file"
# gguf-py reads a bool of any byte.
_ACCEPTED: Final = frozenset({"bool-value"})
# gguf-py's ways to read a header: a class that changes one gets gguf-py's reading, with its change.
_HOOKS: Final = (
    *("_get", "_get_str", "_get_field_parts", "_get_tensor_info_field", "_push_field"),
    *("_build_fields", "_build_tensor_info"),
)
_DTYPES: Final = {kind.name: kind.dtype for kind in GGML_TYPES.values() if kind.dtype}


class DuplicateKeyError(FormatError, KeyError):
    """A metadata key appears twice; gguf-py raises a KeyError."""

    def __str__(self) -> str:
        """Return the message, and not its repr as a KeyError does."""
        return FormatError.__str__(self)


class GGUFReader(InstalledReader):
    """A GGUF file, read as gguf-py's class of this name reads it.

    `fields` are the metadata by key, `tensors` the tensors in file order. All arrays are views of
    `data`, the memory-mapped file: `mode="r+"` writes through them, `mode="c"` changes only memory.
    Errors in a file are a FormatError, which is a ValueError; a repeated key is a KeyError too.
    """

    byte_order: Literal["I", "S"]

    def __init__(self, path: os.PathLike[str] | str, mode: Literal["r", "r+", "c"] = "r") -> None:
        """Map the file and read its header."""
        self._path = str(path)
        if any(getattr(type(self), name) is not getattr(GGUFReader, name) for name in _HOOKS):
            super().__init__(path, mode)
            return
        self.data: np.memmap[Any, np.dtype[np.uint8]] = np.memmap(path, mode=mode)
        self.fields: OrderedDict[str, ReaderField] = OrderedDict()
        self.tensors: list[ReaderTensor] = []
        keys, infos, end = self._scan()
        self._file = FileBytes(np.asarray(self.data), self.byte_order)
        counts = self._get(8, np.uint64, 2)
        for offset, name, part, kind in (
            (4, "GGUF.version", self._get(4, np.uint32), GGUFValueType.UINT32),
            (8, "GGUF.tensor_count", counts[:1], GGUFValueType.UINT64),
            (16, "GGUF.kv_count", counts[1:], GGUFValueType.UINT64),
        ):
            self._add_field(ReaderField(offset, name, [part], [0], [kind]))
        for record in keys.tolist():
            self._add_field(LazyField.over(KeyBytes(self._file, *record)))
        self.alignment: int = self._alignment()
        self.data_offset: int = padded(end, self.alignment)
        sources = [InfoBytes(self._file, *record) for record in infos.tolist()]
        self._build_tensors(self.data_offset, [LazyField.over(info) for info in sources])

    def _scan(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any], int]:
        """Return the tables of keys and tensors, and where the header ends."""
        head = bytes(self.data[:HEAD_BYTES].data)
        if not head.startswith(MAGIC):
            form = identify(head, self.data.size)
            raise type(form.exception())(
                f"GGUF magic invalid: {form.message}", remedy=form.remedy, path=self._path
            )
        version, big, _, _, end, keys, infos, problems = _native.scan(self.data.data)
        if (sys.byteorder == "big") != big:
            self.byte_order = "S"
        self.endianess: GGUFEndian = GGUFEndian.BIG if big else GGUFEndian.LITTLE
        if version and version not in READER_SUPPORTED_VERSIONS:
            remedy = "`ggufkit copy` writes it as version 3" if version == 1 else _REMEDY
            self._refuse(
                f"Sorry, file appears to be version {version} which we cannot handle", remedy=remedy
            )
        for rule, offset, a, b in problems:
            if rule == "dims-count":
                self._refuse(_too_many_dims(a), offset)
            if rule not in _ACCEPTED:
                raise finding(rule, offset, a=a, b=b).at(Path(self._path)).exception()
        return np.frombuffer(keys, KEY_RECORD), np.frombuffer(infos, TENSOR_RECORD), end

    def _add_field(self, field: ReaderField) -> None:
        if field.name in self.fields:
            raise DuplicateKeyError(
                f"Duplicate {field.name} already in list",
                remedy=_REMEDY,
                offset=field.offset,
                path=self._path,
            )
        self.fields[field.name] = field

    def _alignment(self) -> int:
        field = self.fields.get("general.alignment")
        if field is None:
            return DEFAULT_ALIGNMENT
        if field.types != [GGUFValueType.UINT32]:
            self._refuse("Bad type for general.alignment field", field.offset)
        number = int(field.parts[-1][0])
        if number == 0 or number & (number - 1):
            self._refuse("Invalid alignment: must be a non-zero power of two", field.offset)
        return number

    def _build_tensors(self, start_offs: int, fields: list[ReaderField]) -> None:
        """Make the tensors that `fields` describe; programs that want none override this."""
        names: set[str] = set()
        tensors = []
        for field in fields:
            if not isinstance(field, LazyField) or not isinstance(field.source, InfoBytes):
                super()._build_tensors(start_offs, fields)
                return
            tensor = self._tensor(field, field.source, start_offs)
            if tensor.name in names:
                self._refuse(f"Found duplicated tensor with name {tensor.name}", field.offset)
            names.add(tensor.name)
            tensors.append(tensor)
        self.tensors = tensors

    def _tensor(self, field: LazyField, info: InfoBytes, data_offset: int) -> ReaderTensor:
        if info.n_dims > MAX_DIMS:
            self._refuse(_too_many_dims(info.n_dims), info.offset)
        kind = GGMLQuantizationType(info.type_id)
        block_size, type_size = GGML_QUANT_SIZES[kind]
        shape = info.dims.tolist()[::-1]
        elements = math.prod(shape)
        start, nbytes = data_offset + info.start, elements * type_size // block_size
        if start + nbytes > self.data.size:
            raise TruncatedError(
                f"tensor {field.name!r} ends at byte {start + nbytes:,}, "
                f"but the file has {self.data.size:,} bytes",
                remedy="Download the file again; it is incomplete",
                path=self._path,
            )
        if kind.name not in _DTYPES:
            shape = self._byte_shape(field, shape, kind)
        dtype = np.dtype(_DTYPES.get(kind.name, "u1")).newbyteorder(self.byte_order)
        data = self.data[start : start + nbytes].view(dtype).reshape(shape)
        return ReaderTensor(field.name, kind, info.dims, elements, nbytes, start, data, field)

    def _byte_shape(
        self, field: ReaderField, shape: list[int], kind: GGMLQuantizationType
    ) -> list[int]:
        block_size, type_size = GGML_QUANT_SIZES[kind]
        width = shape[-1] if shape else 1
        if width % block_size:
            self._refuse(
                f"tensor {field.name!r}: Quantized tensor row size ({width}) is not a multiple of "
                f"{kind.name} block size ({block_size})",
                field.offset,
            )
        return [*shape[:-1], width // block_size * type_size]

    def _refuse(
        self, message: str, offset: int | None = None, *, remedy: str = _REMEDY
    ) -> NoReturn:
        raise FormatError(message, remedy=remedy, offset=offset, path=self._path)


def _too_many_dims(count: int) -> str:
    return f"Tensor dimensions count {count} exceeds GGML_MAX_DIMS ({MAX_DIMS})"


def __getattr__(name: str) -> Any:  # noqa: ANN401 (as the language has it)
    """Return what else gguf-py has in this module."""
    return getattr(gguf.gguf_reader, name)
