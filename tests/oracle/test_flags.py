"""With each flag of llama.cpp's converter, the file is byte-identical to the converter's."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import drafts
import flags_of

import ggufkit

pytestmark = pytest.mark.oracle

FOLDER = Path(os.environ.get("GGUFKIT_ORACLE", ""))
RECORDED = json.loads(flags_of.RECORD.read_text())
OURS = {each.flag: each.ours for each in flags_of.FLAGS}


def test_all_cases_are_recorded():
    wanted = {each.flag: set(each.cases) for each in flags_of.FLAGS}
    assert {flag: set(cases) for flag, cases in RECORDED.items()} == wanted


@pytest.mark.parametrize(
    ("flag", "case"), [(flag, case) for flag, cases in RECORDED.items() for case in cases]
)
def test_flag_gives_the_bytes_of_the_converter(flag, case, tmp_path):
    folder = flags_of.checkpoint_for(flag, case, FOLDER / "checkpoints", tmp_path)
    order = "big" if flag == "--bigendian" else None
    draft = drafts.DRAFTS.get(case)
    target = draft and FOLDER / "checkpoints" / draft.target
    chosen = OURS[flag] | {"target": target, "pre": flags_of.PRE_TOKENIZER}
    with ggufkit.convert(folder, **chosen) as model:
        ggufkit.write(model, tmp_path / "ours.gguf", byte_order=order)
    assert flags_of.digest(tmp_path / "ours.gguf", flag) == RECORDED[flag][case]
