"""Options that several commands share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import click

_SIZE: Final = re.compile(
    r"(?P<number>\d+(\.\d+)?)\s*((?P<unit>[kmgt])(?P<binary>i)?)?b?", re.IGNORECASE
)

threads_option = click.option(
    "--threads",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of threads.  [default: one per usable core]",
)
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="List the files that would be written; write nothing."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print the files as JSON.")
resume_option = click.option(
    "--resume",
    is_flag=True,
    help="Keep unfinished output if the command stops early, and continue from what is kept.",
)
cluster_option = click.option(
    "--cluster",
    metavar="ADDRESS",
    help="Run the work on this Dask cluster; ADDRESS is its scheduler, such as tcp://host:8786.",
)
arch_path_option = click.option(
    "--arch-path",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    multiple=True,
    metavar="FOLDER",
    help="Folder of architecture files to search first.  [repeatable]",
)


def parse_size(text: str) -> int:
    """Return a number of bytes: plain, or as 500M and 2G (powers of 1000) or 512MiB (of 1024)."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise click.BadParameter(f"{text!r} is not a size; write it as 500M, 2G or 512MiB")
    base = 1024 if found["binary"] else 1000
    power = " kmgt".index((found["unit"] or " ").lower())
    return int(float(found["number"]) * base**power)
