"""The libraries of the oracle environment, imported only by the tests that ask for them."""

from __future__ import annotations

import importlib

import pytest


@pytest.fixture(scope="session")
def torch():
    """PyTorch, for tests with the marker of that name."""
    return importlib.import_module("torch")
