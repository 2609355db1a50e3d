"""config.json rebuilt from metadata."""

from __future__ import annotations

import pytest

import ggufkit
from ggufkit.conversion.architecture.architecture import architectures
from ggufkit.conversion.architecture.config_json import rebuilt


@pytest.mark.parametrize(
    ("name", "expected"), [(None, "LlamaForCausalLM"), ("Mistral 7B v0.1", "MistralForCausalLM")]
)
def test_class_is_llama_unless_the_model_is_called_mistral(smollm2, name, expected):
    with ggufkit.open(smollm2) as model:
        metadata = model.metadata.updated({"general.name": name} if name else {})
        draft = rebuilt(model.replace(metadata=metadata), architectures()["llama"], {})
    assert draft.config["architectures"] == [expected]


def test_architectures_of_a_name_are_those_among_all():
    every = architectures()
    for name in {architecture.name for architecture in every.values()}:
        of_the_name = [stem for stem, one in every.items() if one.name == name]
        some = architectures(gguf_name=name).items()
        assert [stem for stem, one in some if one.name == name] == of_the_name
