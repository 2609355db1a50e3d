"""All forged files by name: what should be said about each, and why.

As a program it writes them into a folder: `python tests/support/forge.py FOLDER`.
"""

from __future__ import annotations

import functools
import sys
from itertools import chain
from pathlib import Path

from forging import container, cves, foreign, metadata, sets, tensors, twins, unusual
from forging.case import Case

ROOMS = (container, metadata, tensors, foreign, sets, unusual, cves, twins)


@functools.cache
def corpus() -> dict[str, Case]:
    """Return every case by its name."""
    cases = list(chain.from_iterable(room.cases() for room in ROOMS))
    by_name = {case.name: case for case in cases}
    assert len(by_name) == len(cases), "two cases have one name"
    return by_name


def write(case: Case, folder: Path) -> Path:
    """Write the files of a case into `folder`, and return the one to open."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in case.files.items():
        (folder / name).write_bytes(content)
    return folder / next(iter(case.files))


if __name__ == "__main__":
    for case in corpus().values():
        write(case, Path(sys.argv[1]) / case.name)
