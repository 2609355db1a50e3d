"""Open files far larger than any model: time and memory must follow the header's size.

    python benchmarks/scale.py [FOLDER]

Makes each file in turn in a folder (a temporary one if none is given), opens it in a separate
process, and prints seconds of processor time to check it, to open it, to summarize it as `inspect`
does, to plan a copy, and to decide how to quantize it, with the memory after checking and opening
and after all, minus that for a file of one tensor. The files are sparse: each uses only the disk
space of its header.
"""

from __future__ import annotations

import json
import re
import resource
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import ggufkit
from ggufkit.inspection.summary import summarize
from ggufkit.output.layout import layout
from ggufkit.quantization.quantize import decide

TENSORS, TOKENS, SPARSE = 1_000_000, 2_000_000, 1 << 40
STACKS, EXPERTS, STACK_BYTES = 20_000, 1_000, 1000 * 32 * 1024 * 2
# A set of shards has two descriptors for each.
SHARDS = min(10_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1] // 2 - 1000)
F32, F16, STRING, ARRAY = 0, 1, 8, 9
STEPS = ("check", "open", "inspect", "plan", "quantize")


def text(value: bytes) -> bytes:
    """Return a string with its length."""
    return struct.pack("<Q", len(value)) + value


def header(tensors: int, pairs: list[bytes]) -> bytes:
    """Return the bytes before the tensor infos."""
    architecture = text(b"general.architecture") + struct.pack("<I", STRING) + text(b"llama")
    counts = struct.pack("<4sIQQ", b"GGUF", 3, tensors, 1 + len(pairs))
    return b"".join((counts, architecture, *pairs))


def write(path: Path, head: bytes, data_bytes: int) -> Path:
    """Write a header, and data that takes no space on the disk."""
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + -len(head) % 32 + data_bytes)
    return path


def info(name: bytes, dims: tuple[int, ...], offset: int, kind: int = F32) -> bytes:
    """Return the info of a tensor."""
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def of_tensors(folder: Path, count: int = TENSORS) -> Path:
    """Make a file of many small tensors."""
    infos = (info(b"blk.%d.%d.weight" % divmod(n, 10), (32, 2), 256 * n) for n in range(count))
    head = b"".join((header(count, []), *infos))
    return write(folder / "tensors.gguf", head, 256 * count)


def of_tokens(folder: Path) -> Path:
    """Make a file of a large vocabulary."""
    tokens = b"".join(text(b"token %d" % n) for n in range(TOKENS))
    pair = text(b"tokenizer.ggml.tokens") + struct.pack("<IIQ", ARRAY, STRING, TOKENS) + tokens
    return write(folder / "tokens.gguf", header(0, [pair]), 0)


def sparse(folder: Path) -> Path:
    """Make a file of huge tensors."""
    nbytes = SPARSE // 1024
    infos = (info(b"blk.%d.weight" % n, (nbytes // 4,), n * nbytes) for n in range(1024))
    return write(folder / "sparse.gguf", b"".join((header(1024, []), *infos)), SPARSE)


def of_stacks(folder: Path) -> Path:
    """Make a file of stacks of experts, of 1.3 TB."""
    dims = (1024, 32, EXPERTS)
    infos = (
        info(b"blk.%d.ffn_up_exps.weight" % n, dims, n * STACK_BYTES, F16) for n in range(STACKS)
    )
    head = b"".join((header(STACKS, []), *infos))
    return write(folder / "stacks.gguf", head, STACKS * STACK_BYTES)


def of_shards(folder: Path) -> Path:
    """Make a set of many shards."""
    for number in range(SHARDS):
        pairs = [
            text(b"split.no") + struct.pack("<IH", 2, number),
            text(b"split.count") + struct.pack("<IH", 2, SHARDS),
            text(b"split.tensors.count") + struct.pack("<Ii", 5, SHARDS),
        ]
        head = header(1, pairs) + info(b"blk.%d.weight" % number, (8,), 0)
        write(folder / f"set-{number + 1:05d}-of-{SHARDS:05d}.gguf", head, 32)
    return folder / f"set-00001-of-{SHARDS:05d}.gguf"


def small(folder: Path) -> Path:
    """Make a file of one tensor, to compare the others with."""
    return of_tensors(folder, 1)


CASES: dict[str, Callable[[Path], Path]] = {
    "one tensor": small,
    f"{TENSORS:,} tensors": of_tensors,
    f"{TOKENS:,} tokens": of_tokens,
    "1 TiB, sparse": sparse,
    f"{STACKS:,} stacks, 1.3 TB": of_stacks,
    f"{SHARDS:,} shards": of_shards,
}


def spent(act: Callable[[], object]) -> float:
    """Return the seconds of processor time that `act` takes."""
    begin = time.process_time()
    act()
    return time.process_time() - begin


def peak() -> float:
    """Return the peak memory of this process so far, in MiB."""
    match = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    if match is None:
        raise SystemExit("needs /proc of Linux")
    return int(match[1]) / 1024


def measure(path: str) -> dict[str, float]:
    """Measure in this process, which must be a new one."""
    figures = {"check": spent(lambda: ggufkit.check(path))}
    figures["open"] = spent(lambda: ggufkit.open(path).close())
    figures["opened"] = peak()
    model = ggufkit.open(path)
    figures["inspect"] = spent(lambda: summarize(model))
    figures["plan"] = spent(lambda: layout(model, "out.gguf"))
    figures["quantize"] = spent(lambda: decide(model, "Q8_0"))
    figures["all"] = peak()
    return figures


def results(folder: Path) -> Iterator[tuple[str, int, dict[str, float]]]:
    """Yield name, bytes of the header and measurements of each case."""
    for name, make in CASES.items():
        place = folder / name.replace(" ", "-").replace(",", "")
        place.mkdir()
        path = make(place)
        with ggufkit.open(path) as model:
            head = sum(file.data_offset for file in model.files)
        command = [sys.executable, __file__, "--measure", str(path)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        yield name, head, json.loads(done.stdout)


def main(folder: Path) -> None:
    """Print the table."""
    columns = ("header", *STEPS, "opened", "all")
    print(f"{'':<22}" + "".join(f"{column:>9}" for column in columns))
    floor = None
    for name, head, figures in results(folder):
        floor = floor or figures
        times = "".join(f"{figures[key]:>8.2f}s" for key in STEPS)
        memory = "".join(f"{figures[key] - floor[key]:>6.0f}MiB" for key in ("opened", "all"))
        print(f"{name:<22}{head / 2**20:>6.1f}MiB{times}{memory}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(sys.argv[2])))
    elif sys.argv[1:]:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
