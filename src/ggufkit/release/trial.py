"""Whether llama.cpp loads a file and generates with it; tried in a process of its own.

llama.cpp ends the process at some faults, so the process that asks must not be it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from ggufkit.errors import GGUFError

TOKENS: Final = 8  # generated
LAST: Final = 300  # characters of a message


def require_runs(path: Path, threads: int) -> None:
    """Raise GGUFError, with llama.cpp's message, if it cannot generate with the file."""
    # Isolated: modules in the current folder, which may have been downloaded, are not imported.
    paths = [place for place in sys.path if place]
    child = f"import sys; sys.path[:] = {paths!r}; from {__name__} import main; main()"
    command = [sys.executable, "-I", "-c", child, str(path.absolute()), str(threads)]
    process = subprocess.run(  # noqa: S603 (this program)
        command, capture_output=True, text=True, check=False, errors="replace"
    )
    if process.returncode:
        lines = process.stderr.strip().splitlines()
        message = lines[-1][-LAST:] if lines else f"it ended with code {process.returncode}"
        raise GGUFError(f"llama.cpp cannot run {path.name}: {message}")


def _generate(path: Path, threads: int) -> None:
    """Generate some tokens from the beginning of a text, the likeliest each time."""
    import numpy as np  # noqa: PLC0415 (only this process needs them)

    from ggufkit.llama_cpp.session import Session  # noqa: PLC0415

    with Session(path, length=TOKENS + 1, batch=TOKENS + 1, threads=threads) as session:
        token = session.beginning or 0
        for place in range(TOKENS):
            session.decode([[token]], place)
            logits = session.logits()[-1]
            if not np.isfinite(logits).all():
                raise GGUFError("it computes values that are not numbers")
            token = int(logits.argmax())


def main() -> None:
    """Be the process that generates: its arguments are the file and the number of threads."""
    try:
        _generate(Path(sys.argv[1]), int(sys.argv[2]))
    except GGUFError as error:
        sys.exit(error.message)
