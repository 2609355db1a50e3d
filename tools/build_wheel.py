"""Build the wheel of this tree, and show the progress of the compiler.

    python tools/build_wheel.py FOLDER [host]

It calls the build backend itself: pip would hide the progress. Objects stay in build/native, so
that only what changed is compiled again. FOLDER then holds this one wheel. With `host`, it has the
kernels of this machine alone, which takes half the time to compile.
"""

from __future__ import annotations

import sys
from pathlib import Path

from scikit_build_core.build import build_wheel

OBJECTS = "build/native"
ALL = "v4;v3;v2;neon"


def main(folder: str, isas: str = ALL) -> None:
    """Build it."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for stale in target.glob("*.whl"):
        stale.unlink()
    print(build_wheel(str(target), {"build-dir": OBJECTS, "cmake.define.GGUFKIT_ISAS": isas}))


if __name__ == "__main__":
    main(*sys.argv[1:])
