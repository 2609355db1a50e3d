"""Fuzz every reader of strangers' bytes, guided by coverage: only typed errors may come of it.

    python tests/fuzz.py SECONDS [TARGET...]

Runs each target for so many seconds, the native ones (`make fuzz` builds them) under sanitizers,
the others in atheris. It begins with `fuzzing/seeds` and what earlier runs left in `.cache/fuzz`.
A finding is kept there; mended, it becomes a case in `forging` or a seed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SEEDS: Final = ROOT / "tests" / "fuzzing" / "seeds"
KEPT: Final = ROOT / ".cache" / "fuzz"
NATIVE: Final = ("scan", "kernels")
PYTHON: Final = (
    *("model", "imatrix", "safetensors", "pytorch", "legacy", "blocks", "names", "pieces"),
    *("tokenizer", "card", "template"),
)
SEEDS_OF: Final = {"scan": "model"}  # where it is not the target's own name
LIMITS: Final = ("-max_len=8192", "-timeout=60", "-rss_limit_mb=3072", "-print_final_stats=1")


def main(seconds: str, *names: str) -> int:
    """Run targets, each in a process of its own; return how many had a finding."""
    unknown = {*names} - {*NATIVE, *PYTHON}
    if unknown:
        sys.exit(f"no such target: {', '.join(sorted(unknown))}")
    found = [name for name in names or (*NATIVE, *PYTHON) if run(name, seconds)]
    sys.stdout.write(f"found something: {', '.join(found) or 'nothing'}\n")
    return len(found)


def run(name: str, seconds: str) -> int:
    """Run one target for its time; return its exit code, and say what it was."""
    corpus, findings = KEPT / "corpus" / name, KEPT / "findings"
    for folder in (corpus, findings):
        folder.mkdir(parents=True, exist_ok=True)
    program = [ROOT / "build" / "fuzz" / f"fuzz_{name}"]
    if name in PYTHON:
        program = [sys.executable, __file__, "--one", name]
    artifacts = f"-artifact_prefix={findings / name}-"
    folders = [corpus, SEEDS / SEEDS_OF.get(name, name)]
    done = subprocess.run(
        [*program, *LIMITS, artifacts, f"-max_total_time={seconds}", *folders],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    count = next((line for line in done.stderr.splitlines() if "executed_units" in line), ": 0")
    said = (
        "nothing found" if not done.returncode else f"FOUND, see {findings}\n{done.stderr[-4000:]}"
    )
    sys.stdout.write(f"{name}: {count.split(':')[-1].strip()} inputs, {said}\n")
    sys.stdout.flush()
    return done.returncode


def one(name: str, *arguments: str) -> None:
    """Be the process of one Python target."""
    sys.path.insert(0, str(KEPT / "tools"))
    import atheris

    with atheris.instrument_imports(include=["ggufkit", "jinja2"]):
        import numpy as np

        from fuzzing.targets import attempt
    np.seterr(all="ignore")
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    atheris.Setup([name, *arguments], lambda data: attempt(name, data, folder))
    atheris.Fuzz()


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        one(*sys.argv[2:])
    else:
        sys.exit(main(*sys.argv[1:]) > 0)
