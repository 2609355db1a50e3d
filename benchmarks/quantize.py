"""Compare quantizing a whole model with llama.cpp, in turn on the same file.

    python benchmarks/quantize.py [RECIPE ...] [--threads N] [--repeats N] [--folder FOLDER]

Every job is a separate process, measured from its start to the file on disk; the page cache is
warm. The model is made once: random weights of Llama's shape, 1.2 GiB as F16, with a real
vocabulary. The output is medians of wall time and of processor time, their ratios, and the peak of
private memory; the files are compared byte by byte.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import filecmp
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import ggufkit
import llama_quantize
import real
from ggufkit.imatrix.matrix import Entry, Imatrix

RECIPES = ("Q4_K_M", "Q5_K_M", "Q2_K", "Q6_K", "IQ4_XS", "IQ3_S", "IQ2_XXS", "Q8_0", "Q4_0")
WEIGHTED = ("IQ3_S", "IQ2_XXS")  # recipes that are given importance data
IMATRIX, DATASET, CHUNKS = "imatrix.gguf", "random", 1
LAYERS, WIDTH, HIDDEN, HEADS, SHARED_HEADS = 11, 2048, 5632, 32, 8


class Cost(NamedTuple):
    """Seconds of wall time and of processor time, and peak memory in bytes."""

    wall: float
    processor: float
    memory: float


def make_model(path: Path) -> None:
    """Write a model of random weights."""
    vocabulary = next(p for p in real.vocabularies() if p.name == "ggml-vocab-llama-spm.gguf")
    random = np.random.default_rng(1)
    with ggufkit.open(vocabulary) as source:
        tokens = len(source.metadata["tokenizer.ggml.tokens"])
        metadata = source.metadata.updated(
            {
                "llama.block_count": LAYERS,
                "llama.embedding_length": WIDTH,
                "llama.feed_forward_length": HIDDEN,
                "llama.attention.head_count": HEADS,
                "llama.attention.head_count_kv": SHARED_HEADS,
                "llama.rope.dimension_count": WIDTH // HEADS,
                "general.file_type": 1,
            }
        )
        tensors = {
            name: random.standard_normal(shape, np.float32).astype(dtype) * dtype(0.02)
            for name, shape, dtype in shapes(tokens)
        }
        ggufkit.save(path, tensors, dict(metadata))


def shapes(tokens: int) -> Iterator[tuple[str, tuple[int, ...], Any]]:
    """Yield name, shape and dtype of all tensors."""
    shared = WIDTH // HEADS * SHARED_HEADS
    yield "token_embd.weight", (tokens, WIDTH), np.float16
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        yield f"{block}.attn_norm.weight", (WIDTH,), np.float32
        yield f"{block}.attn_q.weight", (WIDTH, WIDTH), np.float16
        yield f"{block}.attn_k.weight", (shared, WIDTH), np.float16
        yield f"{block}.attn_v.weight", (shared, WIDTH), np.float16
        yield f"{block}.attn_output.weight", (WIDTH, WIDTH), np.float16
        yield f"{block}.ffn_norm.weight", (WIDTH,), np.float32
        yield f"{block}.ffn_gate.weight", (HIDDEN, WIDTH), np.float16
        yield f"{block}.ffn_up.weight", (HIDDEN, WIDTH), np.float16
        yield f"{block}.ffn_down.weight", (WIDTH, HIDDEN), np.float16
    yield "output_norm.weight", (WIDTH,), np.float32
    yield "output.weight", (tokens, WIDTH), np.float16


def make_imatrix(model: Path, path: Path) -> None:
    """Write importance data of every matrix."""
    random = np.random.default_rng(2)
    with ggufkit.open(model) as opened:
        widths = {t.name: t.shape[-1] for t in opened.tensors.values() if len(t.shape) > 1}
    entries = {
        name: Entry(random.gamma(1, 1, (1, width)).astype(np.float32) * 512, np.array([512]))
        for name, width in widths.items()
    }
    Imatrix(entries, (DATASET,), CHUNKS).save(path)


def run_ggufkit(source: str, target: str, recipe: str, threads: int) -> None:
    """Quantize with ggufkit in this process."""
    imatrix = IMATRIX if recipe in WEIGHTED else None
    with ggufkit.open(source) as model:
        chosen = imatrix and Path(source).with_name(imatrix)
        quantized = ggufkit.quantize(model, recipe, imatrix=chosen)
        ggufkit.write(quantized, target, threads=threads)


def run_llama_cpp(source: str, target: str, recipe: str, threads: int) -> None:
    """Quantize with llama.cpp, and print the seconds of the call alone."""
    library = ctypes.CDLL(str(real.libllama() / "libllama.so.0"))
    library.llama_model_quantize_default_params.restype = llama_quantize.QuantizeParameters
    silence = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(_ignore)
    library.llama_log_set(silence, None)
    chosen = library.llama_model_quantize_default_params()
    job: dict[str, Any] = {"recipe": recipe, "weights": {}}
    if recipe in WEIGHTED:
        path = Path(source).with_name(IMATRIX)
        imatrix = Imatrix.open(path)
        job["weights"] = {name: imatrix.weights(name) for name in imatrix.entries}
        job["imatrix_keys"] = {"file": str(path), "dataset": DATASET, "chunks": CHUNKS}
    alive = llama_quantize._fill(chosen, job)  # noqa: SLF001 (the tests' own)
    chosen.threads = threads
    begin = time.perf_counter(), time.process_time()
    failed = library.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(chosen))
    print(time.perf_counter() - begin[0], time.process_time() - begin[1])
    del alive
    sys.exit(failed)


def _ignore(*_: object) -> None:
    pass


RUNNERS = {"ggufkit": run_ggufkit, "llama.cpp": run_llama_cpp}


def measured(name: str, source: Path, target: Path, recipe: str, threads: int) -> Cost:
    """Run one job in a separate process and return its cost."""
    target.unlink(missing_ok=True)
    command = [sys.executable, __file__, "--run", name, source, target, recipe, str(threads)]
    begin = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        peak = Peak(process.pid)
        output = process.stdout.read() if process.stdout else ""
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{name} could not make {target}")
    times = [float(word) for word in output.split()] or [wall, usage.ru_utime + usage.ru_stime]
    return Cost(*times, peak.stop())


class Peak:
    """The peak of a process's private memory, sampled every few milliseconds."""

    def __init__(self, pid: int) -> None:
        """Start sampling."""
        self.status = Path(f"/proc/{pid}/status")
        self.most = 0
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _watch(self) -> None:
        while not self.done.wait(0.005):
            with contextlib.suppress(OSError, StopIteration):
                lines = self.status.read_text().splitlines()
                line = next(line for line in lines if line.startswith("RssAnon"))
                self.most = max(self.most, int(line.split()[1]) * 1024)

    def stop(self) -> int:
        """Return the most bytes seen."""
        self.done.set()
        self.thread.join()
        return self.most


def compare(source: Path, folder: Path, recipe: str, options: argparse.Namespace) -> None:
    """Run both in turn, and print one line."""
    paths = {name: folder / f"{name}-{recipe}.gguf" for name in ("llama.cpp", "ggufkit")}
    costs: dict[str, list[Cost]] = {name: [] for name in paths}
    for _ in range(options.repeats):
        for name, path in paths.items():
            costs[name].append(measured(name, source, path, recipe, options.threads))
    theirs, ours = (Cost(*map(statistics.median, zip(*costs[n], strict=True))) for n in paths)
    same = filecmp.cmp(*paths.values(), shallow=False)
    for path in paths.values():
        path.unlink()
    print(
        f"{recipe:8} {theirs.wall:8.2f} {ours.wall:8.2f} {theirs.wall / ours.wall:7.1f}x"
        f" {theirs.processor:9.2f} {ours.processor:8.2f} {theirs.processor / ours.processor:7.1f}x"
        f" {theirs.memory / 2**20:10.0f} {ours.memory / 2**20:8.0f}"
        f"   {'same bytes' if same else 'OTHER BYTES'}",
        flush=True,
    )


def warm(path: Path) -> None:
    """Read a file into the page cache."""
    with path.open("rb") as file:
        while file.read(1 << 24):
            pass


def main() -> None:
    """Make the model if it is missing, and print a line for each recipe."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="*", default=RECIPES)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=real.CACHE / "benchmark")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    source = options.folder / "llama-f16.gguf"
    if not source.exists():
        make_model(source)
    if not (options.folder / IMATRIX).exists():
        make_imatrix(source, options.folder / IMATRIX)
    warm(source)
    print(f"{source.stat().st_size / 2**30:.2f} GiB of F16, {options.threads} threads, wall and")
    print("processor seconds, and MiB of memory, of llama.cpp and of ggufkit")
    for recipe in options.recipes:
        compare(source, options.folder, recipe, options)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        runner, source, target, recipe, threads = sys.argv[2:]
        RUNNERS[runner](source, target, recipe, int(threads))
    else:
        main()
