"""Models as the page shows them."""

from __future__ import annotations

import pytest

import ggufkit
from ggufkit.view.shown_model import ShownModel


def shown_of(path, name=None):
    return ShownModel(str(name or path), ggufkit.open(path))


@pytest.fixture(scope="session")
def shown_smollm2(smollm2):
    """SmolLM2 as the page shows it."""
    return shown_of(smollm2)


@pytest.fixture(scope="session")
def shown_gemma3(gemma3):
    """Gemma 3 as the page shows it."""
    return shown_of(gemma3)


@pytest.fixture
def shown(tmp_path):
    """Make a function that writes a small model and shows it."""

    def make(tensors, metadata=None, name="small.gguf"):
        path = tmp_path / name
        ggufkit.model(tensors, metadata).write(path)
        return shown_of(path)

    return make
