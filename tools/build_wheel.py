"""Build the wheel of this tree, and show the progress of the compiler.

    python tools/build_wheel.py FOLDER

It calls the build backend itself: pip would hide the progress. Objects stay in build/native, so
that only what changed is compiled again. FOLDER then holds this one wheel.
"""

from __future__ import annotations

import sys
from pathlib import Path

from scikit_build_core.build import build_wheel

OBJECTS = "build/native"


def main(folder: str) -> None:
    """Build it."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for stale in target.glob("*.whl"):
        stale.unlink()
    print(build_wheel(str(target), {"build-dir": OBJECTS}))


if __name__ == "__main__":
    main(*sys.argv[1:])
