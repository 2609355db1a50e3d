"""NVFP4 in checkpoints: codes and scales become blocks with the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from ggufkit.conversion.checkpoint.fp4 import is_nvfp4, nvfp4_blocks
from ggufkit.conversion.checkpoint.safetensors import open_safetensors
from ggufkit.errors import CheckpointError
from tensors_file import safetensors_bytes

RNG = np.random.default_rng(7)
MAGNITUDES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def opened(folder, width=128, *, scale_width=None, whole=0.5):
    """Return the tensors of one matrix with three rows, and an unrelated one."""
    arrays = {
        "norm.weight": np.ones(4, np.float32),
        "up.weight": RNG.integers(0, 256, (3, width // 2), np.uint8),
        "up.weight_scale": np.full((3, scale_width or width // 16), 0x38, np.uint8),  # 1.0
        "up.weight_scale_2": np.array(whole, np.float32),
    }
    kinds = {"up.weight": {"dtype": "U8"}, "up.weight_scale": {"dtype": "F8_E4M3"}}
    path = folder / "model.safetensors"
    path.write_bytes(safetensors_bytes(arrays, **kinds))
    return arrays, {tensor.name: tensor for tensor in open_safetensors(path)[1]}


def test_blocks_stand_for_the_numbers_of_the_codes(tmp_path):
    arrays, tensors = opened(tmp_path)
    blocks, rest = nvfp4_blocks(tensors)
    assert [tensor.name for tensor in blocks] == ["up.weight", "up.scale"]
    assert list(rest) == ["norm.weight"]
    codes = arrays["up.weight"]
    halves = np.stack([codes & 15, codes >> 4], axis=-1).reshape(3, -1)
    expected = MAGNITUDES[halves & 7] * np.where(halves & 8, -1, 1)
    assert np.array_equal(blocks[0].numpy(), expected)
    assert blocks[1].numpy().tolist() == [0.5]


def test_scales_of_one_are_left_out(tmp_path):
    blocks, _ = nvfp4_blocks(opened(tmp_path, whole=1.0)[1])
    assert [tensor.name for tensor in blocks] == ["up.weight"]


@pytest.mark.parametrize(("width", "scale_width"), [(128, 4), (96, None)])
def test_refuses_what_has_no_blocks(tmp_path, width, scale_width):
    with pytest.raises(CheckpointError, match=r"up\.weight"):
        nvfp4_blocks(opened(tmp_path, width, scale_width=scale_width)[1])


def test_settings_name_nvfp4_in_several_ways():
    group = {"group_0": {"format": "nvfp4-pack-quantized"}}
    assert is_nvfp4({"quant_algo": "NVFP4"})
    assert is_nvfp4({"quantized_layers": {"lm_head": {"quant_algo": "NVFP4"}}})
    assert is_nvfp4({"format": "mixed-precision", "config_groups": group})
    assert not is_nvfp4({"quant_algo": "FP8", "quantized_layers": [], "config_groups": 3})
    with pytest.raises(CheckpointError, match="W4A16_NVFP4"):
        is_nvfp4({"quant_algo": "W4A16_NVFP4"})
