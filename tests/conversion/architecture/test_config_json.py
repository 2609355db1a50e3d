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
