"""Weights that ComfyUI stores quantized have the numbers that its own library gives them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import comfy_weights
import ggufkit
from ggufkit.errors import CheckpointError
from tensors_file import safetensors_bytes

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "oracle"))
import comfy_quant_digests

LAYER = "double_blocks.0.img_attn.proj"  # recognizes FLUX


def write(path: Path, parts: dict[str, np.ndarray], kinds: dict[str, str], **notes: str) -> Path:
    """Write the parts of one layer of FLUX as a file."""
    tensors = {part if "." in part else f"{LAYER}.{part}": array for part, array in parts.items()}
    types = {f"{LAYER}.{part}": {"dtype": kind} for part, kind in kinds.items()}
    data = safetensors_bytes(tensors, **types)
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length]) | ({"__metadata__": notes} if notes else {})
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    return path


def weight(path: Path) -> np.ndarray:
    """Return the decoded weight, and check that no other tensor is left."""
    with ggufkit.convert(path, outtype="f32") as model:
        assert [*model.tensors] == [f"{LAYER}.weight"]
        return model[f"{LAYER}.weight"].numpy()


@pytest.mark.parametrize("format", comfy_weights.FORMATS)
def test_each_format_is_decoded_as_comfyui_decodes_it(tmp_path, format):
    parts, kinds, settings = comfy_weights.layer(format)
    parts["comfy_quant"] = comfy_weights.described(settings)
    parts["input_scale"] = np.float32([1])
    numbers = weight(write(tmp_path / "flux.safetensors", parts, kinds))
    assert comfy_quant_digests.digest(numbers) == comfy_quant_digests.recorded()[format]


@pytest.mark.parametrize("format", ["nvfp4", "mxfp8"])
def test_a_part_of_the_rows_is_decoded_alone(tmp_path, format):
    parts, kinds, settings = comfy_weights.layer(format)
    parts["comfy_quant"] = comfy_weights.described(settings)
    path = write(tmp_path / "flux.safetensors", parts, kinds)
    whole = weight(path)
    with ggufkit.convert(path, outtype="f32") as model:
        rows = model[f"{LAYER}.weight"].source.read(125, 131).view(np.float32)
    assert np.array_equal(rows, whole[125:131])


def test_the_old_form_of_scaled_fp8_is_decoded(tmp_path):
    parts, kinds, _ = comfy_weights.layer("float8_e4m3fn")
    parts["scale_weight"] = parts.pop("weight_scale")
    parts["scale_input"] = np.float32(1)
    scaled = {**parts, "model.diffusion_model.scaled_fp8": np.zeros(2, np.uint8)}
    path = write(tmp_path / "flux.safetensors", scaled, kinds)
    data = path.read_bytes().replace(LAYER.encode(), b"model.diffusion_model." + LAYER.encode())
    length = int.from_bytes(data[:8], "little") + 22 * data.count(b"model.diffusion_model.double")
    path.write_bytes(length.to_bytes(8, "little") + data[8:])
    recorded = comfy_quant_digests.recorded()["float8_e4m3fn"]
    assert comfy_quant_digests.digest(weight(path)) == recorded


def test_settings_in_the_header_are_read(tmp_path):
    parts, kinds, settings = comfy_weights.layer("int8_tensorwise convrot")
    layers = json.dumps({"layers": {LAYER: settings}})
    path = write(tmp_path / "flux.safetensors", parts, kinds, _quantization_metadata=layers)
    recorded = comfy_quant_digests.recorded()["int8_tensorwise convrot"]
    assert comfy_quant_digests.digest(weight(path)) == recorded


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"comfy_quant": comfy_weights.described({"format": "awq_w4a16"})}, "format 'awq_w4a16'"),
        ({"comfy_quant": comfy_weights.described({})}, "has the format None"),
        ({"comfy_quant": np.frombuffer(b"[", np.uint8)}, "is not JSON"),
        ({"comfy_quant": np.float32([1])}, "is not JSON"),
        ({"weight_scale_2": np.float32([1, 2])}, "is not one number"),
        ({"weight_scale": np.zeros(5, np.uint8)}, "has 5 scales, not 8,192"),
        ({"weight": np.zeros((3, 7), np.uint8)}, "no blocks of 16 columns"),
        ({"weight": np.zeros((3, 8), np.float32)}, "is of type F32, not U8"),
        ({"weight_scale": None}, "weight_scale is missing"),
        ({"weight": None}, "has scales, but no weight"),
        ({"pre_quant_scale": np.ones(8, np.float32)}, "has scales of its inputs"),
    ],
)
def test_parts_that_do_not_fit_are_refused(tmp_path, changes, message):
    parts, kinds, settings = comfy_weights.layer("nvfp4")
    parts["comfy_quant"] = comfy_weights.described(settings)
    parts = {part: array for part, array in (parts | changes).items() if array is not None}
    kinds = {} if "weight_scale" in changes else kinds
    path = write(tmp_path / "flux.safetensors", parts, kinds)
    with pytest.raises(CheckpointError) as error:
        ggufkit.convert(path, arch="flux")
    assert message in "\n".join(error.value.problems)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"convrot_groupsize": 3}, "has the convrot_groupsize 3"), ({"params": 3}, None)],
)
def test_rotations_of_other_sizes_are_refused(tmp_path, settings, message):
    parts, kinds, known = comfy_weights.layer("int8_tensorwise convrot")
    parts["comfy_quant"] = comfy_weights.described(known | settings)
    path = write(tmp_path / "flux.safetensors", parts, kinds)
    if message is None:
        weight(path)
        return
    with pytest.raises(CheckpointError) as error:
        ggufkit.convert(path)
    assert message in "\n".join(error.value.problems)
