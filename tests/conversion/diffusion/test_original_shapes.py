"""An image model goes back to a checkpoint with the names and shapes that it came from."""

from __future__ import annotations

import numpy as np
import pytest

import diffusion_checkpoints
import ggufkit
from ggufkit import numpy, safetensors
from ggufkit.errors import CheckpointError
from shell import ggufkit as run


@pytest.mark.parametrize("name", ["sdxl", "wan", "flux"])
def test_a_checkpoint_comes_back_from_its_f32_file(name, tmp_path):
    source = diffusion_checkpoints.write(name, "F32", tmp_path / "model.safetensors")
    with ggufkit.convert(source, outtype="f32") as model:
        ggufkit.write(model, tmp_path / "model.gguf")
    with ggufkit.open(tmp_path / "model.gguf") as model:
        ggufkit.export(model, tmp_path / "out")
    with safetensors.load(tmp_path / "out/model.safetensors") as after:
        arrays = {name: tensor.numpy() for name, tensor in after.tensors.items()}
    before = diffusion_checkpoints.arrays(name, "F32")
    assert arrays.keys() == before.keys()
    assert all(np.array_equal(before[name], array) for name, array in arrays.items())
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["model.safetensors"]


def test_a_quantized_file_becomes_a_checkpoint_that_converts_again(tmp_path):
    source = diffusion_checkpoints.write("sd1", "BF16", tmp_path / "model.safetensors")
    with ggufkit.convert(source) as model:
        ggufkit.write(model.quantize("Q4_K_M"), tmp_path / "model.gguf")
    done = run("export", tmp_path / "model.gguf", tmp_path / "out", "--dtype", "f16")
    assert done.code == 0, done.err
    name = "input_blocks.4.1.transformer_blocks.0.attn1.to_q.weight"
    with ggufkit.convert(tmp_path / "out/model.safetensors") as model:
        assert model.architecture == "sd1"
        shape = model.metadata[f"comfy.gguf.orig_shape.{name}"]
        assert list(shape) == [320, 320]


@pytest.mark.parametrize("shape", [[3, 3], [-1, -8], [], "text"])
def test_a_shape_that_contradicts_its_tensor_is_refused(tmp_path, shape):
    source = diffusion_checkpoints.write("flux", "BF16", tmp_path / "model.safetensors")
    key = "comfy.gguf.orig_shape.img_in.weight"
    with ggufkit.convert(source) as model:
        value = shape if isinstance(shape, str) else np.array(shape, np.int32)
        wrong = model.replace(metadata=model.metadata.updated({key: value}))
        with pytest.raises(CheckpointError, match="orig_shape"):
            ggufkit.export(wrong, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_loaded_arrays_have_the_shapes_of_the_checkpoint(tmp_path):
    source = diffusion_checkpoints.write("sdxl", "F16", tmp_path / "model.safetensors")
    with ggufkit.convert(source) as model:
        assert model["input_blocks.3.0.op.weight"].shape == (36, 256)
        shapes = {name: array.shape for name, array in numpy.load(model).items()}
    before = diffusion_checkpoints.arrays("sdxl", "F16")
    assert shapes == {name: array.shape for name, array in before.items()}
