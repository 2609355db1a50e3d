"""Compare a release of 16 rungs with 16 calls of llama.cpp, in turn on the same file.

    python benchmarks/release.py [--model smollm2] [--layers N] [--threads N] [--repeats N]
                                 [--folder FOLDER]

Every call of llama.cpp is a process of its own, as in a script; `ggufkit release` is one process,
which also hashes, checks and describes the files. Both are measured from the start of the first
process to the last file on disk; the page cache is warm. Nothing is evaluated or generated. The
tensors of the files are compared, and one more release counts how often the source is read. The
model has random weights, or is SmolLM2-135M as F16.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from unittest import mock

import quantize

import ggufkit
import real
from ggufkit.cli.progress import progress_bar
from ggufkit.release.run import release
from ggufkit.release.runner import ReleaseJob
from ggufkit.release.settings import Settings
from ggufkit.system.mapped_file import Bytes, MappedFile

RUNGS = (
    *("Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q5_1", "Q5_0", "Q4_K_M", "Q4_K_S"),
    *("Q4_1", "Q4_0", "IQ4_XS", "IQ4_NL", "Q3_K_L", "Q3_K_M", "Q3_K_S", "Q2_K"),
)


def run_llama_cpp(source: Path, folder: Path, threads: int) -> None:
    """Quantize to one rung after the other."""
    folder.mkdir()
    for rung in RUNGS:
        target = folder / f"llama-{rung}.gguf"
        quantize.measured("llama.cpp", source, target, rung, threads)


def run_release(source: Path, folder: Path, threads: int) -> None:
    """Make the release, without running its files in llama.cpp."""
    settings = source.with_name("release.toml")
    settings.write_text("run = false\n")
    command = [sys.executable, "-m", "ggufkit", "release", source, "-o", folder, "--quiet"]
    options = ["--rungs", ",".join(RUNGS), "--config", settings, "--threads", str(threads)]
    subprocess.run([*command, *options], check=True)


def count_reads(source: Path, folder: Path, threads: int) -> Counter[str]:
    """Make the release in this process; return how many bytes of the source each step read."""
    read, counts, steps = MappedFile.read, Counter[str](), ["start"]

    def counting(file: MappedFile, offset: int, nbytes: int) -> Bytes:
        if file.path == source:
            counts[steps[-1]] += nbytes
        return read(file, offset, nbytes)

    def tell(step: str, state: str, **_: object) -> None:
        if state == "begun":
            steps.append(step.partition(" ")[0])

    settings = Settings(RUNGS, run=False, name=stem_of(source))
    with mock.patch.object(MappedFile, "read", counting):
        release(ReleaseJob(str(source), folder, settings, threads=threads), tell, progress_bar)
    return counts


def stem_of(source: Path) -> str:
    """Return what the files of a release are called."""
    return source.stem.removesuffix("-F16")


def same_tensors(mine: Path, theirs: Path) -> bool:
    """Whether two files have the same tensors, byte for byte."""
    with ggufkit.open(mine) as first, ggufkit.open(theirs) as second:
        return not ggufkit.diff(first, second, data=True).tensors


def make_source(options: argparse.Namespace) -> Path:
    """Return the F16 model to quantize, which is made the first time."""
    quantize.LAYERS = options.layers
    name = options.model or f"llama-{options.layers}"
    source: Path = options.folder / f"{name}-F16.gguf"
    options.folder.mkdir(parents=True, exist_ok=True)
    if source.exists():
        return source
    if options.model is None:
        quantize.make_model(source)
        return source
    with ggufkit.open(getattr(real, options.model)()) as model:
        ggufkit.write(ggufkit.quantize(model, "F16", allow_requantize=True), source)
    return source


def main() -> None:
    """Make the model if it is missing, and print medians, agreement and reads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=["smollm2"])
    parser.add_argument("--layers", type=int, default=quantize.LAYERS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=real.CACHE / "benchmark")
    options = parser.parse_args()
    source = make_source(options)
    quantize.warm(source)
    folders = [options.folder / "of-llama.cpp", options.folder / "of-release"]
    runs: list[list[float]] = [[], []]
    for _ in range(options.repeats):
        for folder, run, seconds in zip(folders, (run_llama_cpp, run_release), runs, strict=True):
            shutil.rmtree(folder, ignore_errors=True)
            begun = time.perf_counter()
            run(source, folder, options.threads)
            seconds.append(time.perf_counter() - begun)
        print(f"llama.cpp {runs[0][-1]:.1f} s, release {runs[1][-1]:.1f} s", flush=True)
    files = {
        r: (folders[1] / f"{stem_of(source)}-{r}.gguf", folders[0] / f"llama-{r}.gguf")
        for r in RUNGS
    }
    same = sum(same_tensors(*pair) for pair in files.values())
    theirs, ours = map(statistics.median, runs)
    size = source.stat().st_size
    print(
        f"{size / 2**30:.2f} GiB, {len(RUNGS)} rungs, {options.threads} threads: "
        f"llama.cpp {theirs:.1f} s, release {ours:.1f} s, {theirs / ours:.1f}x; "
        f"{same} of {len(RUNGS)} have the same tensors"
    )
    shutil.rmtree(folders[1])
    for step, nbytes in count_reads(source, folders[1], options.threads).items():
        print(f"{step}: reads {nbytes / size:.2f} times the source")
    for folder in folders:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
