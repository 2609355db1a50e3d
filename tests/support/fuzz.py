"""Fuzz every reader of untrusted bytes, guided by coverage: it may raise only typed errors.

    python tests/support/fuzz.py [--jobs N] SECONDS [TARGET...]

Runs each target for so many seconds, the native ones (`make fuzz` builds them) under sanitizers,
the others in atheris; N of them at a time. It begins with `fuzzing/seeds` and what earlier runs
left in `.cache/fuzz`. A finding is kept there; mended, it becomes a case in `forging` or a seed.
"""

from __future__ import annotations

import argparse
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SEEDS: Final = ROOT / "tests" / "support" / "fuzzing" / "seeds"
KEPT: Final = ROOT / ".cache" / "fuzz"
FINDINGS: Final = KEPT / "findings"
NATIVE: Final = ("scan", "kernels")
PYTHON: Final = (
    *("model", "imatrix", "safetensors", "pytorch", "legacy", "blocks", "names", "pieces"),
    *("tokenizer", "card", "template", "checkpoint", "journal", "hashes", "cache", "commands"),
    *("diffusion", "adapter", "results", "page", "compat", "hessian"),
)
SEEDS_OF: Final = {"scan": "model"}  # where it is not the target's own name
# Where slowness shows.
SIZES: Final = {
    "checkpoint": 1 << 15,
    "hashes": 1 << 16,
    "names": 1 << 16,
    "commands": 1 << 14,
    "diffusion": 1 << 15,
}
LIMITS: Final = ("-timeout=60", "-rss_limit_mb=3072", "-print_final_stats=1")
REPORTED: Final = 4000  # characters of a report
_COVERED: Final = re.compile(r"cov: (\d+) ft: (\d+)")


def main(*arguments: str) -> int:
    """Run targets, each in a process of its own; return how many had a finding."""
    options = _options(arguments)
    names = options.targets or [*NATIVE, *PYTHON]
    with ThreadPoolExecutor(options.jobs) as pool:
        codes = list(pool.map(lambda name: run(name, options.seconds), names))
    failed = [name for name, code in zip(names, codes, strict=True) if code]
    sys.stdout.write(f"found something: {', '.join(failed) or 'nothing'}\n")
    return len(failed)


def _options(arguments: tuple[str, ...]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fuzz.py")
    parser.add_argument("seconds", type=int)
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args(arguments)
    unknown = {*options.targets} - {*NATIVE, *PYTHON}
    if unknown:
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    if options.seconds < 1 or options.jobs < 1:
        parser.error("seconds and jobs are 1 at least")
    return options


def program_of(name: str) -> list[str]:
    """Return the command that is one target; `make fuzz` makes what it needs."""
    if name in PYTHON:
        return [sys.executable, __file__, "--one", name]
    program = ROOT / "build" / "fuzz" / f"fuzz_{name}"
    if not program.exists():
        sys.exit("there are no native targets yet: run make fuzz, which builds them")
    return [str(program)]


def run(name: str, seconds: int) -> int:
    """Run one target for its time; return its exit code, and say what it was."""
    corpus = KEPT / "corpus" / name
    for folder in (corpus, FINDINGS):
        folder.mkdir(parents=True, exist_ok=True)
    program = program_of(name)
    limits = [*LIMITS, f"-max_len={SIZES.get(name, 1 << 13)}", f"-max_total_time={seconds}"]
    places = [f"-artifact_prefix={FINDINGS / name}-", corpus, SEEDS / SEEDS_OF.get(name, name)]
    done = subprocess.run(
        [*program, *limits, *places],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    sys.stdout.write(f"{name}: {_summary(done.stderr)}, {_result(program, done)}\n")
    sys.stdout.flush()
    return done.returncode


def _summary(report: str) -> str:
    """Return how much was tried, and what of the code it reached at the beginning and the end."""
    match = re.search(r"executed_units: *(\d+)", report)
    covered = _COVERED.findall(report) or [("0", "0")]
    (first, _), (last, features) = covered[0], covered[-1]
    return f"{match[1] if match else 0} inputs, coverage {first} to {last}, {features} features"


def _result(program: list[str], done: subprocess.CompletedProcess[str]) -> str:
    if not done.returncode:
        return "nothing found"
    again = shlex.join(program)
    report = re.sub(r"(?m)^(?:INFO|#\d+).*\n", "", done.stderr)
    return f"FOUND; again: {again} FILE of {FINDINGS}\n{report[-REPORTED:]}"


def one(name: str, *arguments: str) -> None:
    """Be the process of one Python target."""
    sys.path.insert(0, str(KEPT / "tools"))
    import atheris

    with atheris.instrument_imports(include=["ggufkit", "jinja2"]):
        import numpy as np

        from fuzzing.changing import CHANGES
        from fuzzing.targets import attempt

    def changed(data: bytes, most: int, seed: int) -> bytes:
        draw = random.Random(seed)
        changed_data = CHANGES[name](data, draw) if draw.random() < 0.8 else None
        return (
            changed_data
            if changed_data and len(changed_data) <= most
            else atheris.Mutate(data, most)
        )

    np.seterr(all="ignore")
    folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir=_fast_place()))
    known = {"custom_mutator": changed} if name in CHANGES else {}
    atheris.Setup([name, *arguments], lambda data: attempt(name, data, folder), **known)
    try:
        atheris.Fuzz()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fast_place() -> str | None:
    """Return a folder in memory, where there is one."""
    place = Path("/dev/shm")  # noqa: S108 (mkdtemp makes the folder in it)
    return str(place) if place.is_dir() else None


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(*sys.argv[2:])
    else:
        sys.exit(main(*sys.argv[1:]) > 0)
