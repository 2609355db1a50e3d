"""What ggml makes of arrays on some of which it aborts: each is encoded in a process of its own.

As a program: surviving.py LIBRARY TYPE CASES RESULTS, with arrays x0, w0, x1, ... in CASES.npz; the
weights may be missing. RESULTS.npz gets r0, r1, ... without those on which ggml aborted.
"""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import oracle
from ggufkit.format.types import TensorType, tensor_type
from oracle import Bytes, Floats

Weighted = tuple[Floats, Floats | None]


def encode(library: str, type: TensorType, cases: Sequence[Weighted]) -> list[Bytes | None]:
    """Return ggml's bytes of each array with its weights, None where ggml aborts."""
    arrays = {f"x{i}": x for i, (x, _) in enumerate(cases)}
    arrays |= {f"w{i}": w for i, (_, w) in enumerate(cases) if w is not None}
    with tempfile.TemporaryDirectory() as folder:
        cases_path, results_path = Path(folder, "cases.npz"), Path(folder, "results.npz")
        np.savez(cases_path, **arrays)
        paths = os.pathsep.join(path for path in sys.path if path)
        environment = os.environ | {"GGML_NO_BACKTRACE": "1", "PYTHONPATH": paths}
        command = [sys.executable, __file__, library, type.name, str(cases_path), str(results_path)]
        subprocess.run(command, check=True, env=environment, stderr=subprocess.DEVNULL)
        with np.load(results_path) as results:
            return [results.get(f"r{i}") for i in range(len(cases))]


def encode_apart(library: str, type: TensorType, x: Floats, weights: Floats | None) -> Bytes | None:
    """Encode in a child process; return None if that aborts."""
    shape = (len(x), type.row_bytes(x.shape[1]))
    shared = mmap.mmap(-1, shape[0] * shape[1])
    child = os.fork()
    if child == 0:
        shared[:] = oracle.encode(library, x, type, weights).tobytes()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGABRT:
        return None
    if status:
        raise ChildProcessError(f"ggml's encoder ended with status {status}")
    return np.frombuffer(shared[:], np.uint8).reshape(shape)


def main(library: str, name: str, cases_path: str, results_path: str) -> None:
    """Encode all cases of a file."""
    kind = tensor_type(name)
    oracle.LIBRARIES[library]().ggml_quantize_init(kind.id)  # once, not in every child
    with np.load(cases_path) as cases:
        count = sum(key.startswith("x") for key in cases)
        pairs = [(cases[f"x{i}"], cases.get(f"w{i}")) for i in range(count)]
    blocks = {f"r{i}": encode_apart(library, kind, *pair) for i, pair in enumerate(pairs)}
    np.savez(results_path, **{key: value for key, value in blocks.items() if value is not None})


if __name__ == "__main__":
    main(*sys.argv[1:])
