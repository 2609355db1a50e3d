"""`check` knows what llama.cpp requires of projectors."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

import clip_loads
import ggufkit
import projector_folders
import real
from ggufkit.checks.other_models import read_names
from ggufkit.checks.requirements import any_block, names_in_llama_cpp
from ggufkit.models.sources import from_array

CASES = projector_folders.cases()
SHOWN = ("gemma3", "qwen2audio")
# What llama.cpp does not read of its converter's files. It does not load files of
# Granite Speech, whose norms have wrong names, nor a case with fewer convolutions than the model.
NORMS = {"a.blk.{i}.conv_norm_var.weight", "a.blk.{i}.conv_norm_var.bias"}
UNREAD = {
    "gemma3n": {
        "a.blk.{i}.per_dim_scale", "a.blk.{i}.layer_pre_norm.weight", "mm.embedding.weight",
        "mm.hard_emb_norm.weight", "mm.a.embedding.weight", "mm.a.hard_emb_norm.weight",
    },
    "granite-speech": NORMS, "granite-speech-f16": NORMS, "granite-speech-plus": NORMS,
    "lfm2-audio": {"a.position_embd_norm.weight", "a.embd_to_logits.weight"},
}  # fmt: skip
UNLOADED = {case for case, names in UNREAD.items() if names is NORMS} | {"nemotron-omni"}


@pytest.fixture(params=SHOWN)
def projector(request, tmp_path):
    folder = projector_folders.make(CASES[request.param], tmp_path / request.param)
    with ggufkit.convert(folder, mmproj=True) as model:
        ggufkit.write(model, tmp_path / "mmproj.gguf")
    return tmp_path / "mmproj.gguf"


def rules(path):
    return {finding.rule for finding in ggufkit.check(path)} - {"file-name", "file-encoding"}


def test_key_is_required_exactly_if_llama_cpp_does_not_load_without_it(projector, tmp_path):
    with ggufkit.open(projector) as model:
        keys = [key for key in model.metadata if key.startswith("clip.")]
        paths = [tmp_path / f"{key}.gguf" for key in keys]
        for key, path in zip(keys, paths, strict=True):
            ggufkit.write(model.replace(metadata=model.metadata.without(key)), path)
    assert not rules(projector)
    loadable = clip_loads.loads([projector, *paths])
    passes = [True, *("key-required" not in rules(path) for path in paths)]
    names = ["whole", *keys]
    assert dict(zip(names, passes, strict=True)) == dict(zip(names, loadable, strict=True))


def test_kinds_are_those_of_llama_cpp():
    content = Path(real.llama_cpp()._name).read_bytes()
    missing = [
        kind
        for kind in names_in_llama_cpp("projector_types")
        if f"{kind}\0".encode() not in content
    ]
    assert not missing


def test_converter_has_no_other_kind():
    text = (real.llama_cpp_source() / "gguf-py/gguf/constants.py").read_text()
    body = text.split("class VisionProjectorType:")[1].split("\n\n\n")[0]
    assert set(re.findall(r'= "([^"]+)"', body)) <= {*names_in_llama_cpp("projector_types")}


def test_names_of_tensors_are_those_that_llama_cpp_reads():
    content = Path(real.llama_cpp()._name).read_bytes()
    text = (resources.files("ggufkit.checks") / "projector_tensors.txt").read_text("utf-8")
    names = [line for line in text.splitlines() if not line.startswith("#")]
    # Compilers write short names into instructions.
    missing = [name for name in names if f"{name}\0".encode() not in content]
    assert all(name.startswith(("v.patch_embd.", "v.class_embd")) for name in missing)


@pytest.mark.matrix
def test_llama_cpp_loads_every_projector_and_reads_its_tensors(tmp_path):
    unread = {}
    for case, content in CASES.items():
        folder = projector_folders.make(content, tmp_path / case)
        with ggufkit.convert(folder, mmproj=True, outtype="f16") as model:
            ggufkit.write(model, tmp_path / f"{case}.gguf")
            names = {any_block(name) for name in model.tensors if not read_names().fullmatch(name)}
            unread |= {case: names} if names else {}
    assert unread == UNREAD
    loaded = clip_loads.loads([tmp_path / f"{case}.gguf" for case in CASES])
    failed = {case for case, is_loaded in zip(CASES, loaded, strict=True) if not is_loaded}
    assert failed == UNLOADED


def test_tensor_that_llama_cpp_does_not_read_is_told_once(projector, tmp_path):
    extra = [from_array(f"v.blk.{n}.neck.weight", np.ones(4, np.float32)) for n in range(2)]
    with ggufkit.open(projector) as model:
        more = model.replace(tensors=[*model.tensors.values(), *extra])
        ggufkit.write(more, tmp_path / "more.gguf")
    (finding,) = (e for e in ggufkit.check(tmp_path / "more.gguf") if e.rule == "tensor-unread")
    assert "does not read the tensor 'v.blk.1.neck.weight'" in finding.message
    assert clip_loads.loads([tmp_path / "more.gguf"]) == [True]


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
