"""Compare opening time, memory and import cost with ggml's C reader and gguf-py.

    python benchmarks/open.py [--repeats N]

Each reader opens each model in a separate process, so that memory is comparable. Opening
includes every tensor's name, shape, type and offset. The page cache is warm for all of them.
Memory is the growth of anonymous memory, without the pages of mapped files.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import real

TOKENS = "tokenizer.ggml.tokens"
SLOW = 3  # repeats are enough if one takes seconds


class InitParameters(ctypes.Structure):
    """gguf.h's gguf_init_params, passed by value."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("context", ctypes.c_void_p))


def ggufkit_reader() -> tuple[Callable[[str], Any], Callable[[Any], Any]]:
    """Return how to open and how to close with ggufkit."""
    import ggufkit  # noqa: PLC0415 (each process imports the reader it measures, no other)

    def open_model(path: str) -> Any:  # noqa: ANN401
        model = ggufkit.open(path)
        for tensor in model.tensors.values():
            _ = tensor.name, tensor.shape, tensor.type, tensor.offset
        return model

    return open_model, lambda model: model.close()


def gguf_py_reader() -> tuple[Callable[[str], Any], Callable[[Any], Any]]:
    """Return how to open and how to close with the official Python reader."""
    import gguf  # noqa: PLC0415

    return gguf.GGUFReader, lambda _: None


def ggml_reader(library: ctypes.CDLL) -> tuple[Callable[[str], Any], Callable[[Any], Any]]:
    """Return how to open and how to close with ggml; `library` is a build of it."""
    initialize, free = library.gguf_init_from_file, library.gguf_free
    initialize.restype = ctypes.c_void_p
    initialize.argtypes = [ctypes.c_char_p, InitParameters]
    free.argtypes = [ctypes.c_void_p]
    return lambda path: initialize(path.encode(), InitParameters(no_alloc=True)), free


READERS = {
    "ggufkit": ggufkit_reader,
    "ggml": lambda: ggml_reader(real.ggml()),
    "llama.cpp": lambda: ggml_reader(real.llama_cpp()),
    "gguf-py": gguf_py_reader,
}


def ggufkit_tokens(model: Any) -> list[str]:  # noqa: ANN401
    """Return all tokens as str."""
    return model.metadata[TOKENS].tolist()


def gguf_py_tokens(reader: Any) -> list[str]:  # noqa: ANN401
    """Return all tokens as str."""
    return reader.fields[TOKENS].contents()


TOKEN_LISTS = {"ggufkit": ggufkit_tokens, "gguf-py": gguf_py_tokens}


def anonymous_bytes() -> int:
    """Return this process's anonymous memory (Linux; elsewhere 0)."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    line = next(line for line in status.read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


def seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds of a call, and its result."""
    begin = time.perf_counter()
    result = function()
    return time.perf_counter() - begin, result


def measure(name: str, path: str, small: str, repeats: int) -> dict[str, float]:
    """Measure one reader on one model; open `small` first, so that all imports are done."""
    opener, closer = READERS[name]()
    closer(opener(small))
    before = anonymous_bytes()
    first, opened = seconds(lambda: opener(path))
    figures = {"memory": anonymous_bytes() - before}
    if name in TOKEN_LISTS:
        figures["tokens"] = median(lambda: TOKEN_LISTS[name](opened), repeats)
    closer(opened)

    def again() -> None:
        closer(opener(path))

    figures["open"] = median(again, repeats) if first < 1 else median(again, SLOW)
    return figures


def median(function: Callable[[], Any], repeats: int) -> float:
    """Return the median duration of calls."""
    return statistics.median(seconds(function)[0] for _ in range(repeats))


def in_own_process(*arguments: str) -> dict[str, float]:
    """Run `measure` in a fresh process."""
    command = [sys.executable, __file__, "--measure", *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def print_model(path: Path, small: Path, repeats: int) -> None:
    """Print a table: one row per reader, ratios to ggufkit."""
    print(f"\n{path.name}")
    print(f"  {'':10} {'open':>11} {'ratio':>7} {'memory':>11} {'tokens':>11}")
    figures = {n: in_own_process(n, str(path), str(small), str(repeats)) for n in READERS}
    own = figures["ggufkit"]["open"]
    for name, row in figures.items():
        tokens = f"{row['tokens'] * 1e3:8.1f} ms" if "tokens" in row else ""
        ratio, memory = row["open"] / own, row["memory"] / 1e6
        line = f"{row['open'] * 1e3:8.2f} ms {ratio:6.1f}x {memory:8.2f} MB {tokens:>11}"
        print(f"  {name:10} {line}".rstrip())


def print_imports(repeats: int) -> None:
    """Print the cost of import and start, without that of the interpreter."""
    cases = {
        "import numpy": "import numpy",
        "import ggufkit": "import ggufkit",
        "first ggufkit.open": "import ggufkit; ggufkit.open",
        "ggufkit --version": "import sys; sys.argv[1:] = ['--version']\n"
        "from ggufkit.cli import main\ntry: main()\nexcept SystemExit: pass",
    }
    times: dict[str, list[float]] = {case: [] for case in ("pass", *cases)}
    for _ in range(repeats):  # in turn, so that all share a busy moment
        for case, code in {"pass": "pass", **cases}.items():
            command = [sys.executable, "-c", code]
            times[case].append(
                seconds(lambda c=command: subprocess.run(c, check=True, capture_output=True))[0]
            )
    start = statistics.median(times["pass"])
    numpy = statistics.median(times["import numpy"]) - start
    print("\nimport, beyond the interpreter's own start")
    for case in cases:
        cost = statistics.median(times[case]) - start
        print(f"  {case:20} {cost * 1e3:7.1f} ms {cost / numpy:6.2f}x numpy")


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description="Compare opening with ggml and gguf-py.")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        name, path, small, repeats = arguments.measure
        print(json.dumps(measure(name, path, small, int(repeats))))
        return
    small = min(real.vocabularies(), key=lambda path: path.stat().st_size)
    for model in (real.smollm2(), real.gemma3()):
        print_model(model, small, arguments.repeats)
    print_imports(arguments.repeats)


if __name__ == "__main__":
    main()
