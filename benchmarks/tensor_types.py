"""Measure the error and the speed of each tensor type on real weights, for docs/types.md.

    python benchmarks/tensor_types.py [--types Q4_K NVFP4 ...]

The weights are those of MiniLM's matrices whose rows divide into blocks of 256: in float32, never
quantized before. The error is the root mean square of the differences, relative to that of the
weights. All columns count alike; types that require importance data get equal weights. Rates are in
millions of elements per second of one core: the median of processor times, which other work on the
machine disturbs little.

It writes `results/tensor-types.json`; with --types it changes only these rows. Then `make format`
writes the page and its chart.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import real
from ggufkit import quants, safetensors
from ggufkit.errors import TensorTypeError
from ggufkit.format.types import TensorType
from ggufkit.quants.kernels import requiring_weights
from ggufkit.quants.search import EFFORTS, is_searched

RESULTS: Final = Path(__file__).parent / "results" / "tensor-types.json"
BLOCK: Final = 256
REPEATS: Final = 3
Numbers = Any


def weights() -> Numbers:
    """Return the rows of all matrices that divide into the largest blocks, as float32."""
    with safetensors.load(real.minilm() / "model.safetensors") as model:
        matrices = [
            tensor.numpy()
            for name, tensor in model.tensors.items()
            if name.startswith("encoder.") and len(tensor.shape) == 2
            if tensor.shape[-1] % BLOCK == 0
        ]
    return np.ascontiguousarray(np.concatenate(matrices), np.float32)


def timed(work: Callable[[], Numbers], elements: int) -> tuple[Numbers, float]:
    """Return what a work returns, and its rate in millions of elements per second."""
    seconds = []
    for _ in range(REPEATS):
        begin = time.thread_time()
        result = work()
        seconds.append(time.thread_time() - begin)
    return result, round(elements / statistics.median(seconds) / 1e6, 1)


def figures(kind: TensorType, rows: Numbers) -> dict[str, float]:
    """Return the errors and rates of a type: without a search, and with each that it has."""
    equal = np.ones(rows.shape[-1], np.float32) if kind.id in requiring_weights() else None
    result = {}
    for search in (None, *(EFFORTS if is_searched(kind) else ())):

        def encode(search: str | None = search) -> Numbers:
            return quants.quantize(rows, kind, imatrix=equal, threads=1, search=search)

        packed, rate = timed(encode, rows.size)
        elements, decoding = timed(lambda: quants.dequantize(packed, kind, threads=1), rows.size)  # noqa: B023 (called at once)
        lost = np.sqrt(np.mean((elements - rows) ** 2, dtype=np.float64))
        name = search or "plain"
        result[name] = round(float(lost / np.sqrt(np.mean(rows**2, dtype=np.float64))), 6)
        result[f"{name}_rate"] = rate
    return result | {"decoding_rate": decoding}


def encodable(kind: TensorType) -> bool:
    """Whether ggufkit encodes a type, and files have it."""
    if kind.name in {"Q8_1", "Q8_K"}:  # of activations
        return False
    try:
        return quants.encodable(kind).is_quantized or kind.name in {"F16", "BF16"}
    except TensorTypeError:
        return False


def main(arguments: Iterable[str] | None = None) -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--types", nargs="+", help="only these, by name")
    options = parser.parse_args(arguments)
    rows = weights()
    known = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    for kind in filter(encodable, TensorType):
        if not options.types or kind.name in options.types:
            known[kind.name] = figures(kind, rows)
            print(kind, known[kind.name], flush=True)
    lines = (f"  {json.dumps(name)}: {json.dumps(known[name])}" for name in sorted(known))
    RESULTS.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


if __name__ == "__main__":
    main()
