"""The verbs of a model are the functions of ggufkit, with the model given."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import ggufkit
from ggufkit.models.verbs import ModelVerbs

VERBS = [name for name in vars(ModelVerbs) if not name.startswith("_")]


@pytest.mark.parametrize("name", VERBS)
def test_verb_has_the_parameters_of_the_function(name):
    parameters = [
        list(inspect.signature(function).parameters.values())
        for function in (getattr(ggufkit, name), getattr(ModelVerbs, name))
    ]
    assert parameters[0][1:] == parameters[1][1:]


@pytest.mark.parametrize("name", VERBS)
def test_verb_passes_each_argument_on(name, monkeypatch):
    function = inspect.unwrap(getattr(ggufkit, name))
    passed = {}
    monkeypatch.setattr(
        ggufkit, name, lambda *args, **options: passed.update(args=args, options=options)
    )
    model = ggufkit.model({})
    parameters = list(inspect.signature(function).parameters.values())[1:]
    args = [
        parameter.name
        for parameter in parameters
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    options = {
        parameter.name: parameter.name
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    getattr(model, name)(*args, **options)
    assert passed == {"args": (model, *args), "options": options}


def test_verbs_form_a_chain(tmp_path):
    rows = np.ones((4, 64), np.float32)
    model = ggufkit.model({"a.weight": rows, "b.weight": rows}, {"general.architecture": "llama"})
    chained = model.select(keep="a.*").edit(set={"general.name": "x"}).quantize("Q8_0")
    (path,) = chained.write(tmp_path / "m.gguf")
    with ggufkit.open(path) as written:
        assert (list(written), written["a.weight"].type.name) == (["a.weight"], "Q8_0")
        assert not written.diff(path)
        assert written.digest("sha256").model == ggufkit.digest(path, "sha256").model
