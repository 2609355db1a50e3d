"""The command `ggufkit`.

Holds what commands share: options, output, errors, pipes. A command is a module of its name in
`commands`. Work that a library user could need belongs in a package below.
"""

from __future__ import annotations

from ggufkit.system.cancellation import handle_signals


def main() -> None:
    """Run the command line and exit with its code."""
    handle_signals()  # before the slow imports, during which Ctrl-C would show a traceback
    from ggufkit.cli.app import app  # noqa: PLC0415
    from ggufkit.cli.errors import run  # noqa: PLC0415

    run(app)
