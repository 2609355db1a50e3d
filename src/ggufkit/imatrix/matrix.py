"""Importance matrices: the mean square of each input of each weight matrix, and their files.

Source: llama.cpp's `imatrix-loader.cpp`, `tools/imatrix` and `tools/quantize`. Two forms exist.
GGUF files keep raw sums of squared activations and how many tokens they sum up, per expert. Legacy
`.dat` files keep means, multiplied by the number of chunks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from ggufkit.errors import FormatError, ShapeError, ValueTypeError
from ggufkit.format.coerce import frozen, typed
from ggufkit.format.metadata import Metadata
from ggufkit.format.types import DEFAULT_ALIGNMENT, MAGIC
from ggufkit.format.values import Strings, uint32_of
from ggufkit.imatrix.dat_file import (
    MAX_INT32,
    DatEntry,
    DatFile,
    as_bytes,
    legacy_bytes,
    read_legacy,
)
from ggufkit.models.model import Model, Tensor, Tensors
from ggufkit.models.open import open as open_model
from ggufkit.models.rows import rows_and_width
from ggufkit.models.sources import TOKEN_EMBEDDINGS
from ggufkit.models.tensors.in_memory import as_tensor
from ggufkit.output.execute import Order, execute_all
from ggufkit.output.layout import Layout, PlannedFile, layout
from ggufkit.quants.kernels import EXPERT_AXES
from ggufkit.quants.parallel import Floats
from ggufkit.system.descriptors import AnyPath, as_path
from ggufkit.system.mapped_file import MappedFile
from ggufkit.system.readers_limit import NO_LIMIT, ReadersLimit

Counts = npt.NDArray[np.int64]

CHUNK_SIZE: Final = 512  # tokens: llama-imatrix's default context; legacy files do not store it
MAX_COUNT: Final = 2**48  # tokens, more than any text has: sums of several still fit 64 bits
SUMS: Final = ".in_sum2"
COUNTS: Final = ".counts"
SD_CPP_PREFIX: Final = "model.diffusion_model."
FORMATS: Final = ("gguf", "dat")
HESSIAN_REMEDY: Final = "Compute the Hessian of this model: `ggufkit imatrix compute --hessian`"


@dataclass(frozen=True, eq=False)  # arrays do not compare to one bool
class Entry:
    """The data of one weight matrix, or of a stack of experts.

    `sums` (float32, shape (matrices, width)) are the squared activations of each input added up
    over `counts` (int64, shape (matrices,)) tokens. In a legacy file both count chunks.
    """

    sums: Floats
    counts: Counts


@dataclass(frozen=True)
class Imatrix:
    """An importance matrix: entries by tensor name, and what they were computed from.

    `chunk_size` is in tokens, 0 if the file does not store it; `is_legacy` means that entries count
    as in a `.dat` file. `path` is the file that was read, and `limit` says who may read outputs
    made from it. `is_hessian` says that they are the diagonals of a Hessian. `half_cosines` has for
    each entry the cosine between the sums of the first half of the text and of the whole; only
    what `compute_imatrix` returns has it, since files do not store it.
    """

    entries: Mapping[str, Entry]
    datasets: tuple[str, ...] = ()
    chunk_count: int = 0
    chunk_size: int = CHUNK_SIZE
    is_legacy: bool = False
    path: Path | None = field(default=None, compare=False)
    limit: ReadersLimit = field(default=NO_LIMIT, compare=False, repr=False)
    is_hessian: bool = field(default=False, compare=False, repr=False)
    half_cosines: Mapping[str, float] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Keep the entries from being changed."""
        object.__setattr__(self, "entries", MappingProxyType(dict(self.entries)))

    @classmethod
    def open(cls, path: AnyPath) -> Imatrix:
        """Read a GGUF or legacy file, whichever it is.

        Raises a FormatError (a ValueError) for a file that is neither, is damaged, or holds values
        that are not finite; OSError as the builtin `open` does.
        """
        location = as_path(path)
        file = MappedFile(location)
        try:
            with file.unchanged():
                is_gguf = bytes(file.data[: len(MAGIC)]) == MAGIC
                legacy = None if is_gguf else read_legacy(file.data, str(location))
        finally:
            file.close()
        content = _from_legacy(legacy, str(location)) if legacy else _read_gguf(location)
        return replace(content, path=location, limit=ReadersLimit.of([file.status]))

    def weights(self, name: str, shape: tuple[int, ...] | None = None) -> Floats | None:
        """Return the weight of each column of a tensor as llama-quantize uses it, None if absent.

        It is float32 of shape (width,), or (experts, width) for a stack of experts; an expert that
        no token reached gives all columns the same weight. With the `shape` of the tensor (NumPy
        order) it is repeated to fit; ShapeError if it cannot. Token embeddings that do not fit
        count as absent, as in llama.cpp. Entries of stable-diffusion.cpp have its prefix in their
        names; those that do not fit are absent: ComfyUI's files of SD have other rows.
        """
        entry = self.entries.get(name) or self.entries.get(f"{SD_CPP_PREFIX}{name}")
        if entry is None:
            return None
        means = _means(entry, entry.sums if self.is_legacy else np.float32(1))
        if shape is None:
            return means[0] if len(means) == 1 else means
        return self._fitted(name, means, shape)

    def _fitted(self, name: str, means: Floats, shape: tuple[int, ...]) -> Floats | None:
        width, is_stack = rows_and_width(shape)[1], len(shape) >= EXPERT_AXES
        experts = shape[-EXPERT_AXES] if is_stack else 1
        if means.size == width * experts:
            return means.reshape((experts, width) if is_stack else width)
        if name in TOKEN_EMBEDDINGS or name not in self.entries:
            return None
        what = "the importance data"
        remedy = "Use an importance matrix of this model, or remove the tensor from the matrix"
        if self.is_hessian:
            what = f"the Hessian {str(self.path)!r} is of another model: its diagonal"
            remedy = HESSIAN_REMEDY
        raise ShapeError(
            f"{what} of {name!r} holds {means.size} values, but the tensor of shape {shape} needs "
            f"{width * experts}",
            remedy=remedy,
        )

    def selected(self, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> Imatrix:
        """Return only the entries whose names hold one of `include` (or all) and none of `exclude`.

        These are llama-quantize's --include-weights and --exclude-weights.
        """
        entries = {
            name: entry
            for name, entry in self.entries.items()
            if is_selected(name, include, exclude)
        }
        return replace(self, entries=entries)

    def save(self, path: AnyPath, format: str | None = None, *, clobber: bool = True) -> Path:
        """Write the file that llama-imatrix would write, whole or not at all; return its path.

        `format` is "gguf" or "dat"; by default a name ending in .dat asks for the legacy form.
        Legacy entries are turned into sums first, as `merge` does. Without `clobber` no file is
        replaced. Raises as `ggufkit.write` does.
        """
        target = as_path(path)
        chosen = format or ("dat" if target.suffix == ".dat" else "gguf")
        if chosen not in FORMATS:
            raise ValueTypeError(f"unknown format {chosen!r}", remedy="Use 'gguf' or 'dat'")
        raw = merge([self]) if self.is_legacy else self
        plan = (_gguf_plan if chosen == "gguf" else _legacy_plan)(raw, target.name)
        return execute_all([Order(plan, target.parent)], clobber=clobber)[0][0]


def is_selected(name: str, include: Sequence[str], exclude: Sequence[str]) -> bool:
    """Whether a name holds one of `include`, or there is none, and none of `exclude`."""
    left_out = any(part in name for part in exclude)
    return not left_out and (not include or any(part in name for part in include))


def _means(entry: Entry, unseen: Floats | np.float32) -> Floats:
    counts = entry.counts[:, np.newaxis].astype(np.float32)
    return np.where(counts > 0, entry.sums / np.maximum(counts, 1), unseen)


def merge(imatrices: Iterable[Imatrix], *, chunk_size: int | None = None) -> Imatrix:
    """Add up several importance matrices (or one), as `llama-imatrix --in-file` does.

    Legacy entries count `chunk_size` tokens for each chunk: by default the one size that the
    matrices name, or 512. Raises ShapeError where two do not fit each other.
    """
    imatrices_given = list(imatrices)
    sizes = {matrix.chunk_size for matrix in imatrices_given if matrix.chunk_size}
    size = chunk_size or (sizes.pop() if len(sizes) == 1 else CHUNK_SIZE)
    entries: dict[str, Entry] = {}
    for matrix in imatrices_given:
        for name, entry in matrix.entries.items():
            tokens = _in_tokens(entry, size) if matrix.is_legacy else entry
            total = entries.get(name)
            entries[name] = (
                _sum(name, total, tokens, is_legacy=matrix.is_legacy) if total else tokens
            )
    ordered = {name: _checked(entry, name) for name, entry in _sorted(entries)}
    datasets = tuple(itertools.chain.from_iterable(matrix.datasets for matrix in imatrices_given))
    limit = ReadersLimit.all_of(matrix.limit for matrix in imatrices_given)
    return Imatrix(ordered, datasets, chunks_held(ordered, size), size, limit=limit)


def chunks_held(entries: Mapping[str, Entry], chunk_size: int) -> int:
    """Return the chunks that the most used entry counts: llama-imatrix's number of chunks."""
    return max((int(entry.counts.max()) for entry in entries.values()), default=0) // chunk_size


def _sorted(entries: Mapping[str, Entry]) -> list[tuple[str, Entry]]:
    return sorted(entries.items(), key=lambda item: as_bytes(item[0]))


def _in_tokens(entry: Entry, chunk_size: int) -> Entry:
    with np.errstate(over="ignore"):  # what becomes infinite is refused afterwards
        sums = entry.sums * np.float32(chunk_size)
    return Entry(frozen(sums), frozen(entry.counts * chunk_size))


def _sum(name: str, total: Entry, added: Entry, *, is_legacy: bool) -> Entry:
    """Add two entries; a single count stands for every expert if the other has one for each."""
    fits = total.sums.size == added.sums.size
    matrices = {len(total.counts), len(added.counts)}
    if not fits or (len(matrices) > 1 and len(total.counts) != 1 and not is_legacy):
        raise ShapeError(
            f"the importance data of {name!r} do not fit together: {total.sums.shape} and "
            f"{added.sums.shape}",
            remedy="Merge only importance matrices of one model, and put those with separate "
            "data for each expert last",
        )
    counts = total.counts + added.counts
    with np.errstate(over="ignore"):
        sums = total.sums.reshape(-1) + added.sums.reshape(-1)
    return Entry(frozen(sums.reshape(len(counts), -1)), frozen(counts))


def _checked(entry: Entry, name: str, path: str = "") -> Entry:
    if np.isfinite(entry.sums).all():
        return entry
    raise FormatError(
        f"the importance data of {name!r} is infinite or not a number",
        remedy="Compute the matrix again; llama.cpp also refuses it",
        path=path,
    )


def _read_gguf(path: Path) -> Imatrix:
    with open_model(path) as model:
        chunk_count, chunk_size = (
            _required(model, f"imatrix.{key}", path) for key in ("chunk_count", "chunk_size")
        )
        datasets = model.metadata.get("imatrix.datasets")
        if datasets is None:
            raise _no_imatrix(path, "imatrix.datasets")
        entries = dict(_gguf_entries(model, str(path)))
        if not entries:
            raise FormatError("this importance matrix contains no data", path=str(path))
        names = tuple(datasets) if isinstance(datasets, Strings) else ()
        return Imatrix(entries, names, chunk_count, chunk_size)


def _required(model: Model, key: str, path: Path) -> int:
    number = uint32_of(model.metadata.typed(key)) if key in model.metadata else None
    if number is None:
        raise _no_imatrix(path, key)
    return number


def _no_imatrix(path: Path, key: str) -> FormatError:
    return FormatError(
        f"this GGUF file is not an importance matrix: it has no {key}",
        remedy="Use the output of llama-imatrix or `ggufkit imatrix compute`",
        path=str(path),
    )


def _gguf_entries(model: Model, path: str) -> Iterator[tuple[str, Entry]]:
    tensors = model.tensors
    stems = {
        name.removesuffix(end) for name in tensors for end in (SUMS, COUNTS) if name.endswith(end)
    }
    for stem in sorted(stems):
        if stem + SUMS not in tensors or stem + COUNTS not in tensors:
            missing = SUMS if stem + SUMS not in tensors else COUNTS
            raise FormatError(f"the importance matrix has no tensor {stem + missing!r}", path=path)
        yield stem, _gguf_entry(stem, tensors[stem + SUMS], tensors[stem + COUNTS], path)


def _gguf_entry(name: str, sums: Tensor, counts: Tensor, path: str) -> Entry:
    matrices = counts.elements
    is_float = sums.type.name == counts.type.name == "F32"
    if not is_float or not matrices or not sums.elements or sums.elements % matrices:
        raise FormatError(
            f"the sums and counts of {name!r} do not fit: {sums.type} of shape {sums.shape} and "
            f"{counts.type} of shape {counts.shape}",
            remedy="Both must be F32, and each count must belong to the same number of sums",
            path=path,
        )
    numbers = counts.numpy().reshape(-1)
    if not ((numbers >= 0) & (numbers <= MAX_COUNT)).all():  # not a number fails this too
        raise FormatError(f"a count of {name!r} is impossible", path=path)
    whole = np.floor(numbers.astype(np.float64) + 0.5).astype(np.int64)  # as C's lround
    values = np.array(sums.numpy(), np.float32).reshape(matrices, -1)
    return _checked(Entry(frozen(values), frozen(whole)), name, path)


def _gguf_plan(imatrix: Imatrix, file_name: str) -> Layout:
    tensors: dict[str, Floats] = {}
    for name, entry in _sorted(imatrix.entries):
        # ggml cannot tell a leading axis of length 1 from none.
        stacked = len(entry.counts) > 1
        tensors[name + SUMS] = entry.sums if stacked else entry.sums[0]
        counts = entry.counts.astype(np.float32)
        tensors[name + COUNTS] = counts[:, np.newaxis] if stacked else counts
    metadata = Metadata(
        {
            "general.type": "imatrix",
            "imatrix.datasets": typed("array[string]", list(imatrix.datasets)),
            "imatrix.chunk_count": typed("uint32", imatrix.chunk_count),
            "imatrix.chunk_size": typed("uint32", imatrix.chunk_size),
        }
    )
    model = Model(metadata, Tensors(as_tensor(name, value) for name, value in tensors.items()))
    return replace(layout(model, file_name), limit=imatrix.limit)


def _from_legacy(file: DatFile, path: str) -> Imatrix:
    entries = {
        name: _checked(Entry(values[np.newaxis], np.array([calls], np.int64)), name, path)
        for name, (values, calls) in file.entries.items()
    }
    datasets = (file.dataset,) if file.dataset else ()
    return Imatrix(entries, datasets, file.chunk_count, chunk_size=0, is_legacy=True)


def _legacy_plan(imatrix: Imatrix, file_name: str) -> Layout:
    counted = [(name, entry) for name, entry in _sorted(imatrix.entries) if entry.counts.any()]
    size = imatrix.chunk_size or CHUNK_SIZE
    entries = {name: _legacy_entry(name, entry, size) for name, entry in counted}
    dataset = imatrix.datasets[-1] if imatrix.datasets else ""
    data = legacy_bytes(DatFile(entries, min(imatrix.chunk_count, MAX_INT32), dataset))
    file = PlannedFile(file_name, data, (), len(data))
    return Layout((file,), 0, "little", DEFAULT_ALIGNMENT, imatrix.limit)


def _legacy_entry(name: str, entry: Entry, chunk_size: int) -> DatEntry:
    # Rounded up, so that an entry that few tokens reached does not count as empty.
    calls = math.ceil(int(entry.counts.max()) / chunk_size)
    if calls > MAX_INT32:
        raise ValueTypeError(f"{name!r} has more chunks than a .dat file can store")
    means = _means(entry, np.float32(1))
    return DatEntry((means * np.float32(calls)).reshape(-1), calls)
