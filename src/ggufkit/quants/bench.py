"""How fast this machine encodes and decodes each tensor type."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from ggufkit.format.types import TENSOR_TYPES, TensorType
from ggufkit.quants import codec, parallel
from ggufkit.quants.kernels import codecs, requiring_weights
from ggufkit.quants.parallel import Floats
from ggufkit.system.cpu import worker_count

WIDTH: Final = 4096  # columns: a usual matrix width, and whole blocks of every type
ELEMENTS: Final = 1 << 25  # 128 MiB of floats: more than most caches hold
SAMPLE: Final = parallel.TASK // WIDTH  # rows of one thread's piece
TASKS: Final = 2  # pieces per thread, so that every thread works until the end
PATIENCE: Final = 0.1  # seconds for one repeat: slow types get fewer rows
REPEATS: Final = 5  # the median is reported


@dataclass(frozen=True)
class Rate:
    """Elements per second of one tensor type, by one thread and by several."""

    type: TensorType
    threads: int
    encode: float
    encode_threaded: float
    decode: float
    decode_threaded: float


def bench(
    types: Iterable[TensorType | str | int] | None = None,
    *,
    threads: int | None = None,
    weighted: bool = False,
    patience: float = PATIENCE,
) -> Iterator[Rate]:
    """Yield the rates of `types`, by default all that are quantized, and F16 and BF16.

    `threads` is the number of threads, by default one for each usable core. With `weighted`,
    importance weights steer the encoding; types that require them always have them. A rate is the
    median of five repeats of about `patience` seconds each, on more rows than caches hold.

    Raises TensorTypeError for a type that has no codec, ValueTypeError for fewer than one thread.
    """
    many = worker_count(threads)
    if types is not None:
        chosen = [codec.encodable(key) for key in types]
    else:
        encodable = [TENSOR_TYPES[number] for number, encodes in codecs().items() if encodes]
        chosen = [row for row in encodable if row.is_quantized or row.name in {"F16", "BF16"}]
    rows = max(ELEMENTS, many * TASKS * parallel.TASK) // WIDTH
    floats = parallel.aligned((rows, WIDTH), np.dtype(np.float32))
    floats[:] = np.random.default_rng(0).standard_normal((rows, WIDTH), np.float32)
    return (_measure(row, floats, many, patience, weighted=weighted) for row in chosen)


def _measure(
    type: TensorType, floats: Floats, threads: int, patience: float, *, weighted: bool
) -> Rate:
    is_weighted = weighted or type.id in requiring_weights()
    weights = np.random.default_rng(1).random(WIDTH, np.float32) if is_weighted else None
    packed = np.empty((len(floats), type.row_bytes(WIDTH)), np.uint8)
    sample = codec.quantize(floats[:SAMPLE], type, imatrix=weights)
    packed[:] = np.resize(sample, packed.shape)
    decoded = np.zeros_like(floats)
    decoded[:] = 1.0  # touch the pages before the clock starts

    def encode(rows: int, threads: int) -> object:
        part, out = floats[:rows], packed[:rows]
        return codec.quantize(part, type, imatrix=weights, threads=threads, out=out)

    def decode(rows: int, threads: int) -> object:
        return codec.dequantize(packed[:rows], type, threads=threads, out=decoded[:rows])

    rates = [
        _rate(work, len(floats), many, patience)
        for work in (encode, decode)
        for many in (1, threads)
    ]
    return Rate(type, threads, *rates)


def _rate(work: Callable[[int, int], object], rows: int, threads: int, patience: float) -> float:
    least = min(rows, SAMPLE * threads)
    once = _seconds(work, least, threads)
    fitting = min(rows // least, max(1, int(patience / once))) * least
    took = statistics.median(_seconds(work, fitting, threads) for _ in range(REPEATS))
    return fitting * WIDTH / took


def _seconds(work: Callable[[int, int], object], rows: int, threads: int) -> float:
    begin = time.perf_counter()
    work(rows, threads)
    return time.perf_counter() - begin
