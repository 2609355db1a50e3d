"""With each flag of llama.cpp's converter, the file is byte-identical to the converter's."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import flags_of

import ggufkit
import llama_loads
from ggufkit.format.coerce import plain

pytestmark = pytest.mark.oracle

FOLDER = Path(os.environ.get("GGUFKIT_ORACLE", ""))
RECORDED = json.loads(flags_of.RECORD.read_text())
FLAGS = {flag.flag: flag for flag in flags_of.FLAGS}


def test_all_cases_are_recorded():
    expected = {flag.flag: set(flag.cases) for flag in flags_of.FLAGS}
    assert {flag: set(cases) for flag, cases in RECORDED.items()} == expected


@pytest.mark.parametrize(
    ("flag", "case"), [(flag, case) for flag, cases in RECORDED.items() for case in cases]
)
def test_flag_gives_the_bytes_of_the_converter(flag, case, tmp_path):
    folder = flags_of.checkpoint_for(flag, case, FOLDER / "checkpoints", tmp_path)
    # The target of DSpark is in the same folder by default.
    target = flags_of.target_of(case, FOLDER / "checkpoints") if "target" in flag else None
    chosen = FLAGS[flag].ours | {"target": target, "pre": flags_of.PRE_TOKENIZER}
    with ggufkit.convert(folder, **chosen) as model:
        ggufkit.write(model, tmp_path / "ours.gguf", **FLAGS[flag].written)
    assert flags_of.digest(tmp_path / "ours.gguf", flag) == RECORDED[flag][case]


def keys(model):
    """Return all keys but the size, which a graft estimates for models with experts."""
    values = model.metadata
    return {
        key: (values.type_name(key), plain(values[key]))
        for key in values
        if key != "general.size_label"
    }


@pytest.mark.parametrize("case", flags_of.PREDICTING)
def test_grafted_head_makes_the_whole_model_again_and_llama_cpp_loads_it(case, tmp_path):
    paths = {}
    for name, mtp in (("whole", None), ("trunk", False), ("head", True)):
        paths[name] = tmp_path / f"{name}.gguf"
        options = {"pre": flags_of.PRE_TOKENIZER, "outtype": "f32", "mtp": mtp}
        with ggufkit.convert(FOLDER / "checkpoints" / case, **options) as model:
            ggufkit.write(model, paths[name])
    with ggufkit.open(paths["trunk"]) as trunk, ggufkit.open(paths["whole"]) as whole:
        count = trunk.metadata[f"{trunk.metadata['general.architecture']}.block_count"]
        last = whole.metadata[f"{trunk.metadata['general.architecture']}.block_count"] - 1
        grafted = ggufkit.select(trunk, graft=[(paths["head"], f"blk.[{count}-{last}].*")])
        ggufkit.write(grafted, tmp_path / "grafted.gguf")
        assert keys(grafted) == keys(whole)
        assert set(grafted.tensors) == set(whole.tensors)
        for name, tensor in grafted.tensors.items():
            assert np.array_equal(tensor.raw(), whole.tensors[name].raw()), name
    assert llama_loads.refusals([paths["whole"], tmp_path / "grafted.gguf"]) == {}
