"""Compare `quantize --search` with llama-quantize's blocks: divergence, weighted error and time.

The model, the text and the importance data are those of `benchmarks/target.py`. For each type, the
layers of a sample are quantized, once as llama-quantize does and once with each search; all other
tensors stay F16. llama.cpp reads the written file, and its predictions are compared with those of
the unquantized model. A sample is every n-th layer. The divergence of one file is a matter of luck:
two files of equal error differ by several percent. So the table shows the mean ratio over all
samples, with an interval of 95 % of it.

Every result is kept in `--folder`, and a later run goes on from there. The last lines printed are
the table of docs/quality.md.

`--blocks` prints the other table of that page instead: errors and times of blocks of a real matrix,
with and without importance data, and the time that ggml takes, all of one core and in one run.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
from target import Bench, Logits, compared

import ggufkit
from ggufkit import quants
from ggufkit.format.types import tensor_type
from ggufkit.models.layers import layer_of
from ggufkit.models.model import Tensor
from ggufkit.quants.packing import requiring_weights
from ggufkit.quants.search import EFFORTS, SEARCHED
from ggufkit.system.cpu import usable_cores

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import oracle
from rule_errors import AnyFloats, block_errors

MATRIX: Final = "blk.17.ffn_down.weight"  # whose blocks are compared
ROWS: Final = 128
REPEATS: Final = 5  # the median counts
RULE: Final = "rule"  # llama-quantize's
STUDENT: Final = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365}  # 95 %


class Samples:
    """The samples of one model, and what is known of them."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        """Prepare the model and its predictions."""
        self.options, self.folder = options, folder
        self.bench = Bench(options, folder)
        self.imatrix = None if options.plain else self.bench.imatrix
        self.path = folder / ("plain.json" if options.plain else "weighted.json")
        self.known: dict[str, dict[str, float]] = {}
        if self.path.exists():
            self.known = json.loads(self.path.read_text())

    def measured(self, type: str, search: str, sample: int) -> dict[str, float]:
        """Return the figures of one file; make and keep them if they are not known."""
        key = f"{type} {search} {sample}"
        if key not in self.known:
            self.known[key] = self._measure(type, search, sample)
            self.path.write_text(json.dumps(self.known, indent=1))
            print(key, self.known[key], flush=True)
        return self.known[key]

    def _measure(self, type: str, search: str, sample: int) -> dict[str, float]:
        names = [t.name for t in self.bench.model.tensors.values() if self._is_in(t, sample)]
        made = ggufkit.quantize(
            self.bench.model,
            types=dict.fromkeys(names, type),
            imatrix=self.imatrix,
            search=None if search == RULE else search,
        )
        out = self.folder / "quantized.gguf"
        ggufkit.write(made, out, threads=self.options.threads)
        found: Logits = self.bench.predictions_of(out)
        errors, seconds = zip(*(self._error(made.tensors[name]) for name in names), strict=True)
        more = {"error": statistics.fmean(errors), "seconds": sum(seconds)}
        return compared(self.bench.base, found) | more

    def _is_in(self, tensor: Tensor, sample: int) -> bool:
        layer = layer_of(tensor.name)
        return (
            layer is not None and layer % self.options.samples == sample and len(tensor.shape) > 1
        )

    def _error(self, made: Tensor) -> tuple[float, float]:
        """Return the squared error relative to the squares, and the processor time it took.

        Both are weighted by importance. Reading a quantized tensor quantizes it.
        """
        begin = time.process_time()
        packed = made.raw()
        seconds = time.process_time() - begin
        before = self.bench.model.tensors[made.name].numpy().astype(np.float64)
        lost = quants.dequantize(packed, made.type).reshape(before.shape) - before
        weights = np.ones(before.shape[-1])
        if self.imatrix:
            weights = self.imatrix.weights(made.name, made.shape).astype(np.float64)
        share = (np.square(lost) @ weights).sum() / (np.square(before) @ weights).sum()
        return float(share), seconds


def ratios(samples: Samples, type: str, search: str, figure: str) -> list[float]:
    """Return a figure of each sample as a share of llama-quantize's."""
    return [
        samples.measured(type, search, i)[figure] / samples.measured(type, RULE, i)[figure]
        for i in range(samples.options.samples)
    ]


def change(shares: list[float]) -> str:
    """Return a mean change in percent, with the half-width of its interval."""
    mean = statistics.fmean(shares) - 1
    if len(shares) == 1:
        return f"{100 * mean:+.1f} %"
    error = statistics.stdev(shares) / math.sqrt(len(shares))
    return f"{100 * mean:+.1f} ± {100 * error * STUDENT.get(len(shares) - 1, 2.3):.1f} %"


def table(samples: Samples) -> list[str]:
    """Return the lines of the table."""
    lines = ["| type | divergence |", "|---|---|"]
    for search in samples.options.searches:
        lines[0] += f" {search}: error | divergence | time |"
        lines[1] += "---|---|---|"
    for kind in samples.options.types:
        count = samples.options.samples
        whole = sum(samples.measured(kind, RULE, i)["divergence"] for i in range(count))
        line = f"| {kind} | {whole / count:.5f} |"
        for search in samples.options.searches:
            error, divergence, seconds = (
                ratios(samples, kind, search, figure)
                for figure in ("error", "divergence", "seconds")
            )
            line += f" {100 * (statistics.fmean(error) - 1):+.1f} % | {change(divergence)} |"
            line += f" {statistics.median(seconds):.1f}x |"
        lines.append(line)
    return lines


def of_blocks(options: argparse.Namespace, folder: Path) -> list[str]:
    """Return the table of errors and times, with importance data and without."""
    bench = Bench(options, folder)
    tensor = bench.model.tensors[MATRIX]
    rows = np.ascontiguousarray(tensor.numpy()[:ROWS], np.float32)
    columns = np.ascontiguousarray(bench.imatrix.weights(MATRIX, tensor.shape), np.float32)
    heads = [f"{search}: error | time" for search in options.searches]
    lines = [f"| type | importance data | {' | '.join(heads)} | ggml's time |"]
    lines.append("|---" * (3 + 2 * len(heads)) + "|")
    for kind in options.types:
        lines += (
            _line(kind, rows, weights, options.searches)
            for weights in (columns, None)
            if weights is not None or tensor_type(kind).id not in requiring_weights()
        )
    return lines


def _line(kind: str, rows: AnyFloats, weights: AnyFloats | None, searches: Iterable[str]) -> str:
    """Return the line of one type: each search, and ggml's time."""

    def encoded(search: str | None) -> Callable[[], Any]:
        return lambda: quants.encode_rows(rows, kind, imatrix=weights, search=search)

    def lost(search: str | None) -> float:
        return float(block_errors(kind, rows, weights, encoded(search)()).sum())

    usual, plain = _seconds(encoded(None)), lost(None)
    line = f"| {kind} | {'yes' if weights is not None else 'no'} |"
    for search in searches:
        times = _seconds(encoded(search)) / usual
        line += f" {100 * (lost(search) / plain - 1):+.1f} % | {times:.1f}x |"
    theirs = _seconds(lambda: oracle.encode("llama.cpp", rows, tensor_type(kind), weights))
    return f"{line} {theirs / usual:.1f}x |"


def _seconds(work: Callable[[], object]) -> float:
    """Return the median of the processor time of this thread."""
    taken = []
    for _ in range(REPEATS):
        begin = time.thread_time()
        work()
        taken.append(time.thread_time() - begin)
    return statistics.median(taken)


def main(arguments: Iterable[str] | None = None) -> None:
    """Measure what is not known yet, and print the table."""
    parser = argparse.ArgumentParser(description="Compare searches with llama-quantize's rule.")
    parser.add_argument("--model", type=Path, help="an F16 model instead of SmolLM2")
    parser.add_argument("--types", nargs="+", default=SEARCHED)
    parser.add_argument("--searches", nargs="+", default=tuple(EFFORTS))
    parser.add_argument("--samples", type=int, default=5, help="files of each type and search")
    parser.add_argument("--blocks", action="store_true", help="print the table of blocks instead")
    parser.add_argument("--plain", action="store_true", help="use no importance data")
    parser.add_argument("--chunks", type=int, default=8, help="chunks of the text that count")
    parser.add_argument("--context", type=int, default=256, help="tokens of a chunk")
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--folder", type=Path, help="where to keep what is made")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        made = of_blocks(options, folder) if options.blocks else table(Samples(options, folder))
        print("\n".join(made))


if __name__ == "__main__":
    main()
