"""Compare `quantize --hessian` with llama-quantize's files: divergence of whole recipes.

Model and text are those of `benchmarks/target.py`; importance data and Hessian come of the same
tokens. The change of the divergence has an interval of 95 % over the tokens, which both files
predict. What is measured is kept in `--folder`. It prints a table of docs/quality.md.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
from target import Array, Bench, divergences

import ggufkit
from ggufkit.imatrix.compute import compute_imatrix
from ggufkit.imatrix.matrix import Imatrix
from ggufkit.system.cpu import usable_cores

CALIBRATION: Final = 5  # chunks of importance data for each chunk that counts
RULE: Final = "rule"  # llama-quantize's


class Recipes:
    """Models of whole recipes, as llama-quantize makes them and with a Hessian."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        """Compute the importance data and the Hessian, of the same text, if they are not there."""
        self.options, self.folder = options, folder
        hessian, imatrix = folder / "hessian.gguf", folder / "imatrix.gguf"
        self.bench = Bench(options, folder, imatrix=lambda bench: self._compute(bench, hessian))
        self.data = {"imatrix": imatrix, "hessian": hessian}

    def _compute(self, bench: Bench, hessian: Path) -> Imatrix:
        context = self.options.context
        return compute_imatrix(
            *(bench.path, bench.first),
            chunks=CALIBRATION * self.options.chunks,
            context=context,
            batch=2 * context,
            threads=self.options.threads,
            hessian=hessian,
        )

    def divergences(self, recipe: str, kind: str, **more: Any) -> tuple[int, Array]:
        """Return the size of a file and its divergence at each token; keep what is measured."""
        kept = self.folder / f"{recipe}-{kind}.npz"
        if not kept.exists():
            out = self.folder / "quantized.gguf"
            made = ggufkit.quantize(self.bench.model, recipe, imatrix=self.data["imatrix"], **more)
            begin = time.monotonic()
            ggufkit.write(made, out, threads=self.options.threads)
            seconds = time.monotonic() - begin
            found = divergences(self.bench.base, self.bench.predictions_of(out))
            np.savez(kept, nbytes=out.stat().st_size, divergence=found, seconds=seconds)
            print(recipe, kind, found.mean(), f"{seconds:.0f} s", flush=True)
        with np.load(kept) as found:
            return int(found["nbytes"]), found["divergence"]

    def table(self) -> list[str]:
        """Return the lines of the table."""
        lines = [
            "| recipe | bytes | divergence | with `--hessian` | change |",
            "|---|---|---|---|---|",
        ]
        for recipe in self.options.recipes:
            nbytes, plain = self.divergences(recipe, RULE)
            _, found = self.divergences(recipe, "hessian", hessian=self.data["hessian"])
            errors = (found - plain) / plain.mean()
            half = 1.96 * errors.std(ddof=1) / math.sqrt(len(errors))
            lines.append(
                f"| {recipe} | {nbytes:,} | {plain.mean():.4f} | "
                f"{found.mean():.4f} | {100 * errors.mean():+.1f} ± {100 * half:.1f} % |"
            )
        return lines


def main(arguments: Iterable[str] | None = None) -> None:
    """Measure what is not known yet, and print the table."""
    parser = argparse.ArgumentParser(description="Compare recipes with and without a Hessian.")
    parser.add_argument("--model", type=Path, help="an F16 model instead of SmolLM2")
    parser.add_argument("--recipes", nargs="+", default=("Q4_K_M", "Q3_K_M", "IQ3_S", "Q2_K"))
    parser.add_argument("--chunks", type=int, default=4, help="chunks of the text that count")
    parser.add_argument("--context", type=int, default=256, help="tokens of a chunk")
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--folder", type=Path, help="where to keep what is made")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        print("\n".join(Recipes(options, options.folder or Path(temporary)).table()))


if __name__ == "__main__":
    main()
