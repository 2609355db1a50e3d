"""The command `ggufkit`.

What commands share: options, output, errors, pipes. A command lives in `commands`, in the module of
its name; work that a library user could want belongs in a package below.
"""

from __future__ import annotations

from ggufkit.cli.app import app
from ggufkit.cli.errors import run


def main() -> None:
    """Run the command line and exit with its code."""
    run(app)
