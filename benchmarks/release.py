"""Compare a release of 16 rungs with 16 calls of llama.cpp, in turn on the same file.

    python benchmarks/release.py [--layers N] [--threads N] [--folder FOLDER]

Every call of llama.cpp is a process of its own, as in a script; `ggufkit release` is one process,
which also hashes, checks and describes the files. Both are measured from the start of the first
process to the last file on disk; the page cache is warm. The tensors of the files are compared.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

import quantize

import ggufkit
import real

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


def same_tensors(mine: Path, theirs: Path) -> bool:
    """Whether two files have the same tensors, byte for byte."""
    with ggufkit.open(mine) as first, ggufkit.open(theirs) as second:
        return not ggufkit.diff(first, second, data=True).tensors


def main() -> None:
    """Make the model if it is missing, and print one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=quantize.LAYERS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=real.CACHE / "benchmark")
    options = parser.parse_args()
    quantize.LAYERS = options.layers
    source = options.folder / f"llama-{options.layers}-F16.gguf"
    options.folder.mkdir(parents=True, exist_ok=True)
    if not source.exists():
        quantize.make_model(source)
    quantize.warm(source)
    seconds = []
    folders = [options.folder / "of-llama.cpp", options.folder / "of-release"]
    for folder, run in zip(folders, (run_llama_cpp, run_release), strict=True):
        shutil.rmtree(folder, ignore_errors=True)
        begun = time.perf_counter()
        run(source, folder, options.threads)
        seconds.append(time.perf_counter() - begun)
    stem = source.stem.removesuffix("-F16")
    pairs = [(folders[1] / f"{stem}-{r}.gguf", folders[0] / f"llama-{r}.gguf") for r in RUNGS]
    same = sum(same_tensors(*pair) for pair in pairs)
    print(
        f"{source.stat().st_size / 2**30:.2f} GiB, {len(RUNGS)} rungs, {options.threads} threads: "
        f"llama.cpp {seconds[0]:.1f} s, release {seconds[1]:.1f} s, "
        f"{seconds[0] / seconds[1]:.1f}x; {same} of {len(RUNGS)} have the same tensors"
    )
    for folder in folders:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
