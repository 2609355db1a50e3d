"""`check` knows what llama.cpp requires of projectors."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import clip_loads
import ggufkit
import projector_folders
import real
from ggufkit.checks.projector import KINDS

CASES = projector_folders.cases()
SHOWN = ("gemma3", "qwen2audio")


@pytest.fixture(params=SHOWN)
def projector(request, tmp_path):
    folder = projector_folders.make(CASES[request.param], tmp_path / request.param)
    with ggufkit.convert(folder, mmproj=True) as model:
        ggufkit.write(model, tmp_path / "mmproj.gguf")
    return tmp_path / "mmproj.gguf"


def rules(path):
    return {each.rule for each in ggufkit.check(path)} - {"file-name", "file-encoding"}


def test_key_is_required_exactly_if_llama_cpp_does_not_load_without_it(projector, tmp_path):
    with ggufkit.open(projector) as model:
        keys = [key for key in model.metadata if key.startswith("clip.")]
        paths = [tmp_path / f"{key}.gguf" for key in keys]
        for key, path in zip(keys, paths, strict=True):
            ggufkit.write(model.replace(metadata=model.metadata.without(key)), path)
    assert not rules(projector)
    found = clip_loads.loads([projector, *paths])
    told = [True, *("key-required" not in rules(path) for path in paths)]
    names = ["whole", *keys]
    assert dict(zip(names, told, strict=True)) == dict(zip(names, found, strict=True))


def test_kinds_are_those_of_llama_cpp():
    content = Path(real.llama_cpp()._name).read_bytes()
    missing = [kind for kind in KINDS if f"{kind}\0".encode() not in content]
    assert not missing


def test_converter_has_no_other_kind():
    text = (real.llama_cpp_source() / "gguf-py/gguf/constants.py").read_text()
    body = text.split("class VisionProjectorType:")[1].split("\n\n\n")[0]
    assert set(re.findall(r'= "([^"]+)"', body)) <= KINDS


def test_missing_blocks_are_told(projector, tmp_path):
    with ggufkit.open(projector) as model:
        key = next(key for key in model.metadata if key.endswith(".block_count"))
        more = model.edit(set={key: np.uint32(9)})
        ggufkit.write(more, tmp_path / "more.gguf")
    assert rules(tmp_path / "more.gguf") == {"block-count"}
    assert clip_loads.loads([tmp_path / "more.gguf"]) == [False]


def test_unknown_kind_is_told(projector, tmp_path):
    with ggufkit.open(projector) as model:
        ggufkit.write(model.edit(set={"clip.projector_type": "eyes"}), tmp_path / "odd.gguf")
    assert rules(tmp_path / "odd.gguf") == {"projector-unknown"}
    assert clip_loads.loads([tmp_path / "odd.gguf"]) == [False]
