"""Compare loading GGUF files into PyTorch with gguf-py, transformers and diffusers.

    python benchmarks/loading.py [--repeats N] [--peers FOLDER]

Needs PyTorch and transformers: run it with the Python of `make test-oracle`, in
`.cache/oracle/venv`. The readers of the peers need gguf (and diffusers), which `--peers` finds if
`pip install --target FOLDER gguf diffusers accelerate` put them there.

Each measurement runs in a separate process, with the file in the page cache, and without the time
of imports. All give float32 in the processor's memory. The copy is that of the same bytes within
memory: no reader can be faster.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import real  # noqa: E402 (of the tests)

SLOW = 10  # seconds; one repeat of such a reader is enough


def ggufkit_tensors(_: Path) -> Callable[[Path], Any]:
    """Return how ggufkit loads a state dict."""
    import ggufkit.torch  # noqa: PLC0415 (each process imports the reader it measures, no other)

    return ggufkit.torch.load


def ggufkit_model(_: Path) -> Callable[[Path], Any]:
    """Return how ggufkit loads a model of transformers and its tokenizer."""
    import ggufkit.transformers  # noqa: PLC0415

    _import_llama()
    return ggufkit.transformers.load


def transformers_model(_: Path) -> Callable[[Path], Any]:
    """Return how transformers loads a model from a GGUF file, without its tokenizer."""
    transformers = _import_llama()

    def load(path: Path) -> Any:  # noqa: ANN401
        kind = transformers.AutoModelForCausalLM
        return kind.from_pretrained(path.parent, gguf_file=path.name)

    return load


def gguf_py_tensors(_: Path) -> Callable[[Path], Any]:
    """Return how gguf-py reads a file and decodes each tensor, for PyTorch."""
    import gguf  # noqa: PLC0415
    import torch  # noqa: PLC0415

    def load(path: Path) -> Any:  # noqa: ANN401
        return {
            tensor.name: torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).copy())
            for tensor in gguf.GGUFReader(path).tensors
        }

    return load


def diffusers_tensors(_: Path) -> Callable[[Path], Any]:
    """Return how diffusers reads a GGUF file, and decodes each tensor as its layers do."""
    from diffusers.models.model_loading_utils import load_gguf_checkpoint  # noqa: PLC0415
    from diffusers.quantizers.gguf.utils import (  # noqa: PLC0415
        GGUFParameter,
        dequantize_gguf_tensor,
    )

    def load(path: Path) -> Any:  # noqa: ANN401
        return {
            name: dequantize_gguf_tensor(value) if isinstance(value, GGUFParameter) else value
            for name, value in load_gguf_checkpoint(str(path)).items()
        }

    return load


def memory_copy(path: Path) -> Callable[[Path], Any]:
    """Return how the decoded bytes are copied into new memory."""
    import ggufkit.torch  # noqa: PLC0415

    tensors = ggufkit.torch.load(path)
    return lambda _: {name: tensor.clone() for name, tensor in tensors.items()}


def _import_llama() -> Any:  # noqa: ANN401 (a module)
    """Import what both ways to a model of transformers import while they load."""
    import transformers  # noqa: PLC0415

    transformers.logging.set_verbosity_error()
    _ = transformers.LlamaForCausalLM, transformers.Gemma3ForCausalLM
    return transformers


READERS = {
    "copy within memory": memory_copy,
    "ggufkit.torch.load": ggufkit_tensors,
    "gguf-py, decoded": gguf_py_tensors,
    "diffusers, decoded": diffusers_tensors,
    "ggufkit.transformers.load": ggufkit_model,
    "transformers from_pretrained": transformers_model,
}


def measure(reader: str, path: Path) -> dict[str, float]:
    """Load once, as a program does that has just started."""
    load = READERS[reader](path)
    start = time.perf_counter()
    loaded = load(path)
    seconds = time.perf_counter() - start
    del loaded
    return {"seconds": seconds, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def main() -> None:
    """Measure every reader on both models, in turns."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peers", type=Path, help="folder with gguf and diffusers")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peers:
        sys.path.append(str(options.peers))
    if options.measure:
        print(json.dumps(measure(options.measure[0], Path(options.measure[1]))))
        return
    for path in (real.smollm2(), real.gemma3()):
        compare(path, options)


def compare(path: Path, options: argparse.Namespace) -> None:
    """Print a row for each reader of one model."""
    measurements: dict[str, list[dict[str, float]]] = {}
    failed: dict[str, str] = {}
    for number in range(options.repeats):
        for reader in READERS:
            if reader in failed or (number and measurements[reader][0]["seconds"] > SLOW):
                continue
            command = [sys.executable, __file__, "--measure", reader, str(path)]
            command += ["--peers", str(options.peers)] if options.peers else []
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                failed[reader] = done.stderr.strip().splitlines()[-1]
            else:
                answer = json.loads(done.stdout.splitlines()[-1])
                measurements.setdefault(reader, []).append(answer)
    print(f"\n{path.name}")
    for reader in READERS:
        if reader in failed:
            print(f"  {reader:30} failed: {failed[reader]}")
            continue
        seconds = statistics.median(row["seconds"] for row in measurements[reader])
        peak = max(row["peak"] for row in measurements[reader])
        print(f"  {reader:30} {seconds:8.2f} s   peak {peak:6.0f} MiB")


if __name__ == "__main__":
    main()
