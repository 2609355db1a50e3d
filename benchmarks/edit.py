"""Compare editing a large file's chat template in place with gguf-py's gguf_new_metadata.

    python benchmarks/edit.py [--folder FOLDER] [--gigabytes 20] [--peer-gigabytes 2]

The files are sparse: Gemma's vocabulary, and tensors of zeros that use no disk space. ggufkit edits
a file of the full size three times: with a template of the same length, which is patched; with a
longer one, which moves the data; and once more, to undo that. gguf-py writes a whole new file,
which is not sparse: its time for the full size is extrapolated from two smaller ones. Each edit is
a separate process, including Python's start, and ends when the file is synced to disk.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import numpy as np

import ggufkit
import real
from ggufkit.format.types import tensor_type
from ggufkit.models.model import Tensor
from ggufkit.output.layout import layout

TENSOR_BYTES = 1 << 28
ROW_BYTES = 8192
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}\n" * 60


@dataclass(frozen=True)
class Hole:
    """Rows of zeros that need not be written."""

    byte_order = "little"
    span = None

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return the rows."""
        return np.zeros((stop - start, ROW_BYTES), np.uint8)


def make(path: Path, nbytes: int) -> None:
    """Write Gemma's header with other tensors, and leave a hole for their data."""
    count = nbytes // TENSOR_BYTES
    shape = (TENSOR_BYTES // ROW_BYTES, ROW_BYTES // 2)
    tensors = [Tensor.over(f"hole.{i}", tensor_type("F16"), shape, Hole()) for i in range(count)]
    with ggufkit.open(real.gemma3()) as gemma:
        model = ggufkit.edit(gemma.replace(tensors=tensors), chat_template=TEMPLATE, force=True)
        planned = layout(model, path.name).files[0]
    with path.open("wb") as file:
        file.write(planned.head)
        file.truncate(planned.nbytes)


def seconds(command: Sequence[str]) -> float:
    """Return the seconds of a command, until its output is synced to disk."""
    os.sync()
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.sync()
    return time.perf_counter() - begin


def edit(path: Path, *arguments: str) -> float:
    """Return the seconds that ggufkit takes for an edit."""
    return seconds([sys.executable, "-m", "ggufkit", "edit", str(path), *arguments])


def peer(path: Path, template: str) -> float:
    """Return the seconds that gguf-py takes to write a new file with another template."""
    module, out = "gguf.scripts.gguf_new_metadata", path.with_name("out.gguf")
    command = [sys.executable, "-m", module, "--force", "--chat-template", template]
    took = seconds([*command, str(path), str(out)])
    out.unlink()
    return took


def measured(
    folder: Path, gigabytes: int, peers: Sequence[int]
) -> Iterator[tuple[str, int, float]]:
    """Yield the work, the size of the file in GB, and the seconds."""
    path = folder / "model.gguf"
    make(path, gigabytes * 10**9)
    same, longer = folder / "same.jinja", folder / "longer.jinja"
    same.write_text(TEMPLATE.upper(), encoding="utf-8")
    longer.write_text(TEMPLATE * 3, encoding="utf-8")
    size = path.stat().st_size
    yield "patched", gigabytes, edit(path, "--chat-template", str(same))
    yield "data moved", gigabytes, edit(path, "--chat-template", str(longer))
    if path.stat().st_size == size:
        raise SystemExit("the longer template did not move the data")
    yield "undone", gigabytes, edit(path, "--undo")
    for smaller in peers:
        make(path, smaller * 10**9)
        yield "gguf_new_metadata", smaller, peer(path, "short")


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--gigabytes", type=int, default=20)
    parser.add_argument("--peers", type=int, nargs=2, default=(1, 3), metavar="GB")
    options = parser.parse_args()
    print("edit of a chat template      file   seconds")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        rows = []
        for row in measured(Path(folder), options.gigabytes, options.peers):
            rows.append(row)
            print("{:<26}{:>4} GB{:>10.2f}".format(*row), flush=True)
    (_, small, fast), (_, large, slow) = rows[-2:]
    reckoned = slow + (slow - fast) / (large - small) * (options.gigabytes - large)
    print(f"{'gguf_new_metadata, reckoned':<26}{options.gigabytes:>3} GB{reckoned:>10.2f}")


if __name__ == "__main__":
    main()
