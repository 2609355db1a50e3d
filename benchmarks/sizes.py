"""Compare models of equal size: recipes, and the ways of `--target-size` to choose types.

For each recipe the model is quantized by it, and to the size of its file: with sensitivities by
kind of tensor, with measured ones, and with a repair. llama.cpp reads a text with each written file
that no choice has seen, and `ggufkit.evaluate` compares the predictions with those of the
unquantized model. The text is Python's own reference (`pydoc`) in four parts: for the importance
matrix, the sensitivities, the repair, and the comparison.

Without --model it is the SmolLM2 of `benchmarks/target.py`. What was measured is kept in --folder,
and a later run goes on from there. The last lines are the table of results/target-sizes.md.
"""

from __future__ import annotations

import argparse
import json
import pydoc_data.topics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from target import real, widened

import ggufkit
from ggufkit.models.model import bits_per_weight
from ggufkit.system.cpu import usable_cores

RECIPES = ("Q4_K_M", "IQ4_XS", "Q3_K_M", "IQ3_XXS", "Q2_K", "IQ2_XS")
PARTS = ("calibration", "sensitivity", "repair", "held-out")


class Bench:
    """The model, the parts of the text, and what was measured once for all sizes."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        """Prepare the files."""
        self.options, self.folder = options, folder
        self.path = options.model or folder / "smollm2-wide-f16.gguf"
        if not self.path.exists():
            ggufkit.write(widened(ggufkit.open(real.smollm2())), self.path)
        topics = pydoc_data.topics.topics
        text = "\n".join(topics[name] for name in sorted(topics))
        for number, part in enumerate(PARTS):
            bounds = (len(text) * part // len(PARTS) for part in (number, number + 1))
            self.text(part).write_text(text[slice(*bounds)])
        self.imatrix = folder / "imatrix.gguf"
        reading = {"chunks": options.chunks, "threads": options.threads}
        if not self.imatrix.exists():
            imatrix = ggufkit.compute_imatrix(self.path, self.text("calibration"), **reading)
            imatrix.save(self.imatrix)
        self.sensitivity = folder / "sensitivity.json"
        if not self.sensitivity.exists():
            ggufkit.measure_sensitivity(
                *(self.path, self.text("sensitivity")), imatrix=self.imatrix, **reading
            ).save(self.sensitivity)
        self.results_path = folder / "sizes.json"
        self.known = json.loads(self.results_path.read_text()) if self.results_path.exists() else {}

    def text(self, part: str) -> Path:
        """Return the file of a part of the text."""
        return self.folder / f"{part}.txt"

    def files(self, recipe: str) -> Iterator[tuple[str, Path]]:
        """Write and yield the files of one size."""
        with ggufkit.open(self.path) as model:
            plain = ggufkit.quantize(model, recipe, imatrix=self.imatrix)
            yield recipe, self._written(plain, "recipe")
            nbytes = (self.folder / "recipe.gguf").stat().st_size
            aim = {"nbytes": nbytes, "imatrix": self.imatrix}
            by_kind = ggufkit.target(model, **aim)
            yield "by kind", self._quantized(model, by_kind, "kind")
            measured = ggufkit.target(model, **aim, sensitivity=self.sensitivity)
            yield "measured", self._quantized(model, measured, "measured")
            repaired = ggufkit.repair(
                *(self.path, self.text("repair")),
                **aim,
                sensitivity=self.sensitivity,
                steps=self.options.steps,
                chunks=self.options.chunks,
                threads=self.options.threads,
            )
            yield "repaired", self._quantized(model, repaired.types, "repaired")

    def _quantized(
        self, model: ggufkit.Model, types: dict[str, ggufkit.TensorType], name: str
    ) -> Path:
        return self._written(ggufkit.quantize(model, types=types, imatrix=self.imatrix), name)

    def _written(self, model: ggufkit.Model, name: str) -> Path:
        out = self.folder / f"{name}.gguf"
        ggufkit.write(model, out, threads=self.options.threads)
        return out

    def compare(self, recipe: str) -> dict[str, dict[str, float]]:
        """Return the figures of the files of one size; measure them if they are not known."""
        if recipe not in self.known:
            files = dict(self.files(recipe))
            evaluation = ggufkit.evaluate(
                list(files.values()),
                self.text("held-out"),
                base=self.path,
                chunks=self.options.held_out,
                threads=self.options.threads,
            )
            rows = {}
            for (name, path), quality in zip(files.items(), evaluation.models, strict=True):
                versus = next((c for c in evaluation.comparisons if c.second == str(path)), None)
                with ggufkit.open(path) as written:
                    bits = bits_per_weight(written.tensors.values())
                rows[name] = {
                    "nbytes": path.stat().st_size,
                    "bits": bits or 0.0,
                    "perplexity": quality.perplexity.value,
                    "kld": quality.divergence.kld.mean.value,
                    "kld99.9": quality.divergence.kld.percentiles[99.9],
                    "less": versus.difference if versus else 0.0,
                    "reach": (versus.high - versus.low) / 2 if versus else 0.0,
                }
            self.known[recipe] = rows
            self.results_path.write_text(json.dumps(self.known, indent=1))
        return self.known[recipe]


def table(bench: Bench, recipes: list[str]) -> Iterator[str]:
    """Yield the lines of the table."""
    ways = ("by kind", "measured", "repaired")
    yield f"| size of | bits per weight | mean KLD | {' | '.join(ways)} | 99.9 % KLD | perplexity |"
    yield "|---" * (5 + len(ways)) + "|"
    for recipe in recipes:
        rows = bench.compare(recipe)
        plain, last = rows[recipe], rows[ways[-1]]
        changes = [_change(rows[way], plain["kld"]) for way in ways]
        ends = [f"{last[key] / plain[key] - 1:+.0%}" for key in ("kld99.9", "perplexity")]
        cells = [recipe, f"{plain['bits']:.2f}", f"{plain['kld']:.4f}", *changes, *ends]
        yield f"| {' | '.join(cells)} |"


def _change(row: dict[str, float], plain: float) -> str:
    """Return the change of the mean divergence from the recipe's, and its interval."""
    return f"{-row['less'] / plain:+.0%} ± {row['reach'] / plain:.0%}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Compare models of equal size.")
    parser.add_argument("--model", type=Path, help="an F16 model instead of SmolLM2")
    parser.add_argument("--recipes", nargs="+", default=RECIPES)
    parser.add_argument("--chunks", type=int, default=6, help="chunks of 512 tokens to measure on")
    parser.add_argument("--held-out", type=int, default=12, help="chunks to compare on")
    parser.add_argument("--steps", type=int, default=24, help="of a repair")
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--folder", type=Path, help="where to keep what is made")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        bench = Bench(options, options.folder or Path(temporary))
        for line in table(bench, options.recipes):
            print(line, flush=True)


if __name__ == "__main__":
    main()
