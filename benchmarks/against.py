"""Compare this commit with another one, job by job, and say what became slower.

    python benchmarks/against.py COMMIT [--rounds N] [--jobs WORD] [--folder FOLDER]

Each commit is built once, into its own folder below `.cache/against`. Then both run the same jobs
in turn: starting, reading headers, quantizing and copying a model of 1.2 GiB. A job is a process,
measured from its start to its end. The output is the best and the median wall time of both, the
median of the ratios of neighbouring runs, and the same of processor time. A job is slower if the
best time, the median time and the median ratio all grew by more than 3 %, and by more than half of
the spread of the other commit's times. The exit code is 1 if a job became slower.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
BUILDS = ROOT / ".cache" / "against"
LEAST = 1.03  # a smaller change is noise
JOBS = {
    "start": ("--version",),
    "help": ("quantize", "--help"),
    "inspect": ("inspect", "{real}", "--no-tensors"),
    "check": ("check", "{real}"),
    "plan": ("plan", "{real}"),
    "estimate": ("estimate", "{real}"),
    "copy": ("copy", "{model}", "{out}"),
    "hash": ("hash", "{model}"),
    "quantize Q8_0": ("quantize", "{model}", "{out}", "Q8_0"),
    "quantize Q4_0": ("quantize", "{model}", "{out}", "Q4_0"),
    "quantize Q4_K_M": ("quantize", "{model}", "{out}", "Q4_K_M"),
    "quantize IQ4_XS": ("quantize", "{model}", "{out}", "IQ4_XS"),
}


class Cost(NamedTuple):
    """Seconds of one run, by the clock and of the processor."""

    wall: float
    processor: float


def built(commit: str) -> Path:
    """Return the folder with a commit's package, which is compiled if it is not there."""
    name = _output("git", "rev-parse", f"{commit}^{{commit}}")
    package, sources = BUILDS / name, BUILDS / f"{name}-sources"
    if package.is_dir():
        return package
    print(f"building {commit} ({name[:9]})", file=sys.stderr)
    _output("git", "worktree", "add", "--force", "--detach", str(sources), name)
    try:
        _output(sys.executable, "tools/build_wheel.py", "dist", cwd=sources)
        (wheel,) = (sources / "dist").glob("*.whl")
        unfinished = BUILDS / f"{name}-unfinished"
        _output(
            sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade",
            "--target", str(unfinished), str(wheel),
        )  # fmt: skip
        unfinished.rename(package)
    finally:
        _output("git", "worktree", "remove", "--force", str(sources))
    return package


def _output(*command: str, cwd: Path = ROOT) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # of CMake and Ninja
    done = subprocess.run(
        command,
        cwd=cwd,
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"PATH": path},
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def run(package: Path, arguments: list[str], out: Path) -> Cost:
    """Run one job of one commit."""
    out.unlink(missing_ok=True)
    begin = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "ggufkit", *arguments],
        env=os.environ | {"PYTHONPATH": str(package)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=out.parent,
    ) as process:
        message = process.stderr.read() if process.stderr else b""
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"ggufkit {' '.join(arguments)} failed with {package}:\n{message.decode()}")
    return Cost(wall, usage.ru_utime + usage.ru_stime)


def compare(
    packages: tuple[Path, Path], arguments: list[str], out: Path, rounds: int
) -> tuple[list[Cost], list[Cost]]:
    """Run a job of both commits in turn, after one run each that does not count."""
    for package in packages:
        run(package, arguments, out)
    costs: tuple[list[Cost], list[Cost]] = ([], [])
    for number in range(rounds):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        for side in order:
            costs[side].append(run(packages[side], arguments, out))
    return costs


def is_slower(before: list[float], after: list[float]) -> bool:
    """Whether the best time, the median and the median ratio grew by more than the noise."""
    ratios = [new / old for old, new in zip(before, after, strict=True)]
    spread = (statistics.median(before) - min(before)) / min(before)
    limit = max(LEAST, 1 + spread / 2)
    grown = (
        min(after) / min(before),
        statistics.median(after) / statistics.median(before),
        statistics.median(ratios),
    )
    return min(grown) > limit


def report(name: str, before: list[Cost], after: list[Cost]) -> bool:
    """Print one line; return whether the job became slower."""
    columns, slower = [], False
    for index in range(len(Cost._fields)):
        old, new = ([cost[index] for cost in costs] for costs in (before, after))
        ratio = statistics.median(b / a for a, b in zip(old, new, strict=True))
        columns += [min(old), min(new), statistics.median(old), statistics.median(new), ratio]
        slower = slower or is_slower(old, new)
    text = " ".join(f"{number:8.3f}" for number in columns)
    print(f"{name:16} {text}  {'SLOWER' if slower else ''}".rstrip(), flush=True)
    return slower


def main() -> int:
    """Build both commits, and compare all jobs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("commit", help="the commit to compare with, such as a tag")
    parser.add_argument("--rounds", type=int, default=9, help="runs of each job and commit")
    parser.add_argument("--jobs", default="", help="only jobs whose name contains this")
    parser.add_argument("--folder", type=Path, help="where the model of 1.2 GiB is kept")
    options = parser.parse_args()
    packages = built(options.commit), built("HEAD")
    sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests" / "support")]
    import quantize  # noqa: PLC0415 (the benchmark next to this one)

    import real  # noqa: PLC0415 (of the tests)

    folder = options.folder or Path(tempfile.gettempdir()) / "ggufkit-against"
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / "model.gguf"
    if not model.exists():
        quantize.make_model(model)
    paths = {"real": real.smollm2(), "model": model, "out": folder / "out.gguf"}
    print(f"load {os.getloadavg()[0]:.1f}; {options.rounds} rounds; seconds before and now")
    heads = ("best", "best now", "median", "med. now", "ratio")
    print(f"{'':16} {'wall time':^44} {'processor time':^44}")
    print(f"{'':16} {' '.join(f'{head:>8}' for head in heads * 2)}")
    slower = False
    for name, arguments in JOBS.items():
        if options.jobs in name:
            texts = [text.format(**paths) for text in arguments]
            slower |= report(name, *compare(packages, texts, paths["out"], options.rounds))
    paths["out"].unlink(missing_ok=True)
    return int(slower)


if __name__ == "__main__":
    sys.exit(main())
