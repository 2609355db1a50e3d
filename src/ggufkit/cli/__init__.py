"""The command `ggufkit`.

What commands share: options, output, errors, pipes. A command lives in `commands`, in the module of
its name; work that a library user could want belongs in a package below.
"""

from __future__ import annotations

from ggufkit.cli import signals


def main() -> None:
    """Run the command line and exit with its code."""
    signals.leave_at_once()
    # What takes long to import comes after: Ctrl-C would show a traceback of the imports.
    from ggufkit.cli.app import app  # noqa: PLC0415
    from ggufkit.cli.errors import run  # noqa: PLC0415

    run(app)
