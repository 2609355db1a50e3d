"""Compare codec throughput with ggml and gguf-py in one run: one core, then two.

    python benchmarks/codec.py [--types Q8_0 Q4_K ...] [--isa v3 v2 ...] [--weighted]
                               [--only encode] [--elements N] [--repeats N] [--quiet]

Figures are medians in millions of elements per second, and their ratio to ggml's rate on one core.
On a shared machine, other work takes part of a core's ports and caches irregularly, and slows the
fastest code most. With --quiet, all calls are short and many, and the figure is the 90th
percentile: the rate of an undisturbed core. Each thread is measured in its own CPU time, so that
other work counts little; with two threads the slower counts. All codecs take turns. Geometric means
over the types come last. `memory` works on buffers larger than the last-level cache, `cache` on
small ones; outputs are allocated and touched beforehand for all. Decoding in memory uses streaming
stores.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import ggufkit._native as _native
import oracle
from ggufkit import quants
from ggufkit.format.types import TensorType, tensor_type
from ggufkit.quants import parallel
from ggufkit.system.cpu import usable_cores

WIDTH = 4096
CACHED = 16 * WIDTH  # elements that fit in a core's L2 cache, float32 and packed
LEAST = 1 << 22  # elements between two readings of the clock, unless that takes too long

Work = Callable[[int], float]  # codes that many rows and returns the seconds
Maker = Callable[["Buffers"], Callable[[int], object]]
CLOCK = time.thread_time  # other processes do not count


@dataclass(frozen=True)
class Pace:
    """How long and how often to measure, and which of the rates to report."""

    patience: float  # seconds per call at most: slow types get fewer rows
    smallest: int  # rows
    warm_up: bool  # run an untimed call first, to fill the caches
    repeats: int
    tell: Callable[[list[float]], float]


USUAL = Pace(0.1, 16, warm_up=False, repeats=5, tell=statistics.median)
QUIET = Pace(
    0.01, 1, warm_up=True, repeats=60, tell=lambda rates: sorted(rates)[len(rates) * 9 // 10]
)


@dataclass(frozen=True)
class Buffers:
    """Rows of a type, packed and as floats, with the weights of their columns."""

    type: TensorType
    floats: npt.NDArray[np.float32]
    packed: npt.NDArray[np.uint8]
    weights: npt.NDArray[np.float32] | None


def buffers(kind: TensorType, rows: int, *, weighted: bool) -> Buffers:
    """Return touched buffers that begin on a cache line; packed holds valid blocks."""
    random = np.random.default_rng(0)
    floats = parallel.aligned((rows, WIDTH), np.dtype(np.float32))
    floats[:] = random.standard_normal((rows, WIDTH), dtype=np.float32)
    packed = np.zeros((rows, kind.row_bytes(WIDTH)), np.uint8)
    packed[:] = random.integers(0, 120, packed.shape, np.uint8)  # half scales stay finite
    weights = random.random(WIDTH, np.float32) if weighted else None
    return Buffers(kind, floats, packed, weights)


def ggml_encoder(b: Buffers) -> Callable[[int], object]:
    """Return ggml's encoder."""
    return lambda rows: oracle.encode("libggml", b.floats[:rows], b.type, b.weights, b.packed)


def ggml_decoder(b: Buffers) -> Callable[[int], object]:
    """Return ggml's decoder."""
    return lambda rows: oracle.decode("libggml", b.packed[:rows], b.type, b.floats)


def gguf_py_encoder(b: Buffers) -> Callable[[int], object]:
    """Return gguf-py's encoder."""
    return lambda rows: gguf.quants.quantize(b.floats[:rows], gguf.GGMLQuantizationType(b.type.id))


def gguf_py_decoder(b: Buffers) -> Callable[[int], object]:
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
    """Return `part` over all rows, in two threads if a pool is given; it returns the seconds."""

    def timed(start: int, stop: int) -> float:
        begin = CLOCK()
        part(start, stop)
        return CLOCK() - begin

    def halves(rows: int) -> float:
        middle = rows // 2
        ends = [(0, middle), (middle, rows)]
        return max(done.result() for done in [pool.submit(timed, *end) for end in ends])

    return halves if pool else lambda rows: timed(0, rows)


def by_peer(work: Callable[[int], object]) -> Work:
    """Return a peer's work on the first rows; it returns the seconds."""

    def timed(rows: int) -> float:
        begin = CLOCK()
        work(rows)
        return CLOCK() - begin

    return timed


def calls(work: Work, rows: int, pace: Pace) -> Callable[[], float]:
    """Return a call that works as long as `pace` sets and returns millions of elements/s."""
    least = min(rows, pace.smallest)
    rows = max(least, min(rows, int(pace.patience / work(least) * least)))
    loops = max(1, CACHED // (rows * WIDTH)) if not pace.warm_up else 1
    if rows * WIDTH == CACHED:  # short calls: the first meets a cold cache
        loops = max(1, min(LEAST // CACHED, int(pace.patience / work(rows))))

    def rate() -> float:
        if pace.warm_up:
            work(rows)
        return loops * rows * WIDTH / sum(work(rows) for _ in range(loops)) / 1e6

    return rate


def peer(make: Maker, b: Buffers, pace: Pace) -> Callable[[], float] | None:
    """Return the calls of a peer, None if it lacks the type."""
    try:
        return calls(by_peer(make(b)), len(b.floats), pace)
    except (NotImplementedError, AttributeError, ValueError):
        return None


def rates(works: list[Callable[[], float] | None], pace: Pace) -> list[float | None]:
    """Return rates; works take turns, so that all meet the same disturbances."""
    rounds = [[work and work() for work in works] for _ in range(pace.repeats)]
    columns = zip(*rounds, strict=True)
    return [None if None in column else pace.tell(list(column)) for column in columns]


def line(
    kind: TensorType, use: int, place: str, arguments: argparse.Namespace, *, encodes: bool
) -> tuple[str, list[float]]:
    """Return a line for one size of buffer, and each instruction set's ratio to ggml."""
    in_memory = place == "memory"
    rows = max(1, (arguments.elements if in_memory else CACHED) // WIDTH)
    b = buffers(kind, rows, weighted=encodes and use > 0 and (arguments.weighted or use > 1))
    pace = arguments.pace
    works = [peer(ggml_encoder if encodes else ggml_decoder, b, pace)]
    works += [peer(gguf_py_encoder if encodes else gguf_py_decoder, b, pace)]
    with ThreadPoolExecutor(2) as pool:
        for isa in arguments.isa:
            part = own_encoder(b, isa) if encodes else own_decoder(b, isa, streaming=in_memory)
            works.append(calls(in_threads(part, None), rows, pace))
            if two_cores():
                both = calls(in_threads(part, pool), rows, pace) if in_memory else None
                works.append(both)
        ggml, python, *own = rates(works, pace)
    cells = " ".join([cell(ggml, None), cell(python, ggml), *(cell(value, ggml) for value in own)])
    alone = own[:: 1 + two_cores()]
    name = kind.name + " weighted" * (b.weights is not None)
    what = "encode" if encodes else "decode"
    return f"{name:16} {what} {place:6} {cells}", [value / ggml for value in alone if ggml]


def two_cores() -> bool:
    """Whether two threads can be measured."""
    return usable_cores() > 1


def cell(value: float | None, ggml: float | None) -> str:
    """Return a rate and its ratio to ggml's."""
    if value is None:
        return f"{'-':>14}"
    ratio = "" if ggml is None else f"{value / ggml:.3g}x"
    return f"{value:7.4g} {ratio:>6}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Compare codecs with ggml and gguf-py.")
    parser.add_argument("--types", nargs="+", metavar="TYPE")
    parser.add_argument("--isa", nargs="+", default=quants.instruction_sets()[:1])
    parser.add_argument("--weighted", action="store_true", help="encode with importance weights")
    parser.add_argument("--only", choices=["encode", "decode"], help="leave the other out")
    parser.add_argument("--elements", type=int, default=1 << 24)
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--quiet", action="store_true", help="tell what a core does left alone")
    arguments = parser.parse_args()
    arguments.pace = QUIET if arguments.quiet else USUAL
    if arguments.repeats:
        arguments.pace = replace(arguments.pace, repeats=arguments.repeats)
    codecs = {row[0]: row for row in _native.codecs("portable")}
    plain = {"F32", "F64", "I8", "I16", "I32", "I64"}
    names = arguments.types or [row[1] for row in codecs.values() if row[1] not in plain]
    columns = [c for isa in arguments.isa for c in (isa, f"{isa} 2 threads")]
    heads = ["ggml", "gguf-py", *(columns if two_cores() else arguments.isa)]
    print(f"M elements/s and ratio to ggml; {os.cpu_count()} cores, width {WIDTH}")
    print(f"{'':30}", " ".join(f"{head:>14}" for head in heads))
    ratios: dict[str, list[list[float]]] = {"encode": [], "decode": []}
    for what in (arguments.only,) if arguments.only else ("encode", "decode"):
        for kind in map(tensor_type, names):
            for place in ("memory", "cache"):
                use = codecs[kind.id][5]
                text, own = line(kind, use, place, arguments, encodes=what == "encode")
                print(text, flush=True)
                ratios[what] += [own] if own and place == "memory" else []
    for what, rows in ratios.items():
        means = [f"{isa} {statistics.geometric_mean(r):.3g}x" for isa, r in by_isa(arguments, rows)]
        if rows:
            print(f"geometric mean of {len(rows)} types, {what} in memory:", ", ".join(means))


def by_isa(
    arguments: argparse.Namespace, rows: list[list[float]]
) -> list[tuple[str, tuple[float, ...]]]:
    """Return the ratios of each instruction set."""
    return list(zip(arguments.isa, zip(*rows, strict=True), strict=False))


if __name__ == "__main__":
    main()
