"""Checkpoints as repositories spell them give llama.cpp's files, or depart as the table says.

`spelling_digests.py` found these seeds among thousands: each once gave another file, or departs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import digests
import spelling_digests
import spellings
from departures import DEPARTURES

import ggufkit
from ggufkit.conversion.architecture.config import known_types

pytestmark = pytest.mark.oracle

FOLDER = Path(os.environ.get("GGUFKIT_ORACLE", ""))
RECORDED = json.loads(spelling_digests.RECORD.read_text(encoding="utf-8"))
DEPARTING = {row["what"] for row in DEPARTURES}
FOLLOWED = {row["what"] for row in DEPARTURES if row["exactly"] == "follows"}


@pytest.mark.parametrize("name", RECORDED)
def test_spelled_checkpoint_gives_the_file_of_the_converter(name, tmp_path):
    case, _, seed = name.rpartition(" ")
    row = RECORDED[name]
    assert row.get("departs") in {None, *DEPARTING}
    spellings.write_spelled(FOLDER / "checkpoints", case, seed, tmp_path)
    out = tmp_path / "ours.gguf"
    error = spelling_digests.converted(tmp_path / case, out)
    if "refused" in row:
        assert row["refused"] in error
        return
    assert error == ""
    compared = 2 if row.get("keys") == [] else 3  # bytes of tensors differ
    assert digests.of_file(out, case, row.get("keys", ()))[:compared] == row["file"][:compared]
    assert "keys" not in row or digests.of_file(out) != row["whole"]


@pytest.mark.parametrize(
    "name", [name for name, row in RECORDED.items() if row.get("departs") in FOLLOWED]
)
def test_exactly_follows_the_converter_where_the_table_says_so(name, tmp_path):
    case, _, seed = name.rpartition(" ")
    spellings.write_spelled(FOLDER / "checkpoints", case, seed, tmp_path)
    out = tmp_path / "ours.gguf"
    assert spelling_digests.converted(tmp_path / case, out, exactly=True) == ""
    assert digests.of_file(out) == RECORDED[name]["whole"]


def test_every_departure_that_exactly_follows_has_a_case():
    assert {row.get("departs") for row in RECORDED.values()} > FOLLOWED


def test_exactly_notes_that_exponentials_need_pytorch():
    notes = []
    options = {"pre": spelling_digests.PRE_TOKENIZER, "say": notes.append}
    ggufkit.convert(FOLDER / "checkpoints" / "mamba", exactly=True, **options).close()
    assert any("PyTorch" in note for note in notes) == (find_spec("torch") is None)
    notes.clear()
    ggufkit.convert(FOLDER / "checkpoints" / "mamba", **options).close()
    ggufkit.convert(FOLDER / "checkpoints" / "llama", exactly=True, **options).close()
    assert not any("PyTorch" in note for note in notes)


def test_types_with_defaults_are_those_of_transformers():
    """Without the hybrids of Mamba 2, whose config.json the converter reads alone."""
    code = "from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES as names"
    program = [FOLDER / "venv" / "bin" / "python", "-c", f"{code}; print(*names)"]
    names = subprocess.run(program, capture_output=True, text=True, check=True).stdout.split()
    assert known_types() == {*names} - {"bamba", "falcon_h1", "granitemoehybrid", "mamba2"}


def test_record_has_cases_of_each_outcome():
    assert len(RECORDED) > 60
    assert {"refused", "keys", "file"} <= {word for row in RECORDED.values() for word in row}
