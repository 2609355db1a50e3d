"""Compare `quantize --search` and `--hessian` with llama-quantize: divergence, error and time.

It prints the tables of results/quality.md: without an option, what llama.cpp predicts with written
files (`searched_files.py` says how they are made); with `--hessian`, the same of recipes whose
errors are fed back; with `--blocks`, errors and times of blocks of a
real matrix, with and without importance data, and the time that ggml takes, all of one core and in
one run; with `--embeddings`, what embeddings of sentences lose. What takes long is kept in
`--folder`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import searched_embeddings
from searched_files import FED_BACK, RECIPES, TYPES, SearchedFiles, sources, table

import ggufkit
from ggufkit import quants
from ggufkit.format.types import tensor_type
from ggufkit.imatrix.matrix import Imatrix
from ggufkit.quants import kernels
from ggufkit.quants.search import EFFORTS, SEARCHED
from ggufkit.system.cpu import usable_cores

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import oracle
from rule_errors import AnyFloats, block_errors

MODEL: Final = "SmolLM2"
MATRIX: Final = "blk.17.ffn_down.weight"  # whose blocks are compared
ROWS: Final = 128
REPEATS: Final = 5  # the median counts


def matrix(options: argparse.Namespace, folder: Path) -> tuple[AnyFloats, AnyFloats]:
    """Return rows of a real matrix, and the importance of their columns."""
    options.models = [MODEL]
    ((name, make),) = sources(options).items()
    files = SearchedFiles(name, make, options, folder)
    with ggufkit.open(files.path) as model:
        tensor = model.tensors[MATRIX]
        rows = np.ascontiguousarray(tensor.numpy()[:ROWS], np.float32)
    weights = Imatrix.open(files.imatrix).weights(MATRIX, tensor.shape)
    return rows, np.ascontiguousarray(weights, np.float32)


def of_blocks(options: argparse.Namespace, folder: Path) -> Iterator[str]:
    """Yield the table of errors and times, with importance data and without."""
    rows, columns = matrix(options, folder)
    heads = [f"{search}: error | time" for search in options.searches]
    yield f"| type | importance data | {' | '.join(heads)} | ggml's time |"
    yield "|---" * (3 + 2 * len(heads)) + "|"
    for kind in options.types or SEARCHED:
        for weights in (columns, None):
            if weights is not None or tensor_type(kind).id not in kernels.requiring_weights():
                yield _line(kind, rows, weights, options.searches)


def _line(kind: str, rows: AnyFloats, weights: AnyFloats | None, searches: Iterable[str]) -> str:
    """Return the line of one type: each search, and ggml's time."""

    def encoded(search: str | None) -> Callable[[], Any]:
        return lambda: quants.encode_rows(rows, kind, imatrix=weights, search=search)

    def lost(search: str | None) -> float:
        return float(block_errors(kind, rows, weights, encoded(search)()).sum())

    def theirs() -> object:
        return oracle.encode("llama.cpp", rows, tensor_type(kind), weights)

    times = _seconds(encoded(None), theirs, *(encoded(search) for search in searches))
    usual, plain = times[0], lost(None)
    line = f"| {kind} | {'yes' if weights is not None else 'no'} |"
    for search, seconds in zip(searches, times[2:], strict=True):
        line += f" {100 * (lost(search) / plain - 1):+.1f} % | {seconds / usual:.1f}x |"
    return f"{line} {times[1] / usual:.1f}x |"


def _seconds(*works: Callable[[], object]) -> list[float]:
    """Return the median of the processor time of this thread, for works done in turns."""
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(REPEATS):
        for work, times in zip(works, taken, strict=True):
            begin = time.thread_time()
            work()
            times.append(time.thread_time() - begin)
    return [statistics.median(times) for times in taken]


def main(arguments: Iterable[str] | None = None) -> None:
    """Measure what is not known yet, and print a table."""
    parser = argparse.ArgumentParser(description="Compare searches with llama-quantize's rule.")
    parser.add_argument("--blocks", action="store_true", help="print the table of blocks instead")
    parser.add_argument("--embeddings", action="store_true", help="print that of MiniLM instead")
    parser.add_argument("--hessian", action="store_true", help="compare errors fed back instead")
    parser.add_argument("--trained", type=Path, help="the F32 file of `train_model.py`")
    parser.add_argument("--experts", type=Path, help="the same with experts")
    parser.add_argument(
        "--models", nargs="+", default=("trained", "experts", MODEL, "Gemma 3"), help="which models"
    )
    parser.add_argument("--types", nargs="+", help="which types; the default is that of the page")
    parser.add_argument("--searches", nargs="+", help="which; the default is all that apply")
    parser.add_argument("--chunks", type=int, default=12, help="chunks of each domain")
    parser.add_argument("--calibration", type=int, help="chunks of all domains to calibrate with")
    parser.add_argument("--context", type=int, default=256, help="tokens of a chunk")
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--folder", type=Path, help="where to keep what is made")
    options = parser.parse_args(arguments)
    options.searches = options.searches or ((FED_BACK,) if options.hessian else tuple(EFFORTS))
    options.calibration = options.calibration or (60 if options.hessian else 12)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        if options.blocks:
            lines = of_blocks(options, folder)
        elif options.embeddings:
            lines = searched_embeddings.table(options, folder)
        else:
            options.types = options.types or (RECIPES if options.hessian else TYPES)
            lines = table(options, folder)
        for line in lines:
            print(line, flush=True)


if __name__ == "__main__":
    main()
