"""Checkpoints as repositories spell them give llama.cpp's files, or depart as the table says.

`spelling_digests.py` found these seeds among thousands: each once gave another file, or departs.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import digests
import spelling_digests
import spellings
from departures import DEPARTURES

pytestmark = pytest.mark.oracle

FOLDER = Path(os.environ.get("GGUFKIT_ORACLE", ""))
RECORDED = json.loads(spelling_digests.RECORD.read_text(encoding="utf-8"))
DEPARTING = {row["what"] for row in DEPARTURES}


@pytest.mark.parametrize("name", RECORDED)
def test_spelled_checkpoint_gives_the_file_of_the_converter(name, tmp_path):
    case, _, seed = name.rpartition(" ")
    row = RECORDED[name]
    assert row.get("departs") in {None, *DEPARTING}
    spellings.write_spelled(FOLDER / "checkpoints", case, int(seed), tmp_path)
    out = tmp_path / "ours.gguf"
    error = spelling_digests.converted(tmp_path / case, out)
    if "refused" in row:
        assert row["refused"] in error
        return
    assert error == ""
    assert digests.of_file(out, case, row.get("keys", ())) == row["file"]
    assert "keys" not in row or digests.of_file(out, case) != row["file"]


def test_record_has_cases_of_each_outcome():
    assert len(RECORDED) > 60
    assert {"refused", "keys", "file"} <= {word for row in RECORDED.values() for word in row}
