"""Compare types and whole jobs with what the machine can do at most, measured in the same run.

    python benchmarks/limits.py [--types Q8_0 ...] [--jobs copy ...] [--rounds N] [--folder FOLDER]

The first table has the rate of each encoder and decoder on one core, and the rate at which it
reads and writes bytes, as a share of the rate of a plain copy in memory. A decoder can be above
100 %: its stores bypass the caches, and those of the copy may not.

A job cannot be faster than a program that reads the same input, and writes and syncs as many bytes
as the output has. The second table has the wall time of each job, that of such a program, their
ratio, and the time of a start that does nothing. All take turns; the figures are medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import against
import codec
import numpy as np
import quantize

import ggufkit
from ggufkit import quants
from ggufkit.format.types import tensor_type
from ggufkit.quants import parallel

BYTES: Final = 1 << 28  # of a copy in memory
ELEMENTS: Final = 1 << 24
TYPES: Final = ("Q8_0", "Q4_0", "Q4_K", "Q6_K", "IQ4_XS", "Q2_K", "Q3_K", "IQ3_S", "MXFP4")
JOBS: Final = {
    "copy": ("copy",),
    "Q8_0": ("quantize", "Q8_0"),
    "Q4_0": ("quantize", "Q4_0"),
    "Q6_K": ("quantize", "Q6_K"),
    "Q4_K_M": ("quantize", "Q4_K_M"),
}
PIECE: Final = 1 << 22


def median_seconds(work: Callable[[], object], rounds: int) -> float:
    """Return the median processor time of some calls, after one that does not count."""
    work()
    times = []
    for _ in range(rounds):
        begin = time.thread_time()  # other processes do not count
        work()
        times.append(time.thread_time() - begin)
    return statistics.median(times)


def copy_rate(rounds: int) -> float:
    """Return the bytes that one core reads and writes in a second when it copies memory."""
    source = parallel.aligned((BYTES,), np.dtype(np.uint8))
    target = parallel.aligned((BYTES,), np.dtype(np.uint8))
    source[:], target[:] = 1, 2
    return 2 * BYTES / median_seconds(lambda: np.copyto(target, source), rounds)


def show_types(names: list[str], rounds: int) -> None:
    """Print the first table."""
    limit, isa = copy_rate(rounds), quants.instruction_sets()[0]
    print(f"a copy in memory reads and writes {limit / 1e9:.1f} GB/s on one core\n")
    print("| type | encode: M elements/s | of a copy | decode: M elements/s | of a copy |")
    print("|---|---|---|---|---|")
    rows = ELEMENTS // codec.WIDTH
    for name in names:
        b = codec.buffers(tensor_type(name), rows, weighted=name.startswith("IQ"))
        moved = b.floats.nbytes + b.packed.nbytes
        cells = []
        for part in (codec.own_encoder(b, isa), codec.own_decoder(b, isa, streaming=True)):
            seconds = median_seconds(lambda part=part: part(0, rows), rounds)
            cells.append(f"{ELEMENTS / seconds / 1e6:.0f} | {moved / seconds / limit:.0%}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def read_and_write(source: Path, target: Path, size: int) -> None:
    """Read a file, and write and sync `size` bytes."""
    piece = bytearray(PIECE)
    with source.open("rb", buffering=0) as file:
        while file.readinto(piece):
            pass
    with target.open("wb", buffering=0) as file:
        for start in range(0, size, PIECE):
            file.write(memoryview(piece)[: size - start])
        os.fsync(file.fileno())


def show_jobs(names: list[str], model: Path, rounds: int) -> None:
    """Print the second table."""
    package, out = Path(ggufkit.__file__).parents[1], model.with_name("out.gguf")
    print(f"\n{model.stat().st_size / 2**30:.2f} GiB of F16, load {os.getloadavg()[0]:.1f}\n")
    print("| job | seconds | read and write alone | ratio | start alone |")
    print("|---|---|---|---|---|")
    for name in names:
        command, *recipe = JOBS[name]
        arguments = [command, str(model), str(out), *recipe]
        size, times = 0, []
        for _ in range(rounds + 1):
            start = against.run(package, ["--version"], out).wall
            job = against.run(package, arguments, out).wall
            size = out.stat().st_size
            out.unlink()
            begin = time.perf_counter()
            read_and_write(model, out, size)
            times.append((job, time.perf_counter() - begin, start))
        job, limit, start = map(statistics.median, zip(*times[1:], strict=True))
        print(f"| {name} | {job:.2f} | {limit:.2f} | {job / limit:.2f} | {start:.2f} |", flush=True)
    out.unlink(missing_ok=True)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--types", nargs="*", default=TYPES)
    parser.add_argument("--jobs", nargs="*", default=list(JOBS), choices=JOBS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where the model of 1.2 GiB is kept")
    options = parser.parse_args()
    show_types(options.types, options.rounds)
    folder = options.folder or Path(tempfile.gettempdir()) / "ggufkit-limits"
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / "model.gguf"
    if options.jobs and not model.exists():
        quantize.make_model(model)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # pip compiles bytecode once, too
    os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    if options.jobs:
        show_jobs(options.jobs, model, options.rounds)


if __name__ == "__main__":
    sys.exit(main())
