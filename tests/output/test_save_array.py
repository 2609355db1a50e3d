from __future__ import annotations

import stat
import tracemalloc

import numpy as np
import pytest

import ggufkit
from ggufkit.errors import OutputError, TensorTypeError
from ggufkit.format.types import tensor_type
from ggufkit.models.tensors.in_memory import as_tensor
from ggufkit.models.tensors.tensor import Tensor
from ggufkit.output.save_array import TILE_ELEMENTS

RANDOM = np.random.default_rng(7)
WIDE = RANDOM.standard_normal((3, TILE_ELEMENTS // 2 + 32)).astype("f4")  # rows across tiles
ARRAYS = {
    "F32": RANDOM.standard_normal((2, 3, 5)).astype("f4"),
    "F64": RANDOM.standard_normal((4, 2)),
    "F16": RANDOM.standard_normal(7).astype("f2"),
    "I8": RANDOM.integers(-128, 128, (3, 4), "i1"),
    "I64": RANDOM.integers(-(2**63), 2**63 - 1, (3, 1), "i8"),
}
PACKED = {"Q4_K": RANDOM.standard_normal((2, 512)), "BF16": WIDE, "Q8_0": WIDE}


def tensors():
    plain = [as_tensor(name, array) for name, array in ARRAYS.items()]
    return plain + [as_tensor(name, (array.astype("f4"), name)) for name, array in PACKED.items()]


@pytest.mark.parametrize("tensor", tensors(), ids=str)
def test_a_numpy_file_holds_the_array(tmp_path, tensor):
    loaded = np.load(ggufkit.save_array(tensor, tmp_path / "a.npy"))
    assert loaded.dtype == tensor.dtype
    np.testing.assert_array_equal(loaded, tensor.numpy())


@pytest.mark.parametrize("tensor", tensors(), ids=str)
def test_text_gives_the_same_numbers_back(tmp_path, tensor):
    ggufkit.save_array(tensor, tmp_path / "a.csv")
    loaded = np.loadtxt(tmp_path / "a.csv", tensor.dtype, delimiter=",", ndmin=2)
    np.testing.assert_array_equal(loaded, tensor.numpy().reshape(-1, tensor.shape[-1]))


def test_text_has_a_line_for_each_row_and_the_fewest_digits(tmp_path):
    tensor = as_tensor("t", np.float32([[0.1, np.nan], [-np.inf, 2]]))
    ggufkit.save_array(tensor, tmp_path / "a.CSV")
    assert (tmp_path / "a.CSV").read_text() == "0.1,nan\n-inf,2.0\n"


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (0, 4)])
def test_scalars_and_empty_arrays_are_saved(tmp_path, shape):
    tensor = as_tensor("t", np.ones(shape, "f4"))
    assert np.load(ggufkit.save_array(tensor, tmp_path / "a.npy")).shape == shape
    ggufkit.save_array(tensor, tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == ("1.0\n" if shape == () else "")


def test_big_endian_files_give_the_same_array(tmp_path):
    ggufkit.save(tmp_path / "m.gguf", {"t": ARRAYS["F32"]}, {}, byte_order="big")
    with ggufkit.open(tmp_path / "m.gguf") as model:
        loaded = np.load(ggufkit.save_array(model["t"], tmp_path / "a.npy"))
    np.testing.assert_array_equal(loaded, ARRAYS["F32"])


def test_memory_does_not_grow_with_the_tensor(tmp_path):
    ggufkit.save(tmp_path / "m.gguf", {"t": np.zeros((16, 1 << 20), "f4")}, {})
    with ggufkit.open(tmp_path / "m.gguf") as model:
        tracemalloc.start()
        ggufkit.save_array(model["t"], tmp_path / "a.npy")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 16 << 20


def test_an_output_is_not_more_open_than_its_model(tmp_path):
    ggufkit.save(tmp_path / "m.gguf", {"t": ARRAYS["F32"]}, {})
    (tmp_path / "m.gguf").chmod(0o600)
    with ggufkit.open(tmp_path / "m.gguf") as model:
        path = ggufkit.save_array(model["t"], tmp_path / "a.npy")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_model_is_not_replaced_by_its_tensor(tmp_path):
    path = tmp_path / "m.npy"
    ggufkit.save(tmp_path / "m.gguf", {"t": ARRAYS["F32"]}, {})
    path.hardlink_to(tmp_path / "m.gguf")
    with (
        ggufkit.open(tmp_path / "m.gguf") as model,
        pytest.raises(OutputError, match="also an input"),
    ):
        ggufkit.save_array(model["t"], path)


def test_without_clobber_an_existing_file_stays(tmp_path):
    (tmp_path / "a.npy").write_text("mine")
    with pytest.raises(OutputError, match="exists already"):
        ggufkit.save_array(as_tensor("t", WIDE), tmp_path / "a.npy", clobber=False)
    assert (tmp_path / "a.npy").read_text() == "mine"
    assert list(tmp_path.iterdir()) == [tmp_path / "a.npy"]


def test_unknown_endings_and_types_are_refused(tmp_path):
    with pytest.raises(OutputError, match=r"does not end in \.npy or \.csv"):
        ggufkit.save_array(as_tensor("t", WIDE), tmp_path / "a.gguf")
    opaque = Tensor("t", tensor_type(77), (4,), 4, as_tensor("t", WIDE).source)
    with pytest.raises(TensorTypeError, match="cannot be decoded"):
        ggufkit.save_array(opaque, tmp_path / "a.npy")
    assert list(tmp_path.iterdir()) == []
