"""Codec throughput beside ggml and gguf-py, in one run: medians, one core, then two.

    python benchmarks/codec.py [--types Q8_0 Q4_K ...] [--isa v3 v2 ...] [--weighted]
                               [--elements N] [--repeats N]

Figures are millions of elements per second, and how many times ggml's rate on one core that is.
`memory` works on buffers larger than the last-level cache, `cache` on small ones; outputs are
allocated and touched beforehand for all. Decoding in memory uses streaming stores.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import oracle
from ggufkit import _native, pieces, quants
from ggufkit.types import TensorType, tensor_type

WIDTH = 4096
CACHED = 16 * WIDTH  # elements whose float32 and packed form fit in a core's second-level cache
PATIENCE = 0.25  # seconds that one call may take: slow types get fewer rows
SMALLEST = 16  # rows

Work = Callable[[int], object]  # works on the first so many rows
Maker = Callable[["Buffers", bool], Work]


@dataclass(frozen=True)
class Buffers:
    """Rows of a type in both forms, with the weights of their columns."""

    type: TensorType
    floats: npt.NDArray[np.float32]
    packed: npt.NDArray[np.uint8]
    weights: npt.NDArray[np.float32] | None


def buffers(kind: TensorType, rows: int, *, weighted: bool) -> Buffers:
    """Return touched buffers that begin on a cache line; packed holds valid blocks."""
    random = np.random.default_rng(0)
    floats = pieces.aligned((rows, WIDTH), np.dtype(np.float32))
    floats[:] = random.standard_normal((rows, WIDTH), dtype=np.float32)
    packed = np.zeros((rows, kind.row_bytes(WIDTH)), np.uint8)
    packed[:] = random.integers(0, 120, packed.shape, np.uint8)  # half scales stay finite
    weights = random.random(WIDTH, np.float32) if weighted else None
    return Buffers(kind, floats, packed, weights)


def ggml_encoder(b: Buffers) -> Work:
    """Return ggml's encoder."""
    return lambda rows: oracle.encode("libggml", b.floats[:rows], b.type, b.weights, b.packed)


def ggml_decoder(b: Buffers) -> Work:
    """Return ggml's decoder."""
    return lambda rows: oracle.decode("libggml", b.packed[:rows], b.type, b.floats)


def gguf_py_encoder(b: Buffers) -> Work:
    """Return gguf-py's encoder."""
    return lambda rows: gguf.quants.quantize(b.floats[:rows], gguf.GGMLQuantizationType(b.type.id))


def gguf_py_decoder(b: Buffers) -> Work:
    """Return gguf-py's decoder."""
    return lambda rows: gguf.quants.dequantize(
        b.packed[:rows], gguf.GGMLQuantizationType(b.type.id)
    )


def own_encoder(b: Buffers, isa: str) -> Callable[[int, int], object]:
    """Return the native encoder of rows from a first to a last."""

    def encode(start: int, stop: int) -> object:
        rows = b.floats[start:stop].reshape(-1), b.packed[start:stop].reshape(-1)
        return _native.encode(b.type.id, *rows, WIDTH, b.weights, isa)

    return encode


def own_decoder(b: Buffers, isa: str, *, streaming: bool) -> Callable[[int, int], object]:
    """Return the native decoder of rows from a first to a last."""

    def decode(start: int, stop: int) -> object:
        rows = b.packed[start:stop].reshape(-1), b.floats[start:stop].reshape(-1)
        return _native.decode(b.type.id, *rows, streaming, isa)

    return decode


def in_threads(part: Callable[[int, int], object], pool: ThreadPoolExecutor | None) -> Work:
    """Return `part` over all rows, by two threads if there is a pool."""

    def alone(rows: int) -> object:
        return part(0, rows)

    def halves(rows: int) -> object:
        middle = rows // 2
        ends = [(0, middle), (middle, rows)]
        return [done.result() for done in [pool.submit(part, *end) for end in ends]]

    return alone if pool is None else halves


def rate(work: Work, rows: int, repeats: int) -> float:
    """Return the median rate in millions of elements per second."""
    took = seconds(lambda: work(min(rows, SMALLEST)))
    rows = max(min(rows, SMALLEST), min(rows, int(PATIENCE / took * SMALLEST)))
    loops = max(1, CACHED // (rows * WIDTH))
    times = [seconds(lambda: [work(rows) for _ in range(loops)]) for _ in range(repeats)]
    return loops * rows * WIDTH / statistics.median(times) / 1e6


def seconds(function: Callable[[], object]) -> float:
    """Return how long a call takes."""
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def attempt(make: Callable[[Buffers], Work], b: Buffers, repeats: int) -> float | None:
    """Return the rate of a peer, None where it lacks the type."""
    try:
        return rate(make(b), len(b.floats), repeats)
    except (NotImplementedError, AttributeError, ValueError):
        return None


def lines(kind: TensorType, encodes: bool, arguments: argparse.Namespace) -> Iterator[str]:  # noqa: FBT001
    """Yield one line per size of buffer: the peers, then each instruction set."""
    big = max(1, arguments.elements // WIDTH)
    for place, rows in (("memory", big), ("cache", CACHED // WIDTH)):
        b = buffers(kind, rows, weighted=arguments.weighted and encodes)
        ggml = attempt(ggml_encoder if encodes else ggml_decoder, b, arguments.repeats)
        python = attempt(gguf_py_encoder if encodes else gguf_py_decoder, b, arguments.repeats)
        cells = [cell(ggml, None), cell(python, ggml)]
        for isa in arguments.isa:
            part = (
                own_encoder(b, isa) if encodes else own_decoder(b, isa, streaming=place == "memory")
            )
            cells.append(cell(rate(in_threads(part, None), rows, arguments.repeats), ggml))
            if place == "memory" and quants.usable_cores() > 1:
                with ThreadPoolExecutor(2) as pool:
                    both = rate(in_threads(part, pool), rows, arguments.repeats)
                cells.append(cell(both, ggml))
        what = "encode" if encodes else "decode"
        yield f"{kind.name:8} {what} {place:6} {' '.join(cells)}"


def cell(value: float | None, ggml: float | None) -> str:
    """Return a rate and its ratio to ggml's."""
    if value is None:
        return f"{'-':>14}"
    ratio = "" if ggml is None else f"{value / ggml:.3g}x"
    return f"{value:7.4g} {ratio:>6}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure codecs beside ggml and gguf-py.")
    parser.add_argument("--types", nargs="+", metavar="TYPE")
    parser.add_argument("--isa", nargs="+", default=quants.instruction_sets()[:1])
    parser.add_argument("--weighted", action="store_true", help="encode with importance weights")
    parser.add_argument("--elements", type=int, default=1 << 24)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    rows = {row[0]: row for row in _native.codecs("portable")}
    plain = {"F32", "F64", "I8", "I16", "I32", "I64"}
    names = arguments.types or [row[1] for row in rows.values() if row[1] not in plain]
    columns = [c for isa in arguments.isa for c in (isa, f"{isa} 2 threads")]
    heads = ["ggml", "gguf-py", *(columns if quants.usable_cores() > 1 else arguments.isa)]
    print(f"M elements/s and ratio to ggml; {os.cpu_count()} cores, width {WIDTH}")
    print(f"{'':22}", " ".join(f"{head:>14}" for head in heads))
    for name in names:
        kind = tensor_type(name)
        for encodes in (True, False):
            if rows[kind.id][4] or not encodes:
                for line in lines(kind, encodes, arguments):
                    print(line, flush=True)


if __name__ == "__main__":
    main()
