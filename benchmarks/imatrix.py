"""What `imatrix compute` and `eval` cost beyond llama.cpp's own work, on one thread.

    python benchmarks/imatrix.py [ROUNDS]

No package ships llama-imatrix or llama-perplexity, so the peers are calls of the same llama.cpp: it
computes the same tokens while nothing watches it, or stops at each matrix where llama-imatrix
stops, without sums. All take turns; the figures are medians of the processor time.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
import real
from ggufkit.evaluation.base_file import temporary_base
from ggufkit.evaluation.passes import _writing
from ggufkit.evaluation.reading import TextReader, comparing_with
from ggufkit.imatrix.collector import PRODUCTS, Collector
from ggufkit.llama_cpp.library import GraphTensor, library
from ggufkit.llama_cpp.session import Session

CONTEXT: Final = 512
TEXT_BYTES: Final = 100_000
Work = dict[str, Callable[[], object]]


def stop(node: GraphTensor, asks: bool) -> bool:  # noqa: FBT001 (as Watcher has it)
    """Stop where llama-imatrix stops, and add up nothing."""
    operation = library().functions.ggml_op_name(node.op)
    return not asks or (operation in PRODUCTS and _is_of_a_layer(node))


def _is_of_a_layer(node: GraphTensor) -> bool:
    name: bytes = node.src[0].contents.name
    return name.startswith(b"blk.")


def computing(model: Path, text: bytes, opened: contextlib.ExitStack) -> Work:
    """Return what is compared of `imatrix compute`."""
    watchers = {
        "llama.cpp, nothing watches": None,
        "llama.cpp, stops as llama-imatrix": stop,
        "imatrix compute": Collector(library(), process_output=False),
    }
    work: Work = {}
    for name, watcher in watchers.items():
        options = {"length": CONTEXT, "batch": CONTEXT, "threads": 1}
        session = opened.enter_context(Session(model, **options, watcher=watcher))
        work[name] = partial(_compute, session, session.tokenize(text)[:CONTEXT])
    return work


def _compute(session: Session, chunk: Sequence[int]) -> None:
    session.clear()
    session.decode([chunk])


def measuring(model: Path, text: bytes, opened: contextlib.ExitStack) -> Work:
    """Return what is compared of `eval`."""
    reader = opened.enter_context(TextReader(model, CONTEXT, micro_batch=CONTEXT, threads=1))
    tokens = reader.tokenize(text, 1)
    base = temporary_base(tokens, reader.session.vocabulary_size, opened)
    meters = {
        "llama.cpp, logits unread": lambda _: (0.0,),
        "eval, the base": _writing(base),
        "eval, a model": comparing_with(base),
    }
    return {
        name: lambda meter=meter: list(reader.read(tokens, meter)) for name, meter in meters.items()
    }


def main(rounds: int) -> None:
    """Print a table for two models: one with a small and one with a large vocabulary."""
    files = sorted(real.manuals().rglob("*.md"))
    text = b"\n".join(path.read_bytes() for path in files)[:TEXT_BYTES]
    for model in (real.smollm2(), real.gemma3()):
        print(f"{model.name}, {CONTEXT} tokens, one thread")
        for compared in (computing, measuring):
            with contextlib.ExitStack() as opened:
                work = compared(model, text, opened)
                times: dict[str, list[float]] = {name: [] for name in work}
                for name in [*work] * rounds:
                    start = time.process_time()
                    work[name]()
                    times[name].append(time.process_time() - start)
            floor = None
            for name, seconds in times.items():
                median = statistics.median(seconds)
                floor = floor or median
                print(f"  {name:<36}{median:7.2f} s {median / floor:6.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
