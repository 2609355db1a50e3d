"""docs/architectures.md explains every word of architecture files."""

from __future__ import annotations

from pathlib import Path

import pytest

from ggufkit.conversion.architecture import architecture, generated
from ggufkit.conversion.architecture.functions import FUNCTIONS, MODEL
from ggufkit.conversion.tensors.operations import OPERATIONS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "architectures.md").read_text("utf-8")
WORDS = {
    "operations": [f"`{name}" for name in OPERATIONS],
    "words": [f"`{word}`" for word, kind in architecture._KINDS.items() if kind is not dict],
    "tables": [f"`[{table}" for table, kind in architecture._KINDS.items() if kind is dict],
    "functions for export": [f"`{name}(" for name, row in FUNCTIONS.items() if row.needs == MODEL],
    "makers of tensors": [f"`{name}`" for name in generated.MAKERS],
}


@pytest.mark.parametrize("kind", WORDS)
def test_page_names_every_word(kind):
    assert [word for word in WORDS[kind] if word not in PAGE] == []
