"""`ggufkit card`: write the model card of a release again."""

from __future__ import annotations

from pathlib import Path

import click

from ggufkit.cli.options import FILE_PATH, new_command, option
from ggufkit.cli.write_model import report


@new_command("card", "ggufkit card release/", "ggufkit card release/ --template mine.md.jinja")
@click.argument("folder", type=click.Path(path_type=Path))
@option("--template FILE", "A template for Jinja that makes the card.", type=FILE_PATH)
def command(folder: Path, *, template: Path | None) -> None:
    """Write README.md, the chart and the figures of the release in FOLDER again.

    Everything comes from FOLDER/release.json; no model is read.
    """
    from ggufkit.release.run import write_card  # noqa: PLC0415 (slow to import)

    report(write_card(folder, template))
