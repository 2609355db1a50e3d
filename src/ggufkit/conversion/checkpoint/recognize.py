"""Recognizes other files where a file of tensors should be."""

from __future__ import annotations

from typing import Final

from ggufkit.format.magic import HEAD_BYTES, identify
from ggufkit.format.types import MAGIC
from ggufkit.models.rows import AnyFile

# Files that are neither safetensors nor PyTorch, by the rule that recognizes them.
_FOREIGN: Final = ("empty", "html", "git-lfs-pointer", "text", "zeros", "compressed", "legacy-ggml")
_NOT_GGUF: Final = (", not a GGUF file", ", not GGUF")


def foreign(file: AnyFile) -> str | None:
    """Return what a file is and what to do, None if it may be a file of tensors."""
    head = file.read(0, min(file.nbytes, HEAD_BYTES)).tobytes()
    if head.startswith(MAGIC):
        return "this is a GGUF file already, which no conversion needs"
    found = identify(head, file.nbytes)
    if found.rule not in _FOREIGN:
        return None
    message = found.message
    for ending in _NOT_GGUF:
        message = message.removesuffix(ending)
    return f"{message} ({found.remedy})"
