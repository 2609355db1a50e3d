"""Type numbers that programs use for different layouts, and which of them a file means.

The offsets of tensors tell how many bytes each has, and the layouts differ in size. So the sizes
of all tensors choose the dialect: a program whose layouts fit them all. Where none fits, or
several, the types stay opaque, so that nothing is decoded in a wrong layout.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Final

from ggufkit.errors import ValueTypeError
from ggufkit.format.tensor_infos import Infos, reaches
from ggufkit.format.types import (
    DIALECT_VARIABLE,
    DIALECTS,
    GGML_TYPES,
    TensorType,
    opaque_type,
    padded,
    tensor_type,
)
from ggufkit.rules.findings import Findings
from ggufkit.system.mapped_file import Data

LLAMA_CPP: Final = next(iter(DIALECTS))
# Numbers that have, or had, another layout in another program. Forks of llama.cpp also had MXFP8,
# MXFP6 and TQ3_0 under 40 to 42, and ik_llama.cpp IQ2_TN and IQ1_TN under 142 and 143.
SHARED: Final = frozenset({36, 40, 41, 42, 142, 143})
_AFTER_I2_S: Final = 32  # bytes: the scale of the whole tensor, and padding
_LOOK_BYTES: Final = 1 << 14  # of a tensor, for its padding; 576 with the usual alignment
_DIALECT: Final[ContextVar[str | None]] = ContextVar("dialect", default=None)


@contextlib.contextmanager
def reading(dialect: str | None) -> Iterator[None]:
    """Read files as those of `dialect` within this context; None changes nothing."""
    token = _DIALECT.set(dialect or _DIALECT.get())
    try:
        yield
    finally:
        _DIALECT.reset(token)


def chosen() -> str | None:
    """Return the dialect that a caller or the environment has chosen; ValueTypeError if unknown."""
    name = _DIALECT.get() or os.environ.get(DIALECT_VARIABLE) or None
    if name is not None and name not in DIALECTS:
        raise ValueTypeError(
            f"unknown dialect {name!r}", remedy=f"The dialects are {', '.join(DIALECTS)}"
        )
    return name


def dialect_of(types: set[TensorType]) -> str | None:
    """Return the dialect of a model with these types; None without numbers that programs share."""
    names = [name for name, rows in DIALECTS.items() if not types.isdisjoint(rows)]
    shared = any(GGML_TYPES.get(kind.id) == kind and kind.id in SHARED for kind in types)
    return names[0] if names else LLAMA_CPP if shared else None


def is_of_one_dialect(types: set[TensorType]) -> bool:
    """Whether one program gives the numbers of these types these meanings; unclear ones fit any."""
    clear = {kind for kind in types if kind.id in SHARED and kind != opaque_type(kind.id)}
    meanings = _meanings(frozenset(kind.id for kind in clear))
    return any(all(rows[kind.id] == kind for kind in clear) for rows in meanings.values())


@dataclass(frozen=True)
class _SharedTensor:
    """Where a tensor lies: from `start` in the file to the next tensor or the end."""

    number: int
    width: int
    elements: int
    start: int
    bytes: int
    is_last: bool

    def nbytes(self, kind: TensorType) -> int | None:
        """Return the bytes of such a tensor of a type; None if it cannot be of it, or is opaque."""
        if kind.name == "I2_S":
            return self.elements // 4 + _AFTER_I2_S
        if kind.is_opaque or self.width % kind.block_size:
            return None
        return self.elements // self.width * kind.row_bytes(self.width)

    def fits(self, kind: TensorType, alignment: int) -> bool:
        """Whether it has the bytes of a type: up to the next tensor, or the end of the file."""
        size = self.nbytes(kind)
        return size is not None and (
            self.bytes == padded(size, alignment) or (self.is_last and self.bytes == size)
        )


@dataclass(frozen=True)
class DataSection:
    """The tensor data of a file of `nbytes` bytes: from the byte `begin` on, aligned.

    `content` is the whole file, or only its header if it is read by ranges.
    """

    content: Data
    begin: int
    nbytes: int
    alignment: int


def resolved(infos: Infos, section: DataSection, findings: Findings) -> Infos:
    """Return tensor infos with the types that their numbers mean in the file."""
    numbers = SHARED.intersection(kind.id for kind in infos.kinds[0])
    if not numbers:
        return infos
    if name := chosen():
        return replace(infos, rows={row.id: row for row in DIALECTS[name]})
    tensors = list(_shared(infos, section))
    meanings = _meanings(numbers)
    fits = {name: _fits(_rows_of(name, numbers), tensors, section.alignment) for name in DIALECTS}
    infos = replace(infos, fits=fits)
    fits = {name: fits[name] for name in meanings}
    most = max(0, *fits.values())
    best = [name for name, count in fits.items() if count == most]
    if len(best) > 1 and most:
        best = _not_excluded({name: meanings[name] for name in best}, tensors, section)
    if len(best) == 1 or (best and not most):
        return replace(infos, rows=meanings[best[0]])
    agreed = meanings[best[0]] if best else {}
    unclear = {
        number
        for number in numbers
        if not best or any(meanings[name][number] != agreed[number] for name in best)
    }
    is_refused = any(not tensor.is_last for tensor in tensors)  # others may have bytes after them
    misfit = "no layout, so llama.cpp refuses the file" if is_refused else "no layout"
    for number in sorted(unclear):
        kinds = {f"{rows[number]} ({name})" for name, rows in meanings.items()}
        index = infos.table["type"].tolist().index(number)
        findings.add(
            "type-dialect",
            infos.place(index, "type"),
            id=number,
            layouts=", ".join(sorted(kinds)),
            fit="several layouts" if best else misfit,
        )
    return replace(infos, rows={**agreed, **{number: opaque_type(number) for number in unclear}})


def _meanings(numbers: frozenset[int]) -> dict[str, dict[int, TensorType]]:
    """Return what the numbers mean in each dialect; of dialects that agree, the first."""
    meanings: dict[str, dict[int, TensorType]] = {}
    for name in DIALECTS:
        rows = _rows_of(name, numbers)
        if rows not in meanings.values():
            meanings[name] = rows
    return meanings


def _rows_of(name: str, numbers: frozenset[int]) -> dict[int, TensorType]:
    own = {row.id: row for row in DIALECTS[name]}
    return {number: own.get(number) or tensor_type(number) for number in numbers}


def of_all_files(files: Iterable[Infos]) -> str | None:
    """Return the dialect that explains most tensors of several files, and contradicts none.

    None if several explain as many, or none does, or if fewer than two files need one.
    """
    concerned = [infos for infos in files if infos.fits]
    numbers = frozenset(kind.id for infos in concerned for kind in infos.kinds[0]) & SHARED
    counts = {name: [infos.fits[name] for infos in concerned] for name in _meanings(numbers)}
    sums = {name: sum(fits) for name, fits in counts.items() if min(fits, default=-1) >= 0}
    most = max(sums.values(), default=0)
    best = [name for name, total in sums.items() if total == most]
    return best[0] if len(concerned) > 1 and len(best) == 1 and most else None


def _shared(infos: Infos, section: DataSection) -> Iterator[_SharedTensor]:
    table = infos.table
    sizes = reaches(table["offset"], max(section.nbytes - section.begin, 0)).tolist()
    last = int(table["offset"].max(initial=0))
    for index, number in enumerate(table["type"].tolist()):
        row = table[index]
        if number in SHARED and row["elements"]:
            offset = int(row["offset"])
            width, elements = int(row["width"]), int(row["elements"])
            place = (section.begin + offset, sizes[index], offset == last)
            yield _SharedTensor(number, width, elements, *place)


def _fits(rows: Mapping[int, TensorType], tensors: list[_SharedTensor], alignment: int) -> int:
    """Return how many tensors have the bytes of their types, -1 if one has other bytes.

    Opaque types fit any bytes. The last tensor counts only if it ends where the file ends: more
    may follow it, or the file is cut; but where it alone could tell, bytes after it tell nothing.
    """
    count, has_more = 0, False
    for tensor in tensors:
        kind = rows[tensor.number]
        if kind.is_opaque and kind.name != "I2_S":
            continue
        size = tensor.nbytes(kind)
        if tensor.fits(kind, alignment):
            count += 1
        elif size is None or not tensor.is_last:
            return -1
        else:
            has_more = size < tensor.bytes
    return -1 if has_more and not count else count


def _not_excluded(
    meanings: dict[str, dict[int, TensorType]], tensors: list[_SharedTensor], section: DataSection
) -> list[str]:
    """Return the dialects whose padding is zero in the file; only the first if all is zero."""
    remaining, is_zero = set(meanings), True
    for tensor in tensors:
        kinds = {name: rows[tensor.number] for name, rows in meanings.items()}
        sizes = {name: tensor.nbytes(kind) or 0 for name, kind in kinds.items()}
        size = max(sizes.values())
        content = bytes(section.content[tensor.start : tensor.start + min(size, _LOOK_BYTES)])
        is_zero = is_zero and len(content) == size and not content.strip(b"\0")
        if all(tensor.fits(kind, section.alignment) for kind in kinds.values()):
            remaining -= {name for name in sizes if content[sizes[name] :].strip(b"\0")}
    return [name for name in meanings if name in remaining][: 1 if is_zero else None]
