"""Judge each forged file in a process of its own, under limits, and print the verdicts.

Usage: limited.py FOLDER, where each folder inside is a case.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path

# Imported from their modules, since each child would import them again otherwise.
from ggufkit.checks.check import check
from ggufkit.errors import FormatError
from ggufkit.models.open import open as open_model

sys.path.insert(0, str(Path(__file__).parents[1]))

import forge

ADDRESS_SPACE = 2 << 30
SECONDS = 20
VERDICTS = ["accept", "warn", "refuse", "crash"]


def judge(path: Path) -> str:
    """Return what `check` says, after seeing that `open` agrees."""
    severities = {finding.severity for finding in check(path)}
    try:
        open_model(path).close()
    except FormatError:
        return "refuse" if "error" in severities else "crash"
    if "error" in severities:
        return "crash"
    return "warn" if "warning" in severities else "accept"


def judge_apart(path: Path) -> str:
    """Judge in a forked process; what kills it is a crash."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
        signal.alarm(SECONDS)
        os._exit(VERDICTS.index(judge(path)))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return VERDICTS[code] if 0 <= code < len(VERDICTS) else "crash"


if __name__ == "__main__":
    for case in forge.corpus().values():
        path = Path(sys.argv[1]) / case.name / next(iter(case.files))
        print(case.name, judge_apart(path))  # noqa: T201 (its result)
