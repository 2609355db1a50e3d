"""The command `ggufkit`.

Holds what commands share: options, output, errors, pipes. A command is a module of its name in
`commands`. Work that a library user could need belongs in a package below.
"""

from __future__ import annotations

from ggufkit.cli import signals


def main() -> None:
    """Run the command line and exit with its code."""
    signals.leave_at_once()
    # Slow imports come last: during them, Ctrl-C would otherwise show a traceback.
    from ggufkit.cli.app import app  # noqa: PLC0415
    from ggufkit.cli.errors import run  # noqa: PLC0415

    run(app)
