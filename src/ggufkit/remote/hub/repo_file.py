"""What the Hugging Face Hub calls a file of a repository."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAIN: Final = "main"
MAX_PATH: Final = 1024  # characters


@dataclass(frozen=True)
class RepoFile:
    """A file of a repository: `sha256` is empty for small files, which Git holds itself."""

    path: str
    nbytes: int
    sha256: str = ""


def is_inside(path: str) -> bool:
    """Whether a path from a server stays inside a folder, and is valid on every system."""
    if not 0 < len(path) <= MAX_PATH or not path.isprintable():
        return False
    parts = path.split("/")
    return not any(part in ("", ".", "..") for part in parts) and not set("\\:") & set(path)
