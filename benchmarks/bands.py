"""Measure bands: what a Hessian of blocks on the diagonal gains, and what it costs.

The blocks of each width are cut from one full Hessian, so all come from the same text. For each
recipe the table has the change of divergence against importance data from the same text, the
processor time of `quantize` relative to that with importance data alone, in turns, and the bytes of
the Hessian. Texts and models are those of `domains.py`: code to calibrate with, manuals to measure.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from domains import DomainFiles
from searched_files import FED_BACK, HESSIAN, RULE, change, sources

import ggufkit
from ggufkit.format.coerce import typed
from ggufkit.imatrix.hessian import Hessian
from ggufkit.imatrix.hessian_file import BAND, blocks_of, columns_of, moments_tensors
from ggufkit.imatrix.moments import PARTS

CALIBRATION: Final = "code"
TEST: Final = "manuals"
FULL: Final = "full"


def cut(source: Path, target: Path, band: int) -> None:
    """Write the blocks on the diagonal of a full Hessian, as `imatrix compute --band` does."""
    hessian = Hessian.open(source)
    moments = {id(entry): entry for entry in hessian.entries.values()}.values()
    owned = {f"{entry.sums.name}": entry for entry in moments}
    tensors = {t.name: t for t in hessian.source.tensors.values() if t.name not in owned}
    for name, entry in owned.items():
        columns = columns_of(entry.width, band)
        sums = np.zeros((PARTS, entry.matrices, entry.width, columns), np.float32)
        for part, matrix in np.ndindex(*sums.shape[:2]):
            total, start = entry.total(matrix, part), 0
            for block in blocks_of(sums[part, matrix]):
                own = slice(start, start + len(block))
                block[:], start = total[own, own], own.stop
        tensors[name] = moments_tensors(name.removesuffix(".moments"), sums, entry.tokens())[0]
    metadata = hessian.metadata.updated({BAND: typed("uint32", band)})
    ggufkit.write(hessian.source.replace(metadata=metadata, tensors=tensors.values()), target)


class BandFiles(DomainFiles):
    """The files of one model that come from Hessians of one text."""

    domains = (TEST,)

    def hessian(self, band: str) -> Path:
        """Return the Hessian of a band; cut it from the full one where it is missing."""
        if band == FULL:
            return self.folder / HESSIAN
        path = self.folder / f"hessian-{band}.gguf"
        if not path.exists():
            cut(self.folder / HESSIAN, path, int(band))
        return path

    def _write(self, type: str, search: str) -> None:
        with ggufkit.open(self.path) as model:
            _, _, band = search.partition("-")
            hessian = self.hessian(band or FULL) if search != RULE else None
            quantized = ggufkit.quantize(model, type, imatrix=self.imatrix, hessian=hessian)
            ggufkit.write(quantized, self.quantized, threads=self.options.threads)

    def seconds(self, type: str, hessian: Path | None) -> float:
        """Return the processor time in user mode of one `quantize`."""
        extra = ["--hessian", str(hessian)] if hessian else []
        command = [sys.executable, "-m", "ggufkit", "quantize", str(self.path), os.devnull, type]
        command[5] = str(self.folder / "timed.gguf")
        begin = os.times().children_user
        options = ["--imatrix", str(self.imatrix), "--threads", str(self.options.threads)]
        subprocess.run([*command, *options, *extra], check=True, capture_output=True)
        return os.times().children_user - begin


def times(files: BandFiles, type: str, bands: list[str], repeats: int) -> Mapping[str, float]:
    """Return the median processor time of each band, and of importance data, in turns."""
    hessians = {RULE: None} | {band: files.hessian(band) for band in bands}
    taken: dict[str, list[float]] = {name: [] for name in hessians}
    for _ in range(repeats):
        for name, hessian in hessians.items():
            taken[name].append(files.seconds(type, hessian))
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def table(options: argparse.Namespace, folder: Path) -> Iterator[str]:
    """Yield the lines of the table."""
    (source,) = sources(options).items()
    files = BandFiles(source, options, folder, CALIBRATION)
    yield "| recipe | band | divergence | share of the gain | processor time | bytes |"
    yield "|---|---|---|---|---|---|"
    for recipe in options.types:
        rule = files.figures(recipe, RULE)[TEST].chunks
        changes: dict[str, Any] = {}
        for band in options.bands:
            search = FED_BACK if band == FULL else f"{FED_BACK}-{band}"
            changes[band] = change(rule, files.figures(recipe, search)[TEST].chunks)
        seconds = times(files, recipe, options.bands, options.repeats)
        for band, gain in changes.items():
            share = gain.mean / changes[FULL].mean
            ratio = seconds[band] / seconds[RULE]
            nbytes = files.hessian(band).stat().st_size
            yield f"| {recipe} | {band} | {gain} | {share:.0%} | {ratio:.1f}x | {nbytes:,} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs=1, default=["SmolLM2"], help="SmolLM2 or Gemma 3")
    parser.add_argument("--types", nargs="+", default=("Q4_K_M", "Q3_K_M"), help="which recipes")
    parser.add_argument("--bands", nargs="+", default=["256", "512", "1024", FULL])
    parser.add_argument("--chunks", type=int, default=8, help="chunks of the test")
    parser.add_argument("--calibration", type=int, default=32, help="chunks to calibrate with")
    parser.add_argument("--context", type=int, default=256, help="tokens of a chunk")
    parser.add_argument("--repeats", type=int, default=3, help="of each time; the median counts")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=Path, required=True, help="where to keep what is made")
    options = parser.parse_args()
    options.hessian, options.trained, options.experts = True, None, None
    for line in table(options, options.folder):
        print(line, flush=True)


if __name__ == "__main__":
    main()
