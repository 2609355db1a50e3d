"""NumPy, safetensors and MLX get what the model holds, and give it back."""

from __future__ import annotations

import importlib
import io
import json

import ml_dtypes
import numpy as np
import pytest

import ggufkit
import ggufkit.mlx
import ggufkit.numpy
import ggufkit.safetensors
from ggufkit.errors import (
    CheckpointError,
    GGUFError,
    MissingExtraError,
    OutputError,
    TensorTypeError,
    ValueTypeError,
)

NUMBERS = np.random.default_rng(5).standard_normal((4, 256)).astype(np.float32)
TENSORS = {
    "b.f32": NUMBERS,
    "a.f16": NUMBERS.astype(np.float16),
    "c.bf16": (NUMBERS, "BF16"),
    "d.q4_k": (NUMBERS, "Q4_K"),
    "e.ids": np.arange(5, dtype=np.int64),
}


@pytest.fixture
def path(tmp_path):
    ggufkit.save(tmp_path / "model.gguf", TENSORS)
    return tmp_path / "model.gguf"


def same(ours, theirs):
    return ours.dtype == theirs.dtype and np.array_equal(ours, theirs)


def test_numpy_gets_the_values_of_each_tensor(path):
    loaded = ggufkit.numpy.load(path)
    with ggufkit.open(path) as model:
        assert list(loaded) == list(model.tensors)
        assert all(same(loaded[name], tensor.numpy()) for name, tensor in model.tensors.items())
    loaded["b.f32"][:] = 0  # no view of the file
    assert same(np.from_dlpack(loaded["a.f16"]), loaded["a.f16"])


@pytest.mark.torch
def test_torch_takes_arrays_and_tensors_by_dlpack(path, torch):
    for name, array in ggufkit.numpy.load(path).items():
        taken = torch.from_dlpack(array)
        assert taken.data_ptr() == array.ctypes.data
        assert same(taken.numpy(), array)
        with ggufkit.open(path) as model:
            assert same(torch.from_dlpack(model[name]).numpy(), array)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ml_dtypes.bfloat16])
def test_numpy_rounds_floats_and_keeps_integers(path, dtype):
    exact = ggufkit.numpy.load(path, dtype="float32")
    for name, array in ggufkit.numpy.load(path, dtype=dtype).items():
        expected = TENSORS[name] if name == "e.ids" else exact[name].astype(dtype)
        assert same(array, expected)


def test_numpy_saves_what_it_loads(path, tmp_path):
    loaded = ggufkit.numpy.load(path, dtype=ml_dtypes.bfloat16)
    ggufkit.numpy.save(tmp_path / "x.gguf", loaded, {"general.name": "x"})
    again = ggufkit.numpy.load(tmp_path / "x.gguf", dtype=ml_dtypes.bfloat16)
    assert all(same(again[name], array) for name, array in loaded.items())


@pytest.mark.parametrize("dtype", ["int8", "float8"])
def test_another_dtype_is_refused(path, tmp_path, dtype):
    with pytest.raises((ValueTypeError, TypeError)):
        ggufkit.numpy.load(path, dtype=dtype)
    with pytest.raises(ValueTypeError, match=dtype):
        ggufkit.safetensors.save(path, tmp_path / "x", dtype=dtype)


@pytest.mark.parametrize("dtype", [None, "float16", "bfloat16"])
def test_safetensors_come_back_as_a_lazy_model(path, tmp_path, dtype):
    out = ggufkit.safetensors.save(path, tmp_path / "x.safetensors", dtype=dtype)
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    expected = ggufkit.numpy.load(path, dtype=kind)
    with ggufkit.safetensors.load(out) as model:
        assert [*model.tensors] == sorted(TENSORS)
        arrays = ggufkit.numpy.load(model, dtype=kind)
        assert dtype is not None or model.tensors["c.bf16"].type.name == "BF16"
        ggufkit.write(model, tmp_path / "again.gguf")
    again = ggufkit.numpy.load(tmp_path / "again.gguf", dtype=kind)
    for name, array in expected.items():
        assert same(arrays[name], array)
        assert same(again[name], array)


def test_safetensors_are_not_written_over_their_own_input(path):
    with pytest.raises(OutputError, match="also an input"):
        ggufkit.safetensors.save(path, path)
    with pytest.raises(CheckpointError, match="GGUF"):
        ggufkit.safetensors.load(path)


def test_a_type_that_gguf_lacks_is_not_written(tmp_path):
    from ggufkit.conversion.checkpoint.safetensors import U8, lay_file
    from ggufkit.models.sources import ArraySource

    rows = ArraySource(np.zeros((1, 4), np.uint8))
    file = lay_file("x", [ggufkit.Tensor.over("flags", U8, (4,), rows)])
    (tmp_path / "x.safetensors").write_bytes(file.head + bytes(4))
    with ggufkit.safetensors.load(tmp_path / "x.safetensors") as model:
        assert model.tensors["flags"].numpy().tolist() == [0, 0, 0, 0]
        with pytest.raises(GGUFError, match="U8"):
            ggufkit.write(model, tmp_path / "x.gguf")


@pytest.mark.torch
def test_the_reference_reads_our_safetensors(path, tmp_path, torch):
    out = ggufkit.safetensors.save(path, tmp_path / "x.safetensors")
    theirs = importlib.import_module("safetensors.torch").load_file(out)
    expected = ggufkit.torch.load(path)
    assert all(torch.equal(theirs[name], array) for name, array in expected.items())


def test_without_mlx_the_error_names_the_extra(path):
    if importlib.util.find_spec("mlx"):
        assert ggufkit.mlx.load(path)
        return
    with pytest.raises(MissingExtraError, match=r"ggufkit\[mlx\]"):
        ggufkit.mlx.load(path)


@pytest.mark.torch
@pytest.mark.parametrize("library", ["torch", "mlx.core"])
def test_models_take_arrays_of_torch_and_mlx(library):
    core = importlib.import_module(library)
    expected = np.arange(128, dtype=np.float32).reshape(2, 64) / 8
    numbers = core.tensor(expected) if library == "torch" else core.array(expected)
    halves = numbers.to(core.bfloat16) if library == "torch" else numbers.astype(core.bfloat16)
    model = ggufkit.model({"f": numbers, "b": halves, "q": (halves, "Q8_0")})
    assert [tensor.type.name for tensor in model.tensors.values()] == ["F32", "BF16", "Q8_0"]
    for name in "fb":
        np.testing.assert_array_equal(model[name].numpy(), expected)
    np.testing.assert_allclose(model["q"].numpy(), expected, atol=0.1)


@pytest.mark.torch
@pytest.mark.parametrize("dtype", [None, "float16", "bfloat16", "float32"])
def test_mlx_arrays_hold_the_values_and_come_back(path, tmp_path, dtype):
    core = importlib.import_module("mlx.core")
    kind = dtype and getattr(core, dtype)
    loaded = ggufkit.mlx.load(path, dtype=kind)
    exact = ggufkit.numpy.load(path, dtype="float32")
    for name, array in loaded.items():
        whole = name == "e.ids"
        assert kind is None or array.dtype == (core.int64 if whole else kind)
        expected = core.array(exact[name]).astype(array.dtype)
        assert core.array_equal(array, expected, equal_nan=True).item()
    ggufkit.mlx.save(tmp_path / "x.gguf", {**loaded, "q": (loaded["b.f32"], "Q8_0")})
    again = ggufkit.mlx.load(tmp_path / "x.gguf")
    for name, array in loaded.items():
        assert again[name].dtype == array.dtype
        assert core.array_equal(again[name], array).item()
    with ggufkit.open(tmp_path / "x.gguf") as model:
        assert model.tensors["q"].type.name == "Q8_0"
    with pytest.raises(ValueTypeError, match="int8"):
        ggufkit.mlx.load(path, dtype=core.int8)


@pytest.mark.torch
def test_packed_mlx_arrays_are_those_of_mlx(tmp_path):
    core = importlib.import_module("mlx.core")
    numbers = np.random.default_rng(5).standard_normal((2, 3, 96)).astype(np.float32)
    kinds = ("Q4_0", "Q4_1", "Q8_0")
    weights = {f"{kind}.weight": (numbers, kind) for kind in kinds}
    path = tmp_path / "x.gguf"
    ggufkit.save(path, {**weights, "matrix.weight": (numbers[0], "Q4_1"), "norm.weight": numbers})
    theirs, ours = core.load(str(path)), ggufkit.mlx.load_packed(path)
    assert theirs.keys() == ours.keys()
    for name, array in theirs.items():
        assert (ours[name].dtype, ours[name].shape) == (array.dtype, array.shape)
        assert core.array_equal(ours[name], array).item()
    ggufkit.save(path, {"k.weight": (np.ones((2, 256), "f4"), "Q4_K")})
    assert core.array_equal(
        ggufkit.mlx.load_packed(path)["k.weight"], ggufkit.mlx.load(path)["k.weight"]
    )


def safetensors_of(path, **tensors):
    """Write tensors given as a dtype, a shape and bytes."""
    fields, offset = {}, 0
    for name, (kind, shape, data) in tensors.items():
        offsets = [offset, offset + len(data)]
        fields[name] = {"dtype": kind, "shape": shape, "data_offsets": offsets}
        offset += len(data)
    text = json.dumps(fields).encode()
    data = b"".join(data for _, _, data in tensors.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


FOREIGN = {
    "U8": "u1", "U16": "u2", "U32": "u4", "U64": "u8", "BOOL": "?", "C64": "c8", "F8_E4M3": None,
    "F8_E5M2": None, "F8_E8M0": None, "F8_E4M3FNUZ": None, "F8_E5M2FNUZ": None, "F4": None,
    "F6_E2M3": None,
}  # fmt: skip
WIDTHS = {"F4": 0.5, "F6_E2M3": 0.75}


def foreign_file(path, kinds=tuple(FOREIGN)):
    """A file with a tensor of each type that GGUF lacks, and one of floats."""
    rows = {}
    for kind, dtype in ((kind, FOREIGN[kind]) for kind in kinds):
        size = int(8 * WIDTHS.get(kind, np.dtype(dtype or "u1").itemsize))
        rows[kind] = (kind, [2, 4], bytes(n % 2 for n in range(size)))
    return safetensors_of(path, x=("F32", [2], np.ones(2, "f4").tobytes()), **rows)


def test_types_that_gguf_lacks_come_as_they_are_and_block_no_others(tmp_path):
    path = foreign_file(tmp_path / "m.safetensors")
    with ggufkit.safetensors.load(path) as model:
        loaded = ggufkit.numpy.load(model)
        for kind, dtype in FOREIGN.items():
            raw = model[kind].raw()
            assert np.array_equal(loaded[kind], raw.view(dtype or "u1"))
            if dtype:
                assert same(model[kind].numpy(), loaded[kind])
            else:
                with pytest.raises(TensorTypeError, match=kind):
                    model[kind].numpy()
        assert np.array_equal(loaded["x"], [1, 1])
        assert ggufkit.numpy.load(model, dtype="float16")["x"].dtype == np.float16
        again = ggufkit.safetensors.save(model, tmp_path / "again.safetensors", dtype="float16")
    with ggufkit.safetensors.load(again) as model, ggufkit.safetensors.load(path) as before:
        assert all(np.array_equal(model[kind].raw(), before[kind].raw()) for kind in FOREIGN)


@pytest.mark.torch
@pytest.mark.parametrize("mmap", [False, True])
def test_torch_gets_what_safetensors_gives_it(tmp_path, torch, mmap):
    path = foreign_file(tmp_path / "m.safetensors", [kind for kind in FOREIGN if kind[:2] != "F6"])
    theirs = importlib.import_module("safetensors.torch").load_file(path)
    ours = ggufkit.torch.load(ggufkit.safetensors.load(path), mmap=mmap)
    assert set(theirs) == set(ours)
    for name, tensor in theirs.items():
        assert ours[name].dtype == tensor.dtype
        assert torch.equal(ours[name].view(torch.uint8), tensor.view(torch.uint8))


def test_file_objects_are_taken_like_paths(path):
    from_path = ggufkit.numpy.load(path)
    for content in (io.BytesIO(path.read_bytes()), bytearray(path.read_bytes())):
        loaded = ggufkit.numpy.load(content)
        assert all(same(loaded[name], array) for name, array in from_path.items())
