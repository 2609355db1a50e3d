"""The verbs of a model are the functions of ggufkit, with the model given."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import ggufkit
from ggufkit.models.verbs import ModelVerbs, Verb

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import write_verbs

TABLE = {name: verb.module for name, verb in vars(ModelVerbs).items() if isinstance(verb, Verb)}


@pytest.mark.parametrize("name", TABLE)
def test_verb_is_the_public_function(name):
    function = getattr(ggufkit, name)
    assert getattr(ModelVerbs, name) is function
    assert getattr(ggufkit.model({}), name).__func__ is function


def test_stub_of_the_verbs_is_current(tmp_path):
    pytest.importorskip("ruff", reason="the wheel is tested without it")
    path = tmp_path / "verbs.pyi"
    path.write_text(write_verbs.formatted(), encoding="utf-8")
    found = write_verbs.STUB.read_text(encoding="utf-8")
    assert path.read_text(encoding="utf-8") == found, "run `python tools/write_verbs.py --write`"


def test_verbs_form_a_chain(tmp_path):
    rows = np.ones((4, 64), np.float32)
    model = ggufkit.model({"a.weight": rows, "b.weight": rows}, {"general.architecture": "llama"})
    made = model.select(keep="a.*").edit(set={"general.name": "x"}).quantize("Q8_0")
    (path,) = made.write(tmp_path / "m.gguf")
    with ggufkit.open(path) as written:
        assert (list(written), written["a.weight"].type.name) == (["a.weight"], "Q8_0")
        assert not written.diff(path)
        assert written.digest("sha256").model == ggufkit.digest(path, "sha256").model
