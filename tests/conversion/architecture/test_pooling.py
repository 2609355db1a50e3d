"""The pooling type of embedding models, read from the files of sentence-transformers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ggufkit.conversion.architecture.config_json import Draft
from ggufkit.conversion.architecture.pooling import NUMBERS, pooling_files, pooling_type
from ggufkit.errors import CheckpointError
from ggufkit.models.model import Tensors

MODULES = [{"path": "", "type": "a.Transformer"}, {"path": "1_Pooling", "type": "a.Pooling"}]


def checkpoint(**files):
    texts = {name: json.dumps(content).encode() for name, content in files.items()}
    return Draft(Path("model"), {}, Tensors(), contents=texts)


@pytest.mark.parametrize("number", NUMBERS.values())
def test_pooling_files_name_their_pooling_type(number):
    assert pooling_type(checkpoint(**pooling_files(number, 384))) == number


def test_checkpoint_without_modules_names_no_pooling_type():
    assert pooling_type(checkpoint()) is None
    assert pooling_files(0, 384) == {}


def test_names_a_missing_file_of_a_module():
    with pytest.raises(CheckpointError, match=r"1_Pooling/config\.json is missing"):
        pooling_type(checkpoint(**{"modules.json": MODULES}))


def test_refuses_an_unknown_pooling_type():
    files = {"modules.json": MODULES, "1_Pooling/config.json": {"pooling_mode_max_tokens": True}}
    with pytest.raises(CheckpointError, match="not mean, cls or last token"):
        pooling_type(checkpoint(**files))
