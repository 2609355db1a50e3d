"""Tensors that are made from the configuration are never larger than its tensors allow."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from ggufkit.conversion.architecture.config import ConfigFacts
from ggufkit.conversion.architecture.generated import MAKERS, generate
from ggufkit.errors import MISFORMED, CheckpointError
from ggufkit.models.model import Tensors
from ggufkit.models.sources import from_array


def facts(maker: str, fields: Mapping[str, Any], rope: object = None) -> ConfigFacts:
    tensors = Tensors([from_array("w", np.zeros((2, 8), np.float32))])
    return cast(
        "ConfigFacts",
        SimpleNamespace(
            exactly=False,
            architecture=SimpleNamespace(generated={"t": maker}),
            checkpoint=SimpleNamespace(tensors=tensors),
            value=lambda text: fields.get(text.split(" ")[0]),
            lookup=lambda _: rope or {},
        ),
    )


def test_positions_have_the_columns_of_a_tensor() -> None:
    (tensor,) = generate(facts("sinusoids", {"audio.hidden_size": 8}))
    assert tensor.shape == (1500, 8)
    tracemalloc.start()
    with pytest.raises(CheckpointError, match="no tensor has the 100000 columns"):
        list(generate(facts("sinusoids", {"audio.hidden_size": 100_000})))
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


ODD = (None, True, -1, 0, 1, 2, 10**6, 10**12, 10**400, 0.5, float("nan"), "8", [8], {})
NAMES = ("audio.hidden_size", "head_dim", "global_head_dim", "rope_dimensions")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("value", ODD, ids=lambda value: type(value).__name__)
def test_odd_sizes_give_an_error_that_convert_catches(maker: str, value: object) -> None:
    for kind in ("proportional", "llama3"):
        for share in (0.5, value):
            rope = {"rope_type": kind, "partial_rotary_factor": share, "long_factor": [1, value]}
            with contextlib.suppress(*MISFORMED):
                list(generate(facts(maker, dict.fromkeys(NAMES, value), rope)))
