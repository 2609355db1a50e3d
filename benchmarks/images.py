"""Compare converting an image model with ComfyUI-GGUF's script and a plain copy.

    python benchmarks/images.py [--size GIB] [--folder FOLDER] [--rounds N]
        [--comfyui-gguf CHECKOUT --python PYTHON [--llama-quantize PROGRAM]]

The checkpoint is synthetic, with the names and shapes of FLUX.1 in BF16, and as many blocks as the
size allows. PYTHON runs the script: it needs torch, gguf and safetensors. PROGRAM is llama-quantize
with the script's patch; tests/oracle/diffusion_digests.py says how to build it. Times are medians
of the rounds, memory is the highest peak of the processes.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from convert import timed, write_tensors

WIDTH = 3072
BLOCK = {
    "img_mod.lin.weight": (6 * WIDTH, WIDTH),
    "txt_mod.lin.weight": (6 * WIDTH, WIDTH),
    "img_attn.qkv.weight": (3 * WIDTH, WIDTH),
    "txt_attn.qkv.weight": (3 * WIDTH, WIDTH),
    "img_attn.proj.weight": (WIDTH, WIDTH),
    "txt_attn.proj.weight": (WIDTH, WIDTH),
    "img_mlp.0.weight": (4 * WIDTH, WIDTH),
    "img_mlp.2.weight": (WIDTH, 4 * WIDTH),
    "txt_mlp.0.weight": (4 * WIDTH, WIDTH),
    "txt_mlp.2.weight": (WIDTH, 4 * WIDTH),
}
BLOCK_BYTES = sum(2 * int(np.prod(shape)) for shape in BLOCK.values())
RECIPES = ("Q8_0", "Q4_K_M")


def make_checkpoint(path: Path, gib: float) -> int:
    """Write the checkpoint and return its bytes."""
    count = max(1, round(gib * 2**30 / BLOCK_BYTES))
    return write_tensors(
        path,
        {f"double_blocks.{i}.{name}": shape for i in range(count) for name, shape in BLOCK.items()},
    )


def works(source: Path, scratch: Path, options: argparse.Namespace) -> dict[str, str]:
    """Return the command of each work, by its name."""
    out, between = scratch / "out.gguf", scratch / "between.gguf"
    own = f"{shlex.quote(sys.executable)} -m ggufkit convert {source} {out} -q"
    commands = {"copy": f"cp {source} {out}", "ggufkit": own}
    commands |= {f"ggufkit {recipe}": f"{own} --quantize {recipe}" for recipe in RECIPES}
    if options.comfyui_gguf and options.python:
        script = options.comfyui_gguf / "tools" / "convert.py"
        peer = f"{options.python} {script} --src {source} --dst {between}"
        commands["ComfyUI-GGUF"] = peer
        if options.llama_quantize:
            for recipe in RECIPES:
                second = f"{options.llama_quantize} {between} {out} {recipe}"
                commands[f"ComfyUI-GGUF {recipe}"] = f"{peer} && {second}"
    return commands


def measure(scratch: Path, options: argparse.Namespace) -> None:
    """Make the checkpoint, run all works in turns, print the median of each."""
    source = scratch / "flux.safetensors"
    with ProcessPoolExecutor(1) as pool:  # a child's peak begins with its parent's memory
        nbytes = pool.submit(make_checkpoint, source, options.size).result()
    commands = works(source, scratch, options)
    runs: dict[str, list[tuple[float, int]]] = {name: [] for name in commands}
    for _ in range(options.rounds):
        for name, command in commands.items():
            for output in scratch.glob("*.gguf"):
                output.unlink()
            runs[name].append(timed(["sh", "-c", command]))
    print(f"{nbytes / 2**30:.2f} GiB, median of {options.rounds}")
    for name, measured in runs.items():
        seconds = statistics.median(second for second, _ in measured)
        peak = max(mib for _, mib in measured)
        print(f"{name:20} {seconds:8.2f} s {nbytes / 2**20 / seconds:8.0f} MiB/s {peak:8,} MiB")


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=float, default=4.0, help="GiB of the checkpoint")
    parser.add_argument("--folder", type=Path, help="where to write [default: the system's]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--comfyui-gguf", type=Path, help="a checkout of ComfyUI-GGUF")
    parser.add_argument("--python", help="the Python that runs its script")
    parser.add_argument("--llama-quantize", help="that program with its patch")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        measure(Path(scratch), options)


if __name__ == "__main__":
    main()
