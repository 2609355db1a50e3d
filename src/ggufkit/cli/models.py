"""What commands open that read any model: GGUF, or a checkpoint that is converted as it is read."""

from __future__ import annotations

from pathlib import Path

import ggufkit
from ggufkit.cli.output import note
from ggufkit.model import Model


def is_checkpoint(path: str) -> bool:
    """Whether `path` is a folder of Hugging Face's and holds no GGUF file."""
    folder = Path(path)
    return (folder / "config.json").is_file() and not any(folder.glob("*.gguf"))


def open_any(path: str) -> Model:
    """Open a GGUF model, or convert a checkpoint lazily, telling what its conversion has to say."""
    return ggufkit.convert(path, say=note) if is_checkpoint(path) else ggufkit.open(path)
