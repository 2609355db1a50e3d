"""Outputs of private files are private, and an output keeps the mode of the file it replaces."""

from __future__ import annotations

import os
import stat

import numpy as np
import pytest

import ggufkit
from ggufkit.system import staging
from neighbours import NOBODY
from plain_checkpoint import ARCH, CONFIG, whole
from platforms import posix
from tensors_file import write_checkpoint

pytestmark = posix
as_root = pytest.mark.skipif(
    getattr(os, "geteuid", lambda: 1)() != 0, reason="only root gives files to others"
)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def source(tmp_path):
    path = ggufkit.save(tmp_path / "in.gguf", {"a": np.ones(64, "f4")}, {"text": "x"})[0]
    path.chmod(0o600)
    return path


def copied(source, out, **options):
    with ggufkit.open(source) as model:
        return ggufkit.write(model, out, **options)[0]


@pytest.mark.parametrize(
    ("before", "after"),
    [(0o600, 0o600), (0o640, 0o640), (0o400, 0o600), (0o644, 0o644), (0o444, 0o644)],
)
def test_copy_has_no_wider_permissions_than_its_input(source, tmp_path, before, after):
    source.chmod(before)
    assert mode(copied(source, tmp_path / "out.gguf")) == after
    assert mode(copied(source, tmp_path / "out2.gguf", resume=True)) == after


@pytest.mark.parametrize("resume", [False, True])
def test_copy_of_a_private_file_is_private_from_its_first_byte(
    source, tmp_path, monkeypatch, resume
):
    out = tmp_path / "out.gguf"
    modes = []
    create = staging.create

    def seen(path, mode):
        descriptor = create(path, mode)
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return descriptor

    monkeypatch.setattr(staging, "create", seen)
    out.write_bytes(b"old")
    out.chmod(0o666)
    copied(source, out, resume=resume)
    assert modes == [0o600]
    assert mode(out) == 0o600


@pytest.mark.parametrize("given_mode", [0o600, 0o640, 0o666, 0o444, 0o755])
def test_output_keeps_the_mode_of_the_file_it_replaces(source, tmp_path, given_mode):
    source.chmod(0o644)
    out = tmp_path / "out.gguf"
    out.write_bytes(b"old")
    out.chmod(given_mode)
    assert mode(copied(source, out)) == given_mode
    assert mode(copied(source, out, resume=True)) == given_mode


def test_first_shard_keeps_its_mode_too(tmp_path):
    tensors = {f"t{n}": np.ones(64, "f4") for n in range(3)}
    paths = ggufkit.save(tmp_path / "s.gguf", tensors, shard_tensors=1)
    for path in paths:
        path.chmod(0o640)
    assert ggufkit.save(tmp_path / "s.gguf", tensors, shard_tensors=1) == paths
    assert {mode(path) for path in paths} == {0o640}


@as_root
def test_output_keeps_an_owner_who_may_read_the_input(source, tmp_path):
    out = tmp_path / "out.gguf"
    for input_mode, owner in ((0o644, NOBODY), (0o600, 0)):
        source.chmod(input_mode)
        out.write_bytes(b"old")
        os.chown(out, NOBODY, NOBODY)
        copied(source, out)
        assert out.stat().st_uid == owner


def test_importance_matrix_merged_from_private_ones_is_private(tmp_path):
    entry = ggufkit.imatrix.Entry(np.ones((1, 64), "f4"), np.array([3]))
    path = ggufkit.Imatrix({"a": entry}, ("text",), 3, 512).save(tmp_path / "m.gguf")
    assert mode(path) == 0o644
    path.chmod(0o600)
    private = ggufkit.Imatrix.open(path)
    for matrix in (private, ggufkit.imatrix.merge([private, private])):
        for name in ("out.gguf", "out.dat"):
            assert mode(matrix.save(tmp_path / name)) == 0o600


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_any_private_file_of_a_checkpoint_makes_its_outputs_private(tmp_path, name):
    (tmp_path / "arch").mkdir()
    (tmp_path / "arch" / "plain.toml").write_text(ARCH)
    folder = write_checkpoint(tmp_path / "checkpoint", CONFIG, model=whole())
    (folder / name).chmod(0o600)
    with ggufkit.convert(folder, arch_path=[tmp_path / "arch"]) as model:
        for number, variant in enumerate((model, ggufkit.quantize(model, "F32"))):
            assert mode(ggufkit.write(variant, tmp_path / f"{number}.gguf")[0]) == 0o600


def test_private_importance_data_make_a_quantized_file_private(tmp_path):
    tensors = {"blk.0.ffn_up.weight": np.ones((4, 64), "f4")}
    path = ggufkit.save(tmp_path / "in.gguf", tensors, {"general.architecture": "llama"})[0]
    entry = ggufkit.imatrix.Entry(np.ones((1, 64), "f4"), np.array([3]))
    data = ggufkit.Imatrix({"blk.0.ffn_up.weight": entry}, ("text",), 3, 512)
    matrix = data.save(tmp_path / "m.gguf")
    matrix.chmod(0o600)
    with ggufkit.open(path) as model:
        quantized = ggufkit.quantize(model, "Q4_0", imatrix=matrix)
        assert mode(ggufkit.write(quantized, tmp_path / "out.gguf")[0]) == 0o600
