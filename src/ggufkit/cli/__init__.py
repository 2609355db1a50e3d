"""The command `ggufkit`."""

from __future__ import annotations

from ggufkit.cli.app import app
from ggufkit.cli.failing import run


def main() -> None:
    """Run the command line and exit with its code."""
    run(app)
