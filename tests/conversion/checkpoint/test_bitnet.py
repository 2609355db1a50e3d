"""BitNet's packed weights become numbers, and what contradicts the format is listed."""

from __future__ import annotations

import numpy as np
import pytest

from ggufkit.conversion.checkpoint.dequantize import dequantize
from ggufkit.conversion.checkpoint.safetensors import open_safetensors
from ggufkit.errors import CheckpointError
from tensors_file import safetensors_bytes

CONFIG = {"quantization_config": {"quant_method": "bitnet"}}
RNG = np.random.default_rng(12)


def opened(folder, **arrays):
    path = folder / "model.safetensors"
    path.write_bytes(
        safetensors_bytes({name.replace("_", ".", 1): a for name, a in arrays.items()})
    )
    return open_safetensors(path)[1]


def packed(values):
    """Return codes of -1, 0 and 1 with four rows, one of each quarter, in one of bytes."""
    quarters = (values + 1).astype(np.uint8).reshape(4, -1, values.shape[1])
    return quarters[0] | quarters[1] << 2 | quarters[2] << 4 | quarters[3] << 6


@pytest.mark.parametrize("step", [1, 3, 5, 24])
def test_rows_come_from_all_quarters_of_the_bytes(tmp_path, step):
    values = RNG.integers(-1, 2, (24, 7))
    scale = np.array([3.5], np.float32)
    tensors = opened(tmp_path, w_weight=packed(values), w_weight_scale=scale, v_weight=scale)
    weights = {tensor.name: tensor for tensor in dequantize(tensors, CONFIG).tensors}
    assert weights.keys() == {"w.weight", "v.weight"}
    weight = weights["w.weight"]
    parts = [weight.source.read(start, min(start + step, 24)) for start in range(0, 24, step)]
    expected = values.astype(np.float32) / np.float32(3.5)
    assert np.array_equal(np.concatenate(parts).view(np.float32), expected)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "w.weight is missing"),
        ({"w_weight": np.ones((4, 4), np.float32)}, "w.weight is of type F32, not U8 or I8"),
        ({"w_weight": np.ones(4, np.uint8)}, "is not a matrix"),
        ({"w_weight": np.ones((4, 4), np.uint8), "w_weight_scale": np.ones(2, np.float32)},
         r"has the shape \(2,\), not \(1,\)"),
    ],
)  # fmt: skip
def test_what_contradicts_the_format_is_refused(tmp_path, arrays, message):
    all_arrays = {"w_weight_scale": np.ones(1, np.float32)} | arrays
    with pytest.raises(CheckpointError, match=message):
        dequantize(opened(tmp_path, **all_arrays), CONFIG)
