"""Fields of config.json, and the defaults of their classes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ggufkit.conversion.architecture.architecture import architectures
from ggufkit.conversion.architecture.config import ConfigFacts
from ggufkit.conversion.architecture.config_json import Draft
from ggufkit.models.model import Tensors


def facts(stem, **config):
    return ConfigFacts(Draft(Path("model"), config, Tensors()), architectures()[stem])


@pytest.mark.parametrize(
    ("stem", "model_type", "name", "other"),
    [
        ("qwen3moe", "qwen3_moe", "num_experts", "num_local_experts"),
        ("llama", "mixtral", "num_local_experts", "num_experts"),
        ("llama", "llama", "num_key_value_heads", "n_kv_heads"),
        ("llama", "llama", "max_position_embeddings", "n_ctx"),
    ],
)
def test_default_does_not_hide_a_field_with_an_alternative_name(stem, model_type, name, other):
    known = facts(stem, model_type=model_type, num_attention_heads=32, **{other: 4})
    assert known.lookup(name) == 4
    assert other not in known.unread()


def test_default_stays_where_the_alternative_name_has_another_meaning():
    known = facts("llama", model_type="llama", max_length=20)
    assert known.lookup("max_position_embeddings") == 2048


def test_field_wins_over_its_alternative_name():
    known = facts("qwen3moe", model_type="qwen3_moe", num_experts=8, num_local_experts=4)
    assert known.lookup("num_experts") == 8
