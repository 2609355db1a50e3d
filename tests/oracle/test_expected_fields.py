"""ggufkit refuses a field that architecture files `expect` only if it changes something.

expected_fields.py recorded llama.cpp's converter: with some fields changed, its file is the same.
If transformers' code for the model does not mention such a field either, ggufkit must convert.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import expected_fields
import spelling_digests

pytestmark = pytest.mark.oracle

FOLDER = Path(os.environ.get("GGUFKIT_ORACLE", ""))
RECORDED = json.loads(expected_fields.RECORD.read_text(encoding="utf-8"))
# The code that these classes were published with, which transformers lacks, reads the fields.
PUBLISHED_CODE = ("jina-bert-v3 ", "kimi-linear ")
IDLE = [name for name, row in RECORDED.items() if row["same"] and row["mentioned"] is False
        and not name.startswith(PUBLISHED_CODE)]  # fmt: skip


def test_all_expected_fields_are_recorded():
    present = {f"{case} {name}" for case, name, _ in expected_fields.fields(FOLDER)}
    assert present <= set(RECORDED)


@pytest.mark.parametrize("name", IDLE)
def test_does_not_refuse_a_field_without_effect(name, tmp_path):
    case, _, field = name.partition(" ")
    row = RECORDED[name]
    changed = expected_fields.write_changed(FOLDER, case, field, row["value"], tmp_path)
    assert spelling_digests.converted(changed, tmp_path / "ours.gguf") == ""
