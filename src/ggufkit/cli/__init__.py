"""The command `ggufkit`.

Holds what commands share: options, output, errors, pipes. A command is a module of its name in
`commands`. Work that a library user could need belongs in a package below.
"""

from __future__ import annotations

import os

from ggufkit.system.cancellation import handle_signals


def main() -> None:
    """Run the command line and exit with its code."""
    # Threads of NumPy's OpenBLAS spin for 2^26 cycles at the start and after calls; 2^20 cycles,
    # a third of a millisecond, are enough from one call to the next.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")
    handle_signals()  # before the slow imports, during which Ctrl-C would show a traceback
    from ggufkit.cli.app import app  # noqa: PLC0415
    from ggufkit.cli.errors import run  # noqa: PLC0415

    run(app)
