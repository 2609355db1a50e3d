from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggufkit import quants
from ggufkit.conversion.checkpoint.dequantize import dequantize
from ggufkit.conversion.checkpoint.safetensors import open_safetensors
from ggufkit.errors import CheckpointError
from tensors_file import safetensors_bytes

RNG = np.random.default_rng(11)
FP8 = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [4, 3]}}


def opened(folder, arrays, **dtypes):
    changes = {name: {"dtype": dtype} for name, dtype in dtypes.items()}
    path = folder / "model.safetensors"
    path.write_bytes(safetensors_bytes(arrays, **changes))
    return open_safetensors(path)[1]


def by_name(done):
    return {tensor.name: tensor for tensor in done.tensors}


@pytest.mark.parametrize(
    ("dtype", "known"), [("F8_E4M3", ml_dtypes.float8_e4m3fn), ("F8_E5M2", ml_dtypes.float8_e5m2)]
)
def test_every_byte_of_fp8_matches_ml_dtypes(tmp_path, dtype, known):
    codes = np.arange(256, dtype=np.uint8).reshape(16, 16)
    arrays = {"w": codes, "w_scale_inv": np.ones(1, np.float32)}
    config = {"quantization_config": {"quant_method": "fp8"}}
    decoded_values = by_name(dequantize(opened(tmp_path, arrays, w=dtype), config))["w"].numpy()
    assert np.array_equal(decoded_values, codes.view(known).astype(np.float32), equal_nan=True)


@given(st.integers(1, 11), st.integers(1, 10), st.integers(1, 5))
def test_each_block_has_its_own_scale(tmp_path_factory, high, wide, step):
    codes = RNG.integers(0, 120, (high, wide), np.uint8)
    scale = RNG.normal(size=(-(-high // 4), -(-wide // 3))).astype(np.float32)
    folder = tmp_path_factory.mktemp("fp8")
    done = dequantize(opened(folder, {"w": codes, "w_scale_inv": scale}, w="F8_E4M3"), FP8)
    (weight,) = done.tensors
    spread = np.repeat(np.repeat(scale, 4, 0)[:high], 3, 1)[:, :wide]
    expected = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32) * spread
    parts = [weight.source.read(start, min(start + step, high)) for start in range(0, high, step)]
    assert np.array_equal(np.concatenate(parts).view(np.float32), expected)


def test_stacked_matrices_have_stacked_scales(tmp_path):
    codes = RNG.integers(0, 120, (3, 6, 6), np.uint8)
    scale = RNG.normal(size=(3, 2, 2)).astype(np.float32)
    tensors = opened(tmp_path, {"w": codes, "w_scale_inv": scale}, w="F8_E4M3")
    decoded_values = dequantize(tensors, FP8).tensors[0].numpy()
    spread = np.repeat(np.repeat(scale, 4, 1)[:, :6], 3, 2)[:, :, :6]
    assert np.array_equal(
        decoded_values, codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32) * spread
    )


def test_each_row_of_compressed_tensors_has_its_own_scale(tmp_path):
    codes = RNG.integers(0, 120, (5, 7), np.uint8)
    scale = RNG.normal(size=(5, 1)).astype(np.float32)
    arrays = {"x.weight": codes, "x.weight_scale": scale}
    settings = {"quant_method": "compressed-tensors", "format": "float-quantized",
            "config_groups": {"g": {"weights": {"strategy": "channel"}}}}  # fmt: skip
    tensors = opened(tmp_path, arrays, **{"x.weight": "F8_E4M3"})
    decoded_values = by_name(dequantize(tensors, {"quantization_config": settings}))[
        "x.weight"
    ].numpy()
    assert np.array_equal(
        decoded_values, codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32) * scale
    )


def test_mxfp4_keeps_every_number(tmp_path):
    blocks = RNG.integers(0, 256, (2, 4, 3, 16), np.uint8)
    scales = RNG.integers(110, 130, (2, 4, 3), np.uint8)
    tensors = opened(
        tmp_path, {"a": np.ones(2, np.float32), "e_blocks": blocks, "e_scales": scales}
    )
    done = dequantize(tensors, {"quantization_config": {"quant_method": "mxfp4"}})
    assert [tensor.name for tensor in done.tensors] == ["e_mxfp4", "a"]
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    table = np.concatenate((values, -values))
    codes = np.stack((blocks & 15, blocks >> 4), axis=-1).reshape(2, 4, 3, 32)
    expected = table[codes] * np.exp2(scales.astype(np.float32) - 127)[..., None]
    decoded_values = quants.dequantize(done.tensors[0].raw(), "MXFP4")
    assert np.array_equal(decoded_values.reshape(expected.shape), expected)


def test_checkpoint_without_quantization_is_unchanged(tmp_path):
    tensors = opened(tmp_path, {"a": np.ones((2, 2), np.float32)})
    for config in ({}, {"quantization_config": None}, {"quantization_config": {}}):
        assert dequantize(tensors, config).tensors == tensors


def test_leaves_out_scales_of_activations_and_names_them(tmp_path):
    arrays = {"w": RNG.integers(0, 9, (4, 3), np.uint8), "w_scale_inv": np.ones((1, 1), np.float32),
            "x.activation_scale": np.ones(1, np.float32)}  # fmt: skip
    done = dequantize(opened(tmp_path, arrays, w="F8_E4M3"), FP8)
    assert done.skipped == ["x.activation_scale"]
    assert list(by_name(done)) == ["w"]


@pytest.mark.parametrize(
    ("arrays", "settings", "message"),
    [
        ({}, {"quant_method": "hqq"}, "hqq"),
        ({}, {"quant_method": ["fp8"]}, "cannot decode"),
        ({}, {"quant_method": "compressed-tensors", "format": "int-quantized"}, "int-quantized"),
        ({"w_scale_inv": np.ones(1, np.float32)}, {"quant_method": "fp8"}, "not there"),
        (
            {"w": np.ones((4, 4), np.float32), "w_scale_inv": np.ones(1, np.float32)},
            {"quant_method": "fp8"},
            "scales for an FP8 matrix",
        ),
        ({"e_blocks": np.ones((2, 3, 16), np.uint8)}, {"quant_method": "mxfp4"}, "lacks scales"),
        (
            {"e_blocks": np.ones(16, np.uint8), "e_scales": np.array(1, np.uint8)},
            {"quant_method": "mxfp4"},
            "lacks scales",
        ),
        (
            {"e_blocks": np.ones((2, 3, 16), np.float32), "e_scales": np.ones((2, 3), np.uint8)},
            {"quant_method": "mxfp4"},
            "must be bytes",
        ),
        (
            {"e_blocks": np.ones((2, 3, 16), np.uint8), "e_scales": np.ones((2, 3), np.float16)},
            {"quant_method": "mxfp4"},
            "must be bytes",
        ),
    ],
)
def test_reports_what_cannot_be_decoded(tmp_path, arrays, settings, message):
    with pytest.raises(CheckpointError, match=message):
        dequantize(opened(tmp_path, arrays), {"quantization_config": settings})


def test_scales_of_fp8_must_be_floats(tmp_path):
    arrays = {"w": np.ones((6, 6), np.uint8), "w_scale_inv": np.ones((1, 1), np.int64)}
    with pytest.raises(CheckpointError, match="w_scale_inv is I64: scales are F32, F16, BF16"):
        dequantize(opened(tmp_path, arrays, w="F8_E4M3"), FP8)


def test_scales_may_be_powers_of_two_in_a_byte(tmp_path):
    powers = np.array([[0, 127, 254], [130, 1, 255]], np.uint8)
    arrays = {"w": np.full((6, 9), 0x38, np.uint8), "w_scale_inv": powers}  # ones
    weights = by_name(dequantize(opened(tmp_path, arrays, w="F8_E4M3", w_scale_inv="F8_E8M0"), FP8))
    known = powers.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    expected = np.repeat(np.repeat(known, 4, axis=0)[:6], 3, axis=1)
    assert np.array_equal(weights["w"].numpy(), expected, equal_nan=True)


@pytest.mark.parametrize("wide", [6, 7, 10**12, 10**30])
def test_blocks_may_be_wider_than_the_matrix(tmp_path, wide):
    arrays = {"w": np.full((6, 6), 0x38, np.uint8), "w_scale_inv": np.full((6, 1), 2, np.float32)}
    settings = {"quant_method": "fp8", "weight_block_size": [1, wide]}
    done = dequantize(opened(tmp_path, arrays, w="F8_E4M3"), {"quantization_config": settings})
    assert by_name(done)["w"].numpy().tolist() == [[2.0] * 6] * 6


def test_keeps_scales_of_mxfp4_without_blocks(tmp_path):
    arrays = {"e_scales": np.ones((2, 3), np.uint8)}
    done = dequantize(opened(tmp_path, arrays), {"quantization_config": {"quant_method": "mxfp4"}})
    assert list(by_name(done)) == ["e_scales"]


@pytest.mark.parametrize("block", [[4, 4], [0, 1], [-1, 2]])
def test_reports_scales_that_do_not_fit(tmp_path, block):
    arrays = {"w": np.ones((6, 6), np.uint8), "w_scale_inv": np.ones((3, 3), np.float32)}
    settings = {"quant_method": "fp8", "weight_block_size": block}
    with pytest.raises(CheckpointError):
        dequantize(opened(tmp_path, arrays, w="F8_E4M3"), {"quantization_config": settings})
