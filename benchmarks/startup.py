"""Measure the start of commands that only look at a model, and the modules that cost most.

    python benchmarks/startup.py [--repeats N] [--modules N] [MODEL]

Each command has a budget. Times are the least of all runs, because other work only adds to them.
Processor time is user and system time of the command and the processes that it starts. The time of
a module is its own, without the modules that it imports. Bytecode is compiled once, before the
runs, as pip does it. The exit code is 1 if a command takes more processor time than its budget.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import real

BUDGETS = {"inspect": 0.15, "check": 0.30, "plan": 0.25, "estimate": 0.20}  # seconds of a processor
_ROW = re.compile(r"import time: +(\d+) \| +\d+ \| *(\S+)")  # of `python -X importtime`


def run(command: list[str], *options: str) -> tuple[float, float, str]:
    """Return processor time, wall time and standard error of a run of ggufkit."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, *options, "-m", "ggufkit", *command],
        check=False,  # check exits with 1 if it finds errors
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return busy, wall, done.stderr


def module_times(command: list[str], repeats: int) -> dict[str, int]:
    """Return the least time of each imported module, in microseconds."""
    times: dict[str, int] = {}
    for _ in range(repeats):
        for microseconds, module in _ROW.findall(run(command, "-X", "importtime")[2]):
            times[module] = min(int(microseconds), times.get(module, sys.maxsize))
    return times


def group(module: str) -> str:
    """Return the group of a module in the sums."""
    first = module.split(".", maxsplit=1)[0]
    return first if first in ("ggufkit", "numpy", "click") else "others"


def show(name: str, model: str, repeats: int, modules: int) -> bool:
    """Print the figures of one command; return whether it keeps its budget."""
    run([name, model])
    runs = [run([name, model]) for _ in range(repeats)]
    busy, budget = min(row[0] for row in runs), BUDGETS[name]
    print(
        f"{name}: {busy:.3f} s of a processor (median {statistics.median(r[0] for r in runs):.3f}),"
        f" {min(row[1] for row in runs):.3f} s by the clock;"
        f" {'over the' if busy > budget else 'within its'} budget of {budget:.2f} s"
    )
    times = module_times([name, model], min(repeats, 5))
    sums: dict[str, int] = {}
    for module, microseconds in times.items():
        sums[group(module)] = sums.get(group(module), 0) + microseconds
    print(f"  {len(times)} modules:", *(f"{k} {v / 1000:.1f} ms," for k, v in sums.items()))
    for module in sorted(times, key=lambda module: -times[module])[:modules]:
        print(f"  {times[module] / 1000:6.1f} ms  {module}")
    return busy <= budget


def main() -> None:
    """Measure every command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", help="the model to look at; SmolLM2 by default")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--modules", type=int, default=8, help="modules to list")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        model = options.model or str(real.smollm2())
        are_within = [show(name, model, options.repeats, options.modules) for name in BUDGETS]
    sys.exit(not all(are_within))


if __name__ == "__main__":
    main()
