"""The file name that the convention gives to a model: out of its header, for names lie."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

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
from ggufkit.model.model import Model
from ggufkit.system.edit_journal import follow, real
from ggufkit.system.rename_files import rename_files

FIRST_VERSION: Final = "v1.0"  # what the convention has readers assume where none is told
_PARTS: Final = ("basename", "size_label", "finetune", "version")


def name(model: Model) -> FileName:
    """Return the parts of the conventional name of `model`.

    What the header tells in keys of its own comes first, then what `general.name` says, then the
    name that the file has; the size is counted where nothing tells it, and the version is v1.0.
    Parts that nothing tells are empty.
    """
    metadata = model.metadata
    count = sum(tensor.elements for tensor in model.tensors.values())
    said = parse_name(model.files[0].path.name, count) if model.files else FileName("")
    spoken = parse_spoken(_text(metadata, "general.name").replace(" ", "-"), count)
    told = {
        part: _text(metadata, f"general.{part}") or getattr(spoken, part) or getattr(said, part)
        for part in _PARTS
    }
    found = replace(
        said,
        basename=told["basename"],
        size_label=told["size_label"] or _counted(model, count),
        finetune=told["finetune"],
        version=told["version"] or FIRST_VERSION,
        encoding=_encoding(metadata) or plain_encoding(said.encoding),
        type=_type(model),
        sidecar=_sidecar(metadata) or said.sidecar,
        shard=(1, len(model.files)) if len(model.files) > 1 else None,
        conventional=False,
    )
    return as_written(found)


def rename(model: Model, parts: FileName) -> list[Path]:
    """Give the files of an opened model the name of `parts` in their folder; return their paths.

    A shard set is renamed as a whole. Raises OutputError for a name that is taken, and for links
    (which is what the Hugging Face cache holds); then nothing is renamed.
    """
    if not model.files:
        raise OutputError(
            "the model was not opened from a file", remedy="Write the model under that name instead"
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
    rename_files(pairs)
    for old, new in pairs:
        follow(old, new)
    return paths


def new_paths(model: Model, parts: FileName) -> list[Path]:
    """Return what the paths of the model's files would be under the name of `parts`."""
    count = len(model.files)
    shards = [(i + 1, count) if count > 1 else None for i in range(count)]
    return [
        file.path.with_name(build_name(replace(parts, shard=shard)))
        for file, shard in zip(model.files, shards, strict=True)
    ]


def _text(metadata: Metadata, key: str) -> str:
    """Return the text of a key, nothing for what cannot be part of a name."""
    value = metadata.get(key, "")
    return value.strip() if isinstance(value, str) and value.isprintable() else ""


def _encoding(metadata: Metadata) -> str:
    number = metadata.get("general.file_type")
    return FILE_TYPES.get(int(number) & ~GUESSED, "") if isinstance(number, np.integer) else ""


def _type(model: Model) -> str:
    if _text(model.metadata, "adapter.type") == "lora":
        return "LoRA"
    return "vocab" if not model.tensors and "tokenizer.ggml.model" in model.metadata else ""


def _sidecar(metadata: Metadata) -> str:
    kinds = {_text(metadata, "general.architecture"), _text(metadata, "general.type")}
    return "mmproj" if kinds & {"clip", "mmproj"} else ""


def _counted(model: Model, count: int) -> str:
    """Return the size by the number of parameters; nothing for an adapter, and for experts.

    Those of experts in use are not told by shapes alone.
    """
    is_part = any(key.endswith(".expert_count") for key in model.metadata) or not model.tensors
    return (
        "" if is_part or _text(model.metadata, "general.type") == "adapter" else size_label(count)
    )
