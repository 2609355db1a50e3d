"""Compare gguf-py with and without `ggufkit.compat.install()`: open, read tokens, decode.

    python benchmarks/compat.py [--transformers PYTHON FOLDER]

Each run is a process of its own; the page cache is warm. With `--transformers` it also measures
`from_pretrained(gguf_file=...)`: PYTHON is an interpreter that has torch, transformers, gguf and
ggufkit, and FOLDER gets a link to the model.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))
real = importlib.import_module("real")

GGUF_PY = """
import json, sys, time
if sys.argv[2] == "ggufkit":
    import ggufkit.compat
    ggufkit.compat.install()
import gguf
times = {}
def timed(name, function):
    begin = time.perf_counter()
    result = function()
    times[name] = time.perf_counter() - begin
    return result
reader = timed("open", lambda: gguf.GGUFReader(sys.argv[1]))
timed("tokens", lambda: reader.fields["tokenizer.ggml.tokens"].contents())
timed("decode", lambda: [gguf.dequantize(t.data, t.tensor_type).shape for t in reader.tensors])
print(json.dumps(times))
"""
TRANSFORMERS = """
import json, sys, time
if sys.argv[2] == "ggufkit":
    import ggufkit.compat
    ggufkit.compat.install()
import torch
from pathlib import Path
from transformers import AutoModelForCausalLM
path = Path(sys.argv[1])
begin = time.perf_counter()
model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name)
print(json.dumps({"from_pretrained": time.perf_counter() - begin}))
"""


def measured(python: str, program: str, path: Path, how: str) -> dict[str, float]:
    """Return the seconds of each step in a process of its own."""
    command = [python, "-c", program, str(path), how]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def compare(title: str, python: str, program: str, path: Path) -> None:
    """Print the seconds of each step, without and with ggufkit."""
    before, after = (measured(python, program, path, how) for how in ("gguf-py", "ggufkit"))
    print(f"\n{title}\n  {'':16} {'gguf-py':>10} {'ggufkit':>10}")
    for step, took in before.items():
        print(f"  {step:16} {took:8.3f} s {after[step]:8.3f} s {took / after[step]:7.1f}x")


def main() -> None:
    """Measure both models, and transformers if asked."""
    parser = argparse.ArgumentParser(description="Compare gguf-py with and without ggufkit.")
    parser.add_argument("--transformers", nargs=2, metavar=("PYTHON", "FOLDER"))
    arguments = parser.parse_args()
    for path in (real.smollm2(), real.gemma3()):
        compare(path.name, sys.executable, GGUF_PY, path)
    if arguments.transformers:
        python, folder = arguments.transformers
        link = Path(folder) / "model.gguf"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(real.smollm2())
        compare(f"transformers, {real.smollm2().name}", python, TRANSFORMERS, link)


if __name__ == "__main__":
    main()
