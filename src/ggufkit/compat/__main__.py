"""Run a program that was written for gguf-py on ggufkit, unchanged.

python -m ggufkit.compat SCRIPT [ARGUMENT ...]
python -m ggufkit.compat -m MODULE [ARGUMENT ...]
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from ggufkit.compat.patch import install


def main(arguments: list[str]) -> None:
    """Install ggufkit under gguf-py, and run the script or module."""
    is_module = arguments[:1] == ["-m"]
    program = arguments[1:] if is_module else arguments
    if not program or (not is_module and not Path(program[0]).is_file()):
        usage = (__doc__ or "").strip().splitlines()[2:]
        missing = f"{program[0]!r} is not a file\n" if program else ""
        sys.stderr.write("\n".join([f"{missing}usage:", *usage, ""]))
        raise SystemExit(2)
    os.environ["GGUFKIT_COMPAT"] = "1"  # for processes that the program starts: ggufkit-compat.pth
    install()
    sys.argv = program
    if is_module:
        sys.path[0] = str(Path.cwd())
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(program[0]).resolve().parent)
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
