"""Joins models from before GGUF that are in parts: `ggml-model-f16.bin`, `ggml-model-f16.bin.1`.

Each part holds the same header and vocabulary, and some rows or columns of each matrix, as in
LLaMA's original checkpoints. Source: llama.cpp's loader of March 2023.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from ggufkit.errors import FormatError
from ggufkit.models.model import Tensor, Tensors
from ggufkit.models.rows import ComputedRows, Joined, Source
from ggufkit.system.mapped_file import Bytes

_NUMBERED: Final = re.compile(r"(?P<first>.+)\.\d{1,2}")
# Matrices that are split by columns: each part multiplies a part of the input.
_BY_COLUMNS: Final = re.compile(r"token_embd\.weight|blk\.\d+\.(attn_output|ffn_down)\.weight")


def first_part(path: Path) -> Path:
    """Return the part without a number if `path` is a part with a number, else `path`."""
    match = _NUMBERED.fullmatch(path.name)
    first = path.with_name(match["first"]) if match else path
    return first if first.is_file() else path


def other_parts(first: Path, count: int) -> list[Path]:
    """Return the parts after the first; FormatError if one is missing."""
    others = [first.with_name(f"{first.name}.{number}") for number in range(1, count)]
    missing = [path.name for path in others if not path.exists()]
    if missing:
        raise FormatError(
            f"the model came in {count} parts, and these are missing: {', '.join(missing)}",
            remedy="Put all parts into one folder, under their own names",
            path=str(first),
        )
    return others


@dataclass(frozen=True)
class _SideBySide(ComputedRows):
    """Each row consists of the rows of all sources, side by side."""

    sources: tuple[Source, ...]

    def read(self, start: int, stop: int) -> Bytes:
        """Read rows `start` to `stop`."""
        return np.concatenate([source.read(start, stop) for source in self.sources], axis=1)


def joined(parts: Sequence[Tensors], paths: Sequence[Path]) -> Tensors:
    """Return the tensors of a model whose rows and columns are in `parts`, by GGUF name."""
    if len(parts) == 1:
        return parts[0]
    for part, path in zip(parts, paths, strict=True):
        ours, theirs = ({t.name: (t.type, t.shape) for t in p.values()} for p in (part, parts[0]))
        differing = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
        if differing:
            raise FormatError(
                f"the tensor {differing[0]!r} differs from that in the first part",
                remedy="Join only parts of the same conversion",
                path=str(path),
            )
    return Tensors(_whole([part[name] for part in parts]) for name in parts[0])


def _whole(parts: list[Tensor]) -> Tensor:
    first, sources = parts[0], tuple(part.source for part in parts)
    if len(first.shape) == 1:  # every part has vectors whole
        return first
    rows, width = first.shape
    if _BY_COLUMNS.fullmatch(first.name):
        shape = (rows, width * len(parts))
        return Tensor.over(first.name, first.type, shape, _SideBySide(sources))
    ends = rows * np.arange(1, len(parts) + 1)
    return Tensor.over(first.name, first.type, (int(ends[-1]), width), Joined(sources, ends))
