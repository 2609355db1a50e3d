"""Derive a model's conventional file name from its header, because file names can be wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from ggufkit.edits.recover import settle
from ggufkit.errors import OutputError
from ggufkit.format.file_name import (
    FileName,
    as_written,
    build_name,
    parse_name,
    parse_spoken,
    plain_encoding,
    size_label,
)
from ggufkit.format.file_types import FILE_TYPES, GUESSED
from ggufkit.format.metadata import Metadata
from ggufkit.format.values import whole_number
from ggufkit.models.any_model import takes_model
from ggufkit.models.model import PROJECTOR, Model
from ggufkit.remote.range_file import RangeFile
from ggufkit.system.cancellation import shield
from ggufkit.system.edit_journal import follow, real
from ggufkit.system.rename_files import rename_files

FIRST_VERSION: Final = "v1.0"  # the version that readers assume if a name has none
_PARTS: Final = ("basename", "size_label", "finetune", "version")


@takes_model
def conventional_name(model: Model) -> FileName:
    """Return the parts of the conventional name of `model`.

    Each part comes from its key in the header, else from `general.name`, else from the present name
    of the file. If all of them lack it, the size is computed, the version is v1.0, and other parts
    are empty.
    """
    metadata = model.metadata
    count = sum(tensor.elements for tensor in model.tensors.values())
    in_name = parse_name(model.files[0].path.name, count) if model.files else FileName("")
    in_title = parse_spoken(_text(metadata, "general.name").replace(" ", "-"), count)
    parts = {
        part: _text(metadata, f"general.{part}")
        or getattr(in_title, part)
        or getattr(in_name, part)
        for part in _PARTS
    }
    name = replace(
        in_name,
        basename=parts["basename"],
        size_label=parts["size_label"] or _counted(model, count),
        finetune=parts["finetune"],
        version=parts["version"] or FIRST_VERSION,
        encoding=_encoding(metadata) or plain_encoding(in_name.encoding),
        type=_type(model),
        sidecar=_sidecar(metadata) or in_name.sidecar,
        shard=(1, len(model.files)) if len(model.files) > 1 else None,
        conventional=False,
    )
    return as_written(name)


def rename(model: Model, parts: FileName) -> list[Path]:
    """Rename the files of an opened model after `parts`, in their folder; return their paths.

    A shard set is renamed as a whole. Raises OutputError for a name that is taken, and for links
    (as in the Hugging Face cache); then nothing is renamed.
    """
    if not model.files:
        raise OutputError(
            "the model was not opened from a file", remedy="Write the model under that name instead"
        )
    if any(isinstance(file, RangeFile) for file in model.inputs):
        raise OutputError(
            f"{model.files[0].path} is not on this disk, and cannot be renamed",
            remedy="Copy the model under that name",
        )
    if any(file.path.name.startswith("sha256-") for file in model.files):
        raise OutputError(
            f"{model.files[0].path} is a blob that Ollama finds by its name",
            remedy="Copy the model to another folder, and rename it there",
        )
    paths = new_paths(model, parts)
    pairs = [(file.path, path) for file, path in zip(model.files, paths, strict=True)]
    for old, _ in pairs:  # a journal would not find the file under its new name
        settle(real(old))
    with shield():
        rename_files(pairs)
        for old, new in pairs:
            follow(old, new)
    return paths


def new_paths(model: Model, parts: FileName) -> list[Path]:
    """Return the paths that the model's files would have under the name of `parts`."""
    count = len(model.files)
    shards = [(i + 1, count) if count > 1 else None for i in range(count)]
    return [
        file.path.with_name(build_name(replace(parts, shard=shard)))
        for file, shard in zip(model.files, shards, strict=True)
    ]


def _text(metadata: Metadata, key: str) -> str:
    """Return the text of a key, empty if it cannot be part of a name."""
    value = metadata.get(key, "")
    return value.strip() if isinstance(value, str) and value.isprintable() else ""


def _encoding(metadata: Metadata) -> str:
    number = whole_number(metadata.get("general.file_type"))
    return "" if number is None else FILE_TYPES.get(number & ~GUESSED, "")


def _type(model: Model) -> str:
    if _text(model.metadata, "adapter.type") == "lora":
        return "LoRA"
    return "vocab" if not model.tensors and "tokenizer.ggml.model" in model.metadata else ""


def _sidecar(metadata: Metadata) -> str:
    kinds = {_text(metadata, "general.architecture"), _text(metadata, "general.type")}
    return "mmproj" if kinds & {PROJECTOR, "mmproj"} else ""


def _counted(model: Model, count: int) -> str:
    """Return the size label from the number of parameters, empty for an adapter and for experts.

    Shapes alone do not show how many experts are active.
    """
    is_part = any(key.endswith(".expert_count") for key in model.metadata) or not model.tensors
    return (
        "" if is_part or _text(model.metadata, "general.type") == "adapter" else size_label(count)
    )
