"""docs/classes.md tells of every class of llama.cpp's converter what is proven."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import real

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests" / "oracle")]
import known  # noqa: E402 (of the oracle's tests)
import write_classes  # noqa: E402 (a tool, not a package)


def test_table_of_classes_matches_the_converter_and_the_architecture_files():
    written = write_classes.page(real.llama_cpp_source())
    assert write_classes.PAGE.read_text(encoding="utf-8") == written, "run tools/write_classes.py"


def test_every_class_with_an_architecture_is_compared_or_shares_one_that_is():
    rows = write_classes.rows(real.llama_cpp_source() / "conversion")
    proven = {row[1] for row in rows if row[2]}
    files = {row[1] for row in rows} - {"", "(projector only)"}
    assert files - proven == set()


def test_classes_that_the_converter_refuses_are_its_own():
    names = {
        row[0].strip("`") for row in write_classes.rows(real.llama_cpp_source() / "conversion")
    }
    assert write_classes.refusals().keys() - names == set()


def test_every_case_of_a_family_is_recorded():
    record = json.loads(write_classes.RECORD.read_text(encoding="utf-8"))
    assert known.families().keys() - record.keys() == set(), "tests/oracle/digests.py records them"
