"""Bytes to header: the native scan, and every check that needs no tensor data.

Nothing here raises for errors in a file: findings are collected, and the header holds what could
be read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

import ggufkit._native as _native
from ggufkit.format import types
from ggufkit.format.dialects import DataSection, resolved
from ggufkit.format.encoding import ByteOrder, Encoding, is_utf8
from ggufkit.format.magic import HEAD_BYTES, identify
from ggufkit.format.metadata import Encoded, Metadata, is_alignment
from ggufkit.format.tensor_infos import (
    Infos,
    Places,
    Table,
    about_names,
    about_places,
    about_shapes,
)
from ggufkit.format.values import Strings, uint32_of
from ggufkit.rules.findings import Finding, Findings, first_error
from ggufkit.system.mapped_file import Data

GGML_MAX_COUNT: Final = 2**30  # entries of an array and bytes of a string that ggml reads
BIG_ENDIAN_SINCE: Final = 3  # the first version with big endian
# The scanner continues after these; every other problem ends the scan.
_SCANNED_ON: Final = frozenset({"bool-value"})
_KEY_FORM: Final = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")

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
CUT: Final = "data-truncated"  # the header is whole, and tells where all tensors would be
# The file ends inside its header: what comes before can still be read.
HEADER_CUT: Final = frozenset(
    {"header-truncated", "count", "key-length", "name-length", "string-length", "array-count"}
)
_NOWHERE: Final = Places.of(Infos(np.empty(0, TENSOR_RECORD), Encoding(), [], []), 0)


@dataclass(frozen=True)
class Header:
    """The part of a file before the tensor data, and the findings about it.

    `end` is the byte after the last tensor info. `places` is empty if the positions of tensors
    cannot be known. Where the file ends inside the header, `unplaced` are the tensor infos that
    come before the end. `announced` are the numbers of keys and tensors that it should have.
    """

    nbytes: int
    version: int = 0
    byte_order: ByteOrder = "little"
    entries: dict[str, Encoded] = field(default_factory=dict)
    alignment: int = types.DEFAULT_ALIGNMENT
    end: int = 0
    places: Places = _NOWHERE
    findings: tuple[Finding, ...] = ()
    unplaced: Places | None = None
    announced: tuple[int, int] = (0, 0)

    @property
    def metadata(self) -> Metadata:
        """The key-value pairs, not decoded yet."""
        return Metadata.encoded(self.entries.items())

    def with_data(self, data: bytes) -> Header:
        """Return this header with its values in `data`, a copy of what was parsed."""
        entries = {key: replace(entry, data=data) for key, entry in self.entries.items()}
        return replace(self, entries=entries)

    @property
    def data_offset(self) -> int:
        """The aligned beginning of the tensor data."""
        return min(types.padded(self.end, self.alignment), self.nbytes)

    @property
    def data_end(self) -> int:
        """The byte after the last tensor."""
        return self.data_offset + self.places.end

    @property
    def data_nbytes(self) -> int:
        """Bytes from the beginning of the tensor data to the end of the file."""
        return self.nbytes - self.data_offset

    @property
    def end_padded(self) -> bool:
        """Whether the file ends on its alignment, as ggml writes it."""
        begin = types.padded(self.end, self.alignment)
        return self.nbytes >= begin + types.padded(self.places.end, self.alignment)


def parse(data: Data, nbytes: int) -> Header:
    """Return the header of a file of `nbytes` bytes with the content `data`."""
    if nbytes == 0 or not types.MAGIC.startswith(data[: len(types.MAGIC)]):
        return Header(nbytes, findings=(identify(data[:HEAD_BYTES], nbytes),))
    version, big, keys, tensors, end, key_table, tensor_table, problems = _native.scan(
        data, *([nbytes] if len(data) < nbytes else [])
    )
    findings = Findings()
    for rule, offset, a, b in problems:
        findings.add(rule, offset, a=a, b=b)
    encoding = Encoding("big" if big else "little", wide=version != 1)
    if version == 1:
        findings.add("version-1", len(types.MAGIC))
    if encoding.byte_order == "big":
        findings.add("big-endian", len(types.MAGIC))
        if version < BIG_ENDIAN_SINCE:
            findings.add("version-byte-order", len(types.MAGIC), version=version)
    entries = _entries(data, np.frombuffer(key_table, KEY_RECORD), encoding, findings)
    alignment, places, unplaced = types.DEFAULT_ALIGNMENT, _NOWHERE, None
    ended_by = {rule for rule, *_ in problems} - _SCANNED_ON
    if ended_by <= HEADER_CUT:
        infos = Infos.read(data, np.frombuffer(tensor_table, TENSOR_RECORD), encoding)
        if ended_by:
            unplaced = _unplaced(infos)
        else:
            alignment = _alignment(entries, findings)
            section = DataSection(data, types.padded(end, alignment), nbytes, alignment)
            infos = resolved(infos, section, findings)
            places = _places(infos, end, alignment, nbytes, findings)
    return Header(
        *(nbytes, version, encoding.byte_order, entries, alignment, end),
        places=places,
        findings=findings.all(),
        unplaced=unplaced,
        announced=(keys, tensors),
    )


def _entries(
    data: Data, table: Table, encoding: Encoding, findings: Findings
) -> dict[str, Encoded]:
    entries: dict[str, Encoded] = {}
    for key_at, size, kind, element, count, value_at, end in table.tolist():
        key = data[key_at : key_at + size].decode("utf-8", "surrogateescape")
        if key in entries or size > types.MAX_KEY_BYTES or not _KEY_FORM.fullmatch(key):
            _about_key(key, size, key_at - encoding.count_bytes, key in entries, findings)
        value, inner = types.VALUE_TYPES[kind], types.VALUE_TYPES.get(element)  # None: no array
        entry = Encoded(data, encoding, value, inner, count, key_at + size, value_at, end)
        if entry.element_type is types.ValueType.ARRAY:
            findings.add("array-nested", entry.start, key=key)
        if entry.end - entry.value_at > GGML_MAX_COUNT and _longest(entry) > GGML_MAX_COUNT:
            findings.add("value-long", entry.value_at, key=key, limit=GGML_MAX_COUNT)
        entries[key] = entry
    _about_split(entries, findings)
    return entries


def _about_key(key: str, size: int, offset: int, is_repeated: bool, findings: Findings) -> None:  # noqa: FBT001
    if not key:
        findings.add("key-empty", offset)
    if is_repeated:
        findings.add("key-duplicate", offset, key=key)
    if size > types.MAX_KEY_BYTES:
        findings.add("key-size", offset, key=key, size=size, limit=types.MAX_KEY_BYTES)
    elif "\0" in key:
        findings.add("key-nul", offset, key=key)
    elif not is_utf8(key):
        findings.add("key-utf8", offset, key=key)
    elif key and not _KEY_FORM.fullmatch(key):
        findings.add("key-form", offset, key=key)


def _longest(entry: Encoded) -> int:
    """Return the largest count that ggml would compare with its limit."""
    if entry.type is types.ValueType.STRING:
        return entry.end - entry.value_at - entry.encoding.count_bytes
    value = entry.decode()
    return max(entry.count, value.longest()) if isinstance(value, Strings) else entry.count


def _about_split(entries: dict[str, Encoded], findings: Findings) -> None:
    for key, expected in types.SPLIT_TYPES.items():
        entry = entries.get(key)
        if entry is None:
            continue
        value = entry.decode() if entry.element_type is None else "an array"
        if not isinstance(value, np.integer) or value < 0:
            findings.add("split-value", entry.start, key=key, value=str(value))
        elif entry.type is not expected:
            names = {"type": entry.type_name, "wanted": expected.name.lower()}
            findings.add("split-type", entry.start, key=key, **names)


def _alignment(entries: dict[str, Encoded], findings: Findings) -> int:
    entry = entries.get("general.alignment")
    if entry is None:
        return types.DEFAULT_ALIGNMENT
    if entry.type is not types.ValueType.UINT32:
        findings.add("alignment-type", entry.start, type=entry.type_name)
        return types.DEFAULT_ALIGNMENT
    number = uint32_of(entry.decode()) or 0
    if is_alignment(number):
        return number
    findings.add("alignment-value", entry.value_at, number=number)
    return types.DEFAULT_ALIGNMENT


def _unplaced(infos: Infos) -> Places | None:
    """Return the tensors of a header that is cut, if their names and shapes are right."""
    findings = Findings()
    about_names(infos, findings)
    about_shapes(infos, findings)
    return None if first_error(findings.all()) else Places.of(infos, 0)


def _places(infos: Infos, end: int, alignment: int, nbytes: int, findings: Findings) -> Places:
    """Check the tensor infos, and return the positions of tensors if they can be known."""
    about_names(infos, findings)
    about_shapes(infos, findings)
    if findings.breaks("alignment-type", "alignment-value", "shape-overflow", "row-width"):
        return _NOWHERE
    data_offset = types.padded(end, alignment)
    places = Places.of(infos, nbytes - data_offset)
    about_places(places, alignment, data_offset, findings)
    is_known = places.end <= max(places.room, 0) or findings.breaks(CUT)
    return places if is_known else _NOWHERE
