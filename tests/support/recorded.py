"""The SHA-256 of what llama.cpp makes of whole real models in every recipe.

llama.cpp needs minutes for some, so that tests compare with what it once made, in recorded.json.
Run as a program, this makes those of the table that are missing; `--again` makes all.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

import ggufkit
import llama_quantize
import real
from ggufkit.imatrix.matrix import Entry, Imatrix
from ggufkit.quantization.recipes import RECIPES

TABLE: Final = Path(__file__).with_name("recorded.json")
DATASET: Final = "made up"
CHUNKS: Final = 3
IMATRIX: Final = "importance.gguf"  # the output holds the name as given
SOURCES: Final[dict[str, Callable[[], Path]]] = {"smollm2": real.smollm2, "gemma3": real.gemma3}


class RecordedModel(NamedTuple):
    """A whole model in a recipe, with or without importance data."""

    source: str
    recipe: str
    with_imatrix: bool

    @property
    def name(self) -> str:
        """As the table has it."""
        return " ".join((self.source, self.recipe, "imatrix" if self.with_imatrix else "plain"))


def cases() -> Iterator[RecordedModel]:
    """Yield all cases, the ones that llama.cpp does fast first."""
    # llama-quantize knows no recipe NVFP4, and has no fallback where rows do not fit Q1_0.
    names = [name for name in RECIPES if name not in {"NVFP4", "Q1_0"}]
    for recipe in sorted(names, key=lambda name: (name.startswith("IQ"), names.index(name))):
        for source in SOURCES:
            yield RecordedModel(source, recipe, with_imatrix=False)
            yield RecordedModel(source, recipe, with_imatrix=True)


def importance(path: Path) -> Imatrix:
    """Return importance data of every matrix, the same on every machine."""
    with ggufkit.open(path) as model:
        widths = {t.name: t.shape[-1] for t in model.tensors.values() if len(t.shape) > 1}
    entries = {}
    for name, width in widths.items():
        steps = (np.arange(1, width + 1, dtype=np.uint64) * 2654435761) % 2**32
        sums = (steps / 2**32 * 30).astype(np.float32).reshape(1, width)
        entries[name] = Entry(sums, np.full(1, 10, np.int64))
    return Imatrix(entries, (DATASET,), CHUNKS)


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def made_by_llama_cpp(case: RecordedModel, folder: Path) -> str | None:
    """Return the digest of llama.cpp's output, or None if it fails."""
    source, target = SOURCES[case.source](), folder / "theirs.gguf"
    options = {}
    if case.with_imatrix:
        imatrix = importance(source)
        keys = {"file": IMATRIX, "dataset": DATASET, "chunks": CHUNKS}
        weights = {name: imatrix.weights(name) for name in imatrix.entries}
        options = {"weights": weights, "imatrix_keys": keys}
    done = llama_quantize.quantize(source, target, case.recipe, **options)
    return digest(target) if done else None


def table() -> dict[str, str | None]:
    """Return what is recorded."""
    results: dict[str, str | None] = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    return results


def main(*, again: bool) -> None:
    """Record what is missing, or all."""
    recorded = {} if again else table()
    for case in cases():
        if case.name in recorded:
            continue
        with tempfile.TemporaryDirectory() as folder:
            recorded[case.name] = made_by_llama_cpp(case, Path(folder))
        TABLE.write_text(json.dumps(recorded, indent=1) + "\n")
        print(case.name, recorded[case.name])  # noqa: T201 (it takes a while)


if __name__ == "__main__":
    main(again="--again" in sys.argv)
