"""Prove that a quantized file derives from a source: make it again, and compare everything."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ggufkit.errors import MISFORMED, GGUFError, MissingImportanceError, ValueTypeError
from ggufkit.format.metadata import Metadata
from ggufkit.imatrix.hessian import Hessian
from ggufkit.imatrix.matrix import Imatrix
from ggufkit.inspection.diff import KeyChange, TensorChange, diff
from ggufkit.models.any_model import AnyModel, opened
from ggufkit.models.rows import AnyFile
from ggufkit.output.layout import PlannedFile, layout
from ggufkit.quantization.file_keys import HESSIAN_FILE, IMATRIX_FILE
from ggufkit.quantization.provenance import (
    Provenance,
    content_digest,
    imatrix_digest,
    options_of,
    provenance_of,
    with_keys,
)
from ggufkit.quantization.quantize import decide, opened_imatrix
from ggufkit.system.descriptors import AnyPath
from ggufkit.system.threads import Progress


@dataclass(frozen=True)
class Reproduction:
    """The result of making a file again and comparing it.

    `provenance` is what the file carries. `tensors` and `keys` are those that differ from the file
    made again, in the file's order: from the source's tensor to the file's. `has_same_layout` tells
    whether files written again would be the same files, byte for byte, and not only have equal
    content.
    """

    provenance: Provenance
    count: int
    tensors: tuple[TensorChange, ...]
    keys: tuple[KeyChange, ...]
    has_same_source: bool
    has_same_layout: bool

    def __bool__(self) -> bool:
        """Whether the file derives from the source: every tensor and key is the same."""
        return not self.tensors and not self.keys

    @property
    def first(self) -> str | None:
        """The name of the first tensor that does not derive from the source."""
        return self.tensors[0].name if self.tensors else None


def reproduce(  # noqa: PLR0913 (two files, and what the first was made with)
    file: AnyModel,
    source: AnyModel,
    *,
    imatrix: Imatrix | AnyPath | None = None,
    hessian: AnyPath | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Reproduction:
    """Quantize `source` again with the settings that `file` carries, and compare everything.

    Nothing is written. `imatrix` is the importance data, needed if the file was made with some, and
    `hessian` its Hessian file.
    `progress(done, total)` counts bytes: first of the source, then of the file. The result is true
    if the file derives from the source; if not, it names the tensors and keys that do not.

    Raises ValueTypeError for a file that carries no provenance, MissingImportanceError if
    importance data is missing or is not that of the file, FormatError for keys that cannot be read.
    """
    with opened(file, "file") as model, opened(source, "source") as origin:
        provenance = provenance_of(model.metadata)
        if provenance is None:
            raise ValueTypeError(
                "this file does not say what it derives from",
                remedy="`quantize --provenance` writes files that do",
            )
        own_imatrix = _imatrix(provenance, opened_imatrix(imatrix), model.metadata)
        own_hessian = _hessian(provenance, hessian, model.metadata)
        content = content_digest(origin, threads, progress)
        recipe, options = options_of(provenance.settings)
        options["imatrix"], options["hessian"] = own_imatrix, own_hessian
        try:
            remade = decide(origin, recipe, **options)
        except (GGUFError, *MISFORMED) as error:
            raise ValueTypeError(
                f"the settings in the file do not fit this source: {str(error).rstrip('.')}",
                remedy="Name the source that the file was quantized from",
            ) from error
        again = with_keys(remade, replace(provenance, source=content))
        compared = diff(again.model, model, threads=threads, progress=progress)
        order = {name: number for number, name in enumerate(model.tensors)}
        changed = sorted(compared.tensors, key=lambda change: order.get(change.name, -1))
        planned = layout(again.model, "model.gguf", shard_counts=again.shard_counts).files
        return Reproduction(
            provenance,
            len(model.tensors),
            tuple(changed),
            compared.keys,
            has_same_source=content == provenance.source,
            # Whether files written again would have the same bytes outside of tensors, too.
            has_same_layout=not compared
            and len(planned) == len(model.inputs)
            and all(map(_is_file, planned, model.inputs)),
        )


def _imatrix(origin: Provenance, imatrix: Imatrix | None, metadata: Metadata) -> Imatrix | None:
    if imatrix is None and not origin.imatrix:
        return None
    if not origin.imatrix:
        raise ValueTypeError(
            "the file was made without importance data", remedy="Leave the imatrix out"
        )
    if imatrix is None:
        raise MissingImportanceError(
            "the file was made with importance data", remedy="Give its imatrix too"
        )
    if (actual := imatrix_digest(imatrix)) != origin.imatrix:
        raise MissingImportanceError(
            f"the file was made with other importance data: its digest is {origin.imatrix}, and "
            f"the given data has {actual}",
            remedy="Give the importance matrix that the file was made with",
        )
    path = metadata.text(IMATRIX_FILE, "")
    return replace(imatrix, path=Path(path) if path else None)


def _hessian(origin: Provenance, path: AnyPath | None, metadata: Metadata) -> Hessian | None:
    if path is None and not origin.hessian:
        return None
    if path is None or not origin.hessian:
        verb, remedy = ("with", "Give it too") if origin.hessian else ("without", "Leave it out")
        raise MissingImportanceError(f"the file was made {verb} a Hessian", remedy=remedy)
    opened_hessian = Hessian.open(path)
    if content_digest(opened_hessian.source) != origin.hessian:
        raise MissingImportanceError(
            "the file was made with another Hessian",
            remedy="Give the Hessian file that the file was made with",
        )
    return replace(opened_hessian, path=Path(metadata.text(HESSIAN_FILE, "")))


def _is_file(planned: PlannedFile, file: AnyFile) -> bool:
    if planned.nbytes != file.nbytes or bytes(file.read(0, len(planned.head))) != planned.head:
        return False
    offset = len(planned.head)
    for extent in sorted(planned.extents, key=lambda extent: extent.offset):
        if file.read(offset, extent.offset - offset).any():
            return False
        offset = extent.offset + extent.nbytes
    return not file.read(offset, planned.nbytes - offset).any()
