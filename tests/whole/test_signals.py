"""A signal at any moment ends a command soon and loses nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import faulty
import signalled

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and signals")
COMMANDS = faulty.all_commands()
CODES = {"interrupted": 128 + signal.SIGINT, "terminated": 128 + signal.SIGTERM}
SOON = 1.0  # seconds


def ends(command, times, folder):
    paths = os.pathsep.join([str(Path(faulty.__file__).parent), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, signalled.__file__, command, str(times), str(folder)],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def assert_nothing_is_lost(row):
    assert row["code"] is not None, f"it hangs: {row}"
    assert row["inputs"], row
    assert row["output"] in ("old", "new", "absent", "both"), row
    assert row["again"] == "new", row
    assert "Traceback" not in row["errors"], row
    assert row["code"] in {0, CODES[row["fault"]]}, row
    assert row["code"] or row["output"] == "new", row
    assert row["errors"].count("interrupted; ") == bool(row["code"]), row
    assert row["seconds"] < SOON, row
    assert not row["hidden"], row


@pytest.mark.parametrize(
    "times", [4, pytest.param(200, marks=pytest.mark.exhaustive)], ids="{}-times".format
)
@pytest.mark.parametrize("command", COMMANDS)
def test_signals_at_any_moment_end_a_command_and_lose_nothing(tmp_path, command, times):
    rows = ends(command, times, tmp_path)
    for row in rows:
        assert_nothing_is_lost(row)
