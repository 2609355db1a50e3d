"""Importance data of a release: computed in parts, so that a stopped run continues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from ggufkit.imatrix import compute
from ggufkit.imatrix.matrix import Imatrix, merge
from ggufkit.llama_cpp.session import Session
from ggufkit.release.settings import Settings
from ggufkit.system.cpu import worker_count
from ggufkit.system.text_file import Most, read_small
from ggufkit.system.threads import Progress

PART: Final = 16  # chunks: what a stopped run computes again at most


@dataclass(frozen=True)
class Calibration:
    """A model, the text that it reads, and the folder for parts, whose names begin with `key`."""

    model: Path
    settings: Settings
    folder: Path
    key: str
    threads: int | None = None

    def compute(self, progress: Progress | None, hessian: Path | None) -> list[Imatrix]:
        """Return the importance data of each part of the text; parts that are there are kept.

        With `hessian`, that file is written too, and the text is one part.
        """
        options: dict[str, Any] = {"context": self.settings.context, "threads": self.threads}
        text = self.settings.calibration
        if hessian:
            chunks = self.settings.calibration_chunks or None
            return [
                compute.compute_imatrix(
                    self.model, text, chunks=chunks, hessian=hessian, progress=progress, **options
                )
            ]
        total = self._chunks()
        parts = []
        for first in range(0, max(total, 1), PART):
            path = self.folder / f"{self.key[:16]}-{first:07}.gguf"
            if not path.exists():
                count = max(min(PART, total - first), 1)
                part = compute.compute_imatrix(
                    self.model, text, from_chunk=first, chunks=count, **options
                )
                part.save(path)
            parts.append(Imatrix.open(path))
            if progress:
                progress(min(first + PART, total), total)
        return parts

    def _chunks(self) -> int:
        """Return how many chunks of the text to read."""
        settings = self.settings
        text = read_small(Path(settings.calibration), Most.CALIBRATION).removesuffix(b"\n")
        count = worker_count(self.threads)
        with Session(self.model, length=16, batch=16, threads=count) as session:
            chunks = len(session.tokenize(text)) // settings.context
        return min(chunks, settings.calibration_chunks or chunks)


def merged(parts: Sequence[Imatrix], names: Sequence[str]) -> Imatrix:
    """Return the sum of importance data, with `names` for the texts: no path of this machine."""
    whole = merge(parts) if len(parts) > 1 else parts[0]
    return replace(whole, datasets=tuple(names), path=None)


def coverage(parts: Sequence[Imatrix], whole: Imatrix) -> dict[str, Any]:
    """Return how well the text covers the model.

    `unseen` of `matrices` (experts count each) had no token. `cosine` is the least cosine between
    the first half of the parts and all of them, and `weakest` its tensor; None for a single part.
    """
    counts = [entry.counts for entry in whole.entries.values()]
    facts = {
        "chunks": whole.chunk_count,
        "tokens": whole.chunk_count * whole.chunk_size,
        "texts": list(whole.datasets),
        "matrices": sum(map(len, counts)),
        "unseen": sum(int((count == 0).sum()) for count in counts),
        "cosine": None,
        "weakest": None,
    }
    if len(parts) > 1:
        cosine, name = min(_cosines(merge(parts[: (len(parts) + 1) // 2]), whole))
        facts |= {"cosine": round(cosine, 6), "weakest": name}
    return facts


def _cosines(half: Imatrix, whole: Imatrix) -> Iterator[tuple[float, str]]:
    for name, entry in whole.entries.items():
        first = half.entries[name].sums.ravel().astype(np.float64)
        second = entry.sums.ravel().astype(np.float64)
        lengths = float(np.linalg.norm(first) * np.linalg.norm(second))
        yield (float(first @ second) / lengths if lengths else 0.0), name
