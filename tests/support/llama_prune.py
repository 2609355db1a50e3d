"""Run llama-quantize to remove layers and copy everything else.

It runs in a process of its own: this file, run as a program.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import real
from llama_quantize import QuantizeParameters


def prune(source: Path, target: Path, layers: Sequence[int]) -> bool:
    """Run `llama-quantize --prune-layers` with a copy for a recipe; return whether it succeeded."""
    command = [sys.executable, __file__, str(source), str(target), *map(str, layers)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def main(source: str, target: str, *layers: str) -> int:
    """Prune here and now; return 0 for success."""
    library = ctypes.CDLL(str(real.libllama() / "libllama.so.0"))
    library.llama_model_quantize_default_params.restype = QuantizeParameters
    chosen = library.llama_model_quantize_default_params()
    numbers = (ctypes.c_int32 * (len(layers) + 1))(*map(int, layers), -1)
    chosen.only_copy = True
    chosen.prune_layers = ctypes.cast(numbers, dict(QuantizeParameters._fields_)["prune_layers"])
    failed: int = library.llama_model_quantize(
        source.encode(), target.encode(), ctypes.byref(chosen)
    )
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
