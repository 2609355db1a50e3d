"""Packed tensors compute what decoded ones do, in the memory of the file."""

from __future__ import annotations

import copy
import importlib
import io

import numpy as np
import pytest

import ggufkit
import ggufkit.torch
from ggufkit.errors import MissingTensorError, ShapeError, TensorTypeError

pytestmark = pytest.mark.torch
NUMBERS = np.random.default_rng(7).standard_normal((64, 256)).astype(np.float32)
KINDS = ("Q4_K", "Q8_0", "IQ4_XS", "F16")
BIAS = np.linspace(-1, 1, 64, dtype=np.float32)


@pytest.fixture
def path(tmp_path):
    out = tmp_path / "m.gguf"
    tensors = {kind: (NUMBERS, kind) for kind in KINDS}
    ggufkit.save(out, tensors | {"bias": BIAS, "stack": (NUMBERS.reshape(4, 16, 256), "Q6_K")})
    return out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_modules_of_packed_weights_compute_what_plain_ones_do(path, torch, kind, dtype):
    dtype = getattr(torch, dtype)
    packed, plain = ggufkit.torch.load_packed(path), ggufkit.torch.load(path, dtype=dtype)
    inputs, tokens = torch.randn(3, 256, dtype=dtype), torch.tensor([[1, 5], [63, 0]])
    linear = ggufkit.torch.linear(packed[kind], packed["bias"]).to(dtype)
    expected = torch.nn.functional.linear(inputs, plain[kind], plain["bias"])
    assert torch.equal(linear(inputs), expected)
    embedding = ggufkit.torch.embedding(packed[kind]).to(dtype)
    assert torch.equal(embedding(tokens), plain[kind][tokens])
    with ggufkit.open(path) as model:
        assert linear.weight.nbytes == model[kind].nbytes


def test_modules_compile_into_one_graph(path, torch):
    linear = ggufkit.torch.linear(ggufkit.torch.load_packed(path)["Q4_K"])
    inputs = torch.randn(3, 256)
    compiled = torch.compile(linear, backend="eager", fullgraph=True)
    assert torch.equal(compiled(inputs), linear(inputs))


def test_state_dicts_keep_weights_packed(path, torch):
    packed = ggufkit.torch.load_packed(path)
    linear = ggufkit.torch.linear(packed["Q4_K"], packed["bias"])
    file = io.BytesIO()
    torch.save(linear.state_dict(), file)
    assert len(file.getvalue()) < 2 * packed["Q4_K"].nbytes
    state = torch.load(io.BytesIO(file.getvalue()), weights_only=False)
    other = ggufkit.torch.linear(packed["Q4_K"].clone())
    other.weight.blocks.zero_()
    other.load_state_dict({"weight": state["weight"]})
    for module in (other, copy.deepcopy(linear)):
        assert torch.equal(module.weight.dequantize(), packed["Q4_K"].dequantize())


def test_packed_tensors_move_and_refuse_changes(path, torch):
    tensor = ggufkit.torch.load_packed(path)["Q4_K"]
    assert tensor.to("meta").device.type == "meta"
    assert tensor.to(torch.float16).dequantize().dtype == torch.float16
    assert tensor.to(torch.float16).nbytes == tensor.nbytes
    assert torch.equal(tensor + 1, tensor.dequantize() + 1)
    with pytest.raises(TensorTypeError, match="cannot be changed"):
        tensor.add_(1)
    with pytest.raises(TensorTypeError, match="packed values of its type"):
        tensor.copy_(torch.ones(64, 256))
    with pytest.raises(ShapeError, match="not a matrix"):
        ggufkit.torch.linear(ggufkit.torch.load_packed(path)["stack"])
    with pytest.raises(ShapeError, match="bytes are not a tensor"):
        ggufkit.torch.PackedTensor(tensor.blocks, "Q4_K", (64, 512))


@pytest.mark.parametrize("index", [0, -1, slice(2, 9), (slice(1, 3), slice(5, 70)), (3, 7), ...])
@pytest.mark.parametrize("name", ["Q4_K", "stack", "bias"])
def test_slices_are_those_of_the_whole_tensor(path, torch, name, index):
    if name == "bias" and isinstance(index, tuple):
        index = index[0]
    whole = ggufkit.torch.load(path)[name]
    with ggufkit.torch.safe_open(path, framework="pt", device="cpu") as file:
        assert file.keys() == list(ggufkit.torch.load(path))
        assert torch.equal(file.get_tensor(name), whole)
        part = file.get_slice(name)
        assert part.get_shape() == list(whole.shape)
        assert torch.equal(part[index], whole[index])


def test_slices_read_no_other_rows(path, torch, monkeypatch):
    decoded = []
    fill = ggufkit.frameworks.fill
    original = fill._decode
    monkeypatch.setattr(
        fill, "_decode", lambda *piece: decoded.append(original(*piece)) or decoded[-1]
    )
    with ggufkit.torch.safe_open(path, dtype=torch.float16) as file:
        assert file.get_slice("Q4_K")[4:6].dtype == torch.float16
        assert sum(decoded) == 2 * 256
        with pytest.raises(MissingTensorError):
            file.get_tensor("none")


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_K"])
def test_layers_of_diffusers_take_the_blocks(torch, tmp_path, kind):
    utils = pytest.importorskip("diffusers.quantizers.gguf.utils")
    types = importlib.import_module("gguf").GGMLQuantizationType
    numbers = np.random.default_rng(1).standard_normal((3, 512)).astype(np.float32)
    ggufkit.save(tmp_path / "x.gguf", {"a": (numbers, kind)})
    weight = ggufkit.torch.load_packed(tmp_path / "x.gguf")["a"]
    layer = utils.GGUFLinear(512, 3, bias=False, compute_dtype=torch.float32)
    layer.weight = utils.GGUFParameter(weight.blocks, quant_type=types(weight.tensor_type.id))
    assert layer.weight.data_ptr() == weight.blocks.data_ptr()
    inputs = torch.randn(2, 512)
    # diffusers computes elements in float16: exactly in Q8_0, with four roundings in Q4_K.
    decoded = utils.dequantize_gguf_tensor(layer.weight)
    half, exact = weight.dequantize(torch.float16), weight.dequantize()
    bound = 0 if kind == "Q8_0" else 4 * 2**-11 * exact.abs().max()
    assert (decoded.float() - half.float()).abs().max() <= bound
    assert torch.equal(layer(inputs), torch.nn.functional.linear(inputs, decoded.float()))


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_K", "IQ4_XS"])
def test_layers_of_comfyui_gguf_take_the_blocks(torch, tmp_path, kind):
    """Run a stand-in with the interface of ComfyUI-GGUF's `ops.py`: ComfyUI is not on PyPI.

    Its GGMLTensor is a tensor of bytes, a row of bytes for each row of weights, with a
    `tensor_type` of gguf and a `tensor_shape`. Its layers decode that in each call, and call
    gguf-py for the types that they have no code of their own for. So does this one for all.
    """
    gguf = pytest.importorskip("gguf")

    class GGMLTensor(torch.Tensor):
        @staticmethod
        def __new__(cls, data, *, tensor_type, tensor_shape):
            tensor = torch.Tensor._make_subclass(cls, data)
            tensor.tensor_type, tensor.tensor_shape = tensor_type, tensor_shape
            return tensor

    def linear(inputs, weight):
        rows = weight.detach().as_subclass(torch.Tensor).reshape(-1, weight.size(-1)).numpy()
        elements = torch.from_numpy(gguf.quants.dequantize(rows, weight.tensor_type))
        return torch.nn.functional.linear(inputs, elements.reshape(weight.tensor_shape))

    numbers = np.random.default_rng(1).standard_normal((3, 512)).astype(np.float32)
    ggufkit.save(tmp_path / "x.gguf", {"a": (numbers, kind)})
    packed = ggufkit.torch.load_packed(tmp_path / "x.gguf")["a"]
    number = gguf.GGMLQuantizationType(packed.tensor_type.id)
    weight = GGMLTensor(packed.blocks, tensor_type=number, tensor_shape=packed.shape)
    assert weight.data_ptr() == packed.blocks.data_ptr()
    inputs = torch.randn(2, 512)
    assert torch.equal(linear(inputs, weight), ggufkit.torch.linear(packed)(inputs))
