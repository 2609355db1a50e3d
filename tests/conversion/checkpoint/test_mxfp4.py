"""MXFP4 in checkpoints: pairs of tensors become blocks, and come back."""

from __future__ import annotations

import numpy as np
import pytest

from ggufkit.conversion.checkpoint.fp4 import FORMS, join_mxfp4, mxfp4_experts, split_mxfp4
from ggufkit.conversion.checkpoint.safetensors import open_safetensors
from ggufkit.models.sources import from_array
from tensors_file import safetensors_bytes

RNG = np.random.default_rng(11)


def opened(folder, form, stems):
    """Return random codes and scales of four experts with three groups in each row, by name."""
    shape = (4, 5, 3, 16) if form.grouped else (4, 5, 48)
    arrays = {"embed.weight": np.zeros((2, 2), np.float32)}
    changes = {}
    for stem in stems:
        codes, scales = f"{stem}{form.codes}", f"{stem}{form.scales}"
        arrays[codes] = RNG.integers(0, 256, shape, np.uint8)
        arrays[scales] = RNG.integers(110, 140, (4, 5, 3), np.uint8)
        changes[codes] = {"dtype": form.codes_type.name}
        changes[scales] = {"dtype": form.scales_type.name}
    path = folder / "model.safetensors"
    path.write_bytes(safetensors_bytes(arrays, **changes))
    return {tensor.name: tensor for tensor in open_safetensors(path)[1]}


@pytest.mark.parametrize("form", FORMS.values(), ids=lambda form: form.method)
def test_codes_and_scales_come_back_from_blocks(form, tmp_path):
    before = opened(tmp_path, form, ["layers.0.experts.down"])
    blocks = join_mxfp4(before, form.method)
    assert [(t.type.name, t.shape) for t in blocks] == [("MXFP4", (4, 5, 96)), ("F32", (2, 2))]
    after = {tensor.name: tensor for tensor in split_mxfp4(blocks, form.method)}
    assert after.keys() == before.keys()
    for name, tensor in before.items():
        assert (after[name].type, after[name].shape) == (tensor.type, tensor.shape)
        assert bytes(after[name].raw()) == bytes(tensor.raw())


@pytest.mark.parametrize("method", ["compressed-tensors", "fp8"])
def test_layers_come_by_number_before_all_other_tensors(method, tmp_path):
    form = FORMS[method]
    tensors = opened(tmp_path, form, [f"layers.{n}.experts.0.w1" for n in (0, 10, 2)])
    blocks = join_mxfp4(tensors, method)
    assert [tensor.name.split(".")[1] for tensor in blocks] == ["0", "2", "10", "weight"]


def test_experts_stay_mxfp4_only_if_all_of_them_are():
    rows = np.ones((2, 2, 32), np.float32)
    packed = from_array("blk.0.ffn_up_exps.weight", rows, "MXFP4")
    head = from_array("output.weight", rows[0], "MXFP4")
    plain = from_array("blk.1.ffn_up_exps.weight", rows)
    assert mxfp4_experts([packed, head]) == {packed.name}
    assert mxfp4_experts([packed, plain]) == frozenset()
