"""Compare `ggufkit convert` with llama.cpp's converter and a plain copy of the checkpoint.

    python benchmarks/convert.py [--size GIB] [--folder FOLDER] [--rounds N] [--only WORK ...]

The checkpoint is synthetic, with Llama's shape and BF16 matrices. llama.cpp's converter runs in the
environment that `make test-oracle` makes, and is left out if that is missing. Times are medians of
the rounds, memory is the highest peak of the process. ggufkit waits until its output is on the
disk, as does "copy, synced"; the others do not.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))
import real  # noqa: E402 (of the tests)

ORACLE = Path(os.environ.get("GGUFKIT_ORACLE") or ROOT / ".cache" / "oracle")
HIDDEN, INNER = 4096, 11008
LAYER = {
    "input_layernorm.weight": (HIDDEN,),
    "mlp.down_proj.weight": (HIDDEN, INNER),
    "mlp.gate_proj.weight": (INNER, HIDDEN),
    "mlp.up_proj.weight": (INNER, HIDDEN),
    "post_attention_layernorm.weight": (HIDDEN,),
    "self_attn.k_proj.weight": (HIDDEN, HIDDEN),
    "self_attn.o_proj.weight": (HIDDEN, HIDDEN),
    "self_attn.q_proj.weight": (HIDDEN, HIDDEN),
    "self_attn.v_proj.weight": (HIDDEN, HIDDEN),
}
LAYER_BYTES = sum(2 * int(np.prod(shape)) for shape in LAYER.values())
OWN = (
    "import sys, ggufkit; "
    "ggufkit.write(ggufkit.convert(sys.argv[1], outtype=sys.argv[3], pre='gpt-2'), sys.argv[2])"
)
PEER = (
    "import logging, sys; source, folder, out, kind = sys.argv[1:]; "
    "sys.path[:0] = [source, source + '/gguf-py']; "
    "import convert_hf_to_gguf as converter; from conversion.base import TextModel; "
    "TextModel.get_vocab_base_pre = lambda *_: 'gpt-2'; "
    "sys.argv = ['convert', folder, '--outfile', out, '--outtype', kind]; converter.main()"
)


def make_checkpoint(folder: Path, gib: float) -> int:
    """Write the checkpoint and return its bytes; the tokenizer is that of a tiny case."""
    layers = max(1, round(gib * 2**30 / LAYER_BYTES))
    tiny = ORACLE / "checkpoints" / "llama"
    shutil.copytree(tiny, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    config = json.loads((tiny / "config.json").read_text())
    config |= {"hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": layers,
               "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 128,
               "tie_word_embeddings": True}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {
        f"model.layers.{i}.{name}": shape for i in range(layers) for name, shape in LAYER.items()
    }
    shapes |= {"model.embed_tokens.weight": (config["vocab_size"], HIDDEN),
               "model.norm.weight": (HIDDEN,)}  # fmt: skip
    return write_tensors(folder / "model.safetensors", shapes)


def write_tensors(path: Path, shapes: dict[str, tuple[int, ...]]) -> int:
    """Write random BF16 tensors and return the bytes of the file."""
    header, offset = {}, 0
    for name, shape in shapes.items():
        end = offset + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    largest = max(int(np.prod(shape)) for shape in shapes.values())
    floats = np.random.default_rng(0).normal(0, 0.05, largest).astype(np.float32)
    noise = (floats.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for shape in shapes.values():
            file.write(noise[: 2 * int(np.prod(shape))])
    return path.stat().st_size


def timed(command: list[str]) -> tuple[float, int]:
    """Run a command; return its seconds and the peak of its memory in MiB."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"failed: {' '.join(command)}")
    return time.perf_counter() - start, usage.ru_maxrss // 1024


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=float, default=4.0, help="GiB of the checkpoint")
    parser.add_argument("--folder", type=Path, help="where to write [default: the system's]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", metavar="WORK", help="as the table names them")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        measure(Path(scratch), options.size, options.rounds, options.only)


def measure(scratch: Path, gib: float, rounds: int, only: list[str] | None) -> None:
    """Make the checkpoint, run all works in turns, print the median of each."""
    folder, out = scratch / "checkpoint", scratch / "out.gguf"
    with ProcessPoolExecutor(1) as pool:  # a child's peak begins with its parent's memory
        nbytes = pool.submit(make_checkpoint, folder, gib).result()
    copied = f"cp {folder}/model.safetensors {out}"
    works = {"copy": ["sh", "-c", copied], "copy, synced": ["sh", "-c", f"{copied} && sync {out}"]}
    python = ORACLE / "venv" / "bin" / "python"
    source = str(real.llama_cpp_source()) if python.exists() else ""
    for kind in ("bf16", "f16", "q8_0"):
        works[f"ggufkit {kind}"] = [sys.executable, "-c", OWN, str(folder), str(out), kind]
        if source:
            peer = [str(python), "-c", PEER, source, str(folder), str(out), kind]
            works[f"llama.cpp {kind}"] = peer
    works = {name: work for name, work in works.items() if only is None or name in only}
    runs: dict[str, list[tuple[float, int]]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, command in works.items():
            out.unlink(missing_ok=True)
            runs[name].append(timed(command))
    print(f"{nbytes / 2**30:.2f} GiB, page {resource.getpagesize()} bytes, median of {rounds}")
    for name, measured in runs.items():
        seconds = statistics.median(second for second, _ in measured)
        peak = max(mib for _, mib in measured)
        rate = nbytes / 2**20 / seconds
        print(f"{name:16} {seconds:8.2f} s {rate:8.0f} MiB/s {peak:8,} MiB at the peak")


if __name__ == "__main__":
    main()
