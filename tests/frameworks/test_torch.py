"""State dicts hold what the model holds, in the dtype asked for, and can be written to."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import ggufkit
from ggufkit import quants
from ggufkit.errors import MissingExtraError, TensorTypeError, ValueTypeError
from ggufkit.format.types import tensor_type
from ggufkit.frameworks import fill

NUMBERS = np.random.default_rng(4).standard_normal((6, 512)).astype(np.float32)
TENSORS = {
    "f32": NUMBERS,
    "f16": NUMBERS.astype(np.float16),
    "bf16": (NUMBERS, "BF16"),
    "q4_k": (NUMBERS, "Q4_K"),
    "q8_0": (NUMBERS, "Q8_0"),
    "stack": (NUMBERS.reshape(2, 3, 512), "Q6_K"),
    "ids": np.arange(7, dtype=np.int32),
    "none": np.empty((0, 32), np.float32),
}
OWN = {
    "f32": "float32", "f16": "float16", "bf16": "bfloat16", "q4_k": "float32", "q8_0": "float32",
    "stack": "float32", "ids": "int32", "none": "float32",
}  # fmt: skip
needs_torch = pytest.mark.torch


@pytest.fixture
def path(tmp_path):
    out = tmp_path / "model.gguf"
    ggufkit.save(out, TENSORS, {"general.architecture": "llama"})
    return out


def as_numpy(tensor):
    return tensor.float().numpy() if tensor.is_floating_point() else tensor.numpy()


@needs_torch
@pytest.mark.parametrize("mmap", [False, True])
def test_tensors_keep_their_dtype_order_shape_and_values(path, torch, mmap):
    loaded = ggufkit.torch.load(path, mmap=mmap)
    with ggufkit.open(path) as model:
        assert list(loaded) == list(model.tensors)
        for name, tensor in loaded.items():
            assert tensor.dtype == getattr(torch, OWN[name])
            expected = model.tensors[name].numpy()
            assert np.array_equal(as_numpy(tensor), expected.astype(as_numpy(tensor).dtype))


@needs_torch
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("mmap", [False, True])
def test_floats_are_rounded_as_torch_rounds_and_integers_stay(path, torch, dtype, mmap):
    expected = getattr(torch, dtype)
    exact = ggufkit.torch.load(path)
    for name, tensor in ggufkit.torch.load(path, dtype=expected, mmap=mmap).items():
        whole = name == "ids"
        assert tensor.dtype == (torch.int32 if whole else expected)
        assert torch.equal(tensor, exact[name] if whole else exact[name].to(expected))


@needs_torch
@pytest.mark.parametrize("mmap", [False, True])
def test_every_tensor_can_be_written_to_without_touching_the_file(path, torch, mmap):
    before = path.read_bytes()
    with ggufkit.open(path) as model:
        loaded = ggufkit.torch.load(model, mmap=mmap)
    for tensor in loaded.values():
        tensor.zero_()
    assert all(torch.count_nonzero(tensor) == 0 for tensor in loaded.values())
    assert path.read_bytes() == before


@needs_torch
def test_mapped_tensors_share_one_map_and_outlive_the_model(path):
    loaded = ggufkit.torch.load(path, mmap=True)
    assert np.array_equal(loaded["f32"].numpy(), NUMBERS)
    distance = loaded["f16"].data_ptr() - loaded["f32"].data_ptr()
    with ggufkit.open(path) as model:
        assert distance == model.tensors["f16"].offset - model.tensors["f32"].offset


@needs_torch
def test_big_endian_files_load_the_same(path, torch, tmp_path):
    with ggufkit.open(path) as model:
        ggufkit.write(model, tmp_path / "big.gguf", byte_order="big")
    for mmap in (False, True):
        big = ggufkit.torch.load(tmp_path / "big.gguf", mmap=mmap)
        assert all(
            torch.equal(big[name], tensor) for name, tensor in ggufkit.torch.load(path).items()
        )


@needs_torch
def test_the_meta_device_reads_nothing(path, torch):
    loaded = ggufkit.torch.load(path, dtype=torch.bfloat16, device="meta")
    assert {str(tensor.device) for tensor in loaded.values()} == {"meta"}
    assert loaded["stack"].shape == (2, 3, 512)
    assert loaded["q4_k"].dtype == torch.bfloat16
    packed = ggufkit.torch.load_packed(path, device="meta")
    assert packed["q4_k"].blocks.shape == (6, 288)


@needs_torch
def test_packed_tensors_decode_to_the_same(path, torch):
    packed = ggufkit.torch.load_packed(path)
    for name, tensor in ggufkit.torch.load(path).items():
        assert packed[name].shape == tuple(tensor.shape)
        assert torch.equal(packed[name].dequantize(tensor.dtype), tensor)
    packed["q4_k"].blocks.zero_()  # it is no view of the file


@needs_torch
def test_progress_reaches_the_number_of_elements(path):
    seen = []
    ggufkit.torch.load(path, threads=1, progress=lambda done, total: seen.append((done, total)))
    total = 6 * NUMBERS.size + 7
    assert seen[-1] == (total, total)


@needs_torch
def test_saved_tensors_come_back_bit_for_bit(torch, tmp_path):
    tensors = {
        "a": torch.randn(3, 64).to(torch.bfloat16),
        "b": torch.randn(64, 5).half().T,  # not contiguous
        "c": torch.randn(4, requires_grad=True),
        "d": torch.arange(3),
        "e": torch.tensor(2.5),
        "f": torch.randn(0, 4),
        "g": torch.tensor(1.5, dtype=torch.bfloat16),
    }
    ggufkit.torch.save(tmp_path / "x.gguf", tensors, {"general.architecture": "llama"})
    loaded = ggufkit.torch.load(tmp_path / "x.gguf")
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor)


@needs_torch
def test_saving_quantizes_as_asked(torch, tmp_path):
    weight = torch.from_numpy(NUMBERS)
    arrays = {"a": (weight, "Q8_0"), "b": (weight.bfloat16(), "Q4_K"), "c": (NUMBERS, "Q8_0")}
    ggufkit.torch.save(tmp_path / "x.gguf", arrays)
    with ggufkit.open(tmp_path / "x.gguf") as model:
        raw = {name: tensor.raw() for name, tensor in model.tensors.items()}
    assert np.array_equal(raw["a"], quants.quantize(NUMBERS, "Q8_0"))
    assert np.array_equal(raw["b"], quants.quantize(weight.bfloat16().float().numpy(), "Q4_K"))
    assert np.array_equal(raw["a"], raw["c"])


@needs_torch
def test_packed_tensors_are_saved_as_they_are(path, tmp_path):
    ggufkit.torch.save(tmp_path / "x.gguf", ggufkit.torch.load_packed(path))
    with ggufkit.open(path) as one, ggufkit.open(tmp_path / "x.gguf") as other:
        assert [*one.tensors] == [*other.tensors]
        for name, tensor in one.tensors.items():
            assert tensor.type == other.tensors[name].type
            assert np.array_equal(tensor.raw(), other.tensors[name].raw())


@needs_torch
def test_a_dtype_that_gguf_lacks_is_refused(torch, path, tmp_path):
    with pytest.raises(TensorTypeError, match="complex64"):
        ggufkit.torch.save(tmp_path / "x.gguf", {"a": torch.zeros(2, dtype=torch.complex64)})
    with pytest.raises(ValueTypeError, match="int8"):
        ggufkit.torch.load(path, dtype=torch.int8)
    with pytest.raises(ValueTypeError, match="save\\(path, state_dict"):
        ggufkit.torch.save(tmp_path / "x.gguf", [])


def test_without_torch_the_error_names_the_extra():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import ggufkit.torch\n"
        "try: ggufkit.torch.load('x.gguf')\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'ggufkit[torch]'" in done.stdout


def test_importing_the_faces_imports_no_framework():
    code = (
        "import sys, ggufkit\n"
        "ggufkit.torch, ggufkit.transformers, ggufkit.mlx, ggufkit.safetensors, ggufkit.tokenizer\n"
        "print({'torch', 'transformers', 'mlx', 'tokenizers', 'safetensors'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
    assert issubclass(MissingExtraError, ImportError)


def test_arrays_are_filled_piece_by_piece(path, monkeypatch):
    monkeypatch.setattr(fill, "PIECE", 700)
    with ggufkit.open(path) as model:
        tensors = [*model.tensors.values()]
        types = [fill.decoded_type(tensor, "F32") for tensor in tensors]
        arrays = fill.decoded_arrays(tensors, types, threads=3)
        for tensor, array in zip(tensors, arrays, strict=True):
            assert np.array_equal(array, tensor.numpy().astype(array.dtype))


def test_a_type_that_cannot_be_decoded_is_named(tmp_path):
    opaque = ggufkit.Tensor("old", tensor_type(4), (32,), 20, None)
    with pytest.raises(TensorTypeError, match="Q4_2"):
        fill.decoded_type(opaque, None)


@needs_torch
def test_tensors_without_elements_are_named(torch, tmp_path):
    for tensor in (torch.eye(4).to_sparse(), torch.empty(4, device="meta")):
        with pytest.raises(TensorTypeError, match=r"tensor 't' .*(sparse|meta)"):
            ggufkit.torch.save(tmp_path / "m.gguf", {"t": tensor})


@needs_torch
def test_packed_tensors_are_not_copied(path, torch, monkeypatch):
    monkeypatch.setattr("ggufkit.frameworks.torch.in_order", None)
    with ggufkit.open(path) as model:
        packed = ggufkit.torch.load_packed(model.select(drop="none"))
        for name, tensor in packed.items():
            assert np.array_equal(tensor.blocks, model[name].raw().reshape(tensor.blocks.shape))
