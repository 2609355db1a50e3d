"""Names the files that `ggufkit convert` writes: the model, and adapters that come with it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import ggufkit
from ggufkit.cli.output import note
from ggufkit.cli.write_model import PIPE
from ggufkit.format.file_name import NO_BASENAME, build_name
from ggufkit.lora.task_adapters import ARCHITECTURE
from ggufkit.models.model import Model

# What stands for the type in the name of an output, as in the converter's templates.
TYPE_WORDS: Final[dict[str, Callable[[str], str]]] = {
    "{ftype}": str.lower, "{outtype}": str.lower, "{FTYPE}": str.upper, "{OUTTYPE}": str.upper,
    "{}": str.lower,
}  # fmt: skip


def is_folder(out: str) -> bool:
    """Whether OUT is a folder, there already or to be made."""
    return out.endswith(("/", os.sep)) or Path(out).is_dir()


def has_type(out: str) -> bool:
    """Whether the name of OUT contains a word for the type."""
    return any(word in Path(out).name for word in TYPE_WORDS)


def output_path(model: Model, out: str, kind: str = "") -> str:
    """Return the file to write: OUT, or a file in the folder OUT named by the convention.

    `kind` is "vocab" or "mtp" for a file that holds only this part of a model, else empty.
    """
    if out == PIPE:
        return out
    parts = ggufkit.conventional_name(model)
    kinds = [tensor.type.name for tensor in model.tensors.values() if len(tensor.shape) > 1]
    # Some architectures do not write general.file_type.
    encoding = parts.encoding or next(iter(kinds), "F32")
    if not is_folder(out):
        name = Path(out).name
        for word, letters in TYPE_WORDS.items():
            name = name.replace(word, letters(encoding))
        return str(Path(out).with_name(name)) if name != Path(out).name else out
    title = model.metadata.get("general.name", "")
    basename = str(title) if title and parts.basename == NO_BASENAME else parts.basename
    # The size of a projector tells nothing of the model that it belongs to.
    label = "" if parts.sidecar else parts.size_label
    parts = replace(parts, basename=basename, encoding=encoding, size_label=label)
    if kind == "vocab":
        parts = replace(parts, size_label="", encoding="", type=kind)
    elif kind == "mtp":
        parts = replace(parts, size_label="", sidecar=kind)
    return str(Path(out) / build_name(parts))


def adapter_outputs(
    model: Model, source: str, target: str, **options: Any
) -> list[tuple[Model, str]]:
    """Return the adapters for tasks in the checkpoint of `model`, and a file next to `target` each.

    `options` are those of `ggufkit.task_adapters`.
    """
    if model.metadata["general.architecture"] != ARCHITECTURE:
        return []
    adapters = ggufkit.task_adapters(source, **options)
    if adapters and target == PIPE:
        note(f"stdout gets the model without its adapters for {', '.join(adapters)}")
        return []
    place = Path(target)
    return [
        (adapter, str(place.with_name(f"lora-{task}-{place.name}")))
        for task, adapter in adapters.items()
    ]
