"""A tensor behaves like an array, without reading before it must."""

from __future__ import annotations

import pickle

import ml_dtypes
import numpy as np
import pytest

import ggufkit
from ggufkit.errors import ShapeError, TensorTypeError

ROWS = np.random.default_rng(0).normal(size=(6, 64)).astype(np.float32)
KINDS = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "I32", "F64")


@pytest.fixture(params=["little", "big", "memory"])
def model(request, tmp_path):
    """Return a model with a tensor of each type, of a file or in memory."""
    tensors = {kind: (ROWS, kind) for kind in KINDS if kind not in {"I32", "F64"}}
    tensors |= {"I32": np.arange(12, dtype=np.int32).reshape(6, 2), "F64": ROWS.astype(np.float64)}
    tensors |= {"line": np.arange(8, dtype=np.float32), "stack": (ROWS.reshape(3, 2, 64), "Q8_0")}
    model = ggufkit.model(tensors)
    if request.param == "memory":
        return model
    path = tmp_path / "m.gguf"
    model.write(path, byte_order=request.param)
    return ggufkit.open(path)


@pytest.mark.parametrize("kind", [*KINDS, "line", "stack"])
def test_array_facts_are_those_of_its_array(model, kind):
    tensor, array = model[kind], model[kind].numpy()
    facts = (tensor.shape, tensor.ndim, tensor.size, tensor.dtype, len(tensor))
    assert facts == (array.shape, array.ndim, array.size, array.dtype, len(array))
    assert np.array_equal(np.asarray(tensor), array)
    assert np.asarray(tensor, np.float16).dtype == np.float16


@pytest.mark.parametrize("kind", [*KINDS, "stack"])
@pytest.mark.parametrize(
    "index", [0, -1, slice(1, 3), slice(None, None, -2), [2, 0, 2], [], np.array([-1, 1])], ids=str
)
def test_rows_are_those_of_the_array(model, kind, index):
    tensor, array = model[kind][index], model[kind].numpy()
    expected = array[np.array(index, int)] if isinstance(index, list) else array[index]
    assert isinstance(tensor, ggufkit.Tensor)
    assert np.array_equal(tensor.numpy(), expected)
    assert tensor.nbytes == tensor.raw().nbytes


def test_bools_choose_rows(model):
    chosen = np.array([True, False, False, True, False, False])
    assert np.array_equal(model["Q8_0"][chosen].numpy(), model["Q8_0"].numpy()[chosen])


def test_one_row_of_numbers_is_indexed_by_numbers(model):
    line = model["line"]
    assert line[3].numpy() == 3.0
    assert line[[5, 1]].numpy().tolist() == [5, 1]
    assert line[::2].numpy().tolist() == [0, 2, 4, 6]


@pytest.mark.parametrize(
    ("kind", "index", "error"),
    [
        ("F32", 6, IndexError),
        ("F32", [0, -7], IndexError),
        ("F32", (0, 1), ShapeError),
        ("F32", "a", ShapeError),
        ("F32", [0.5], ShapeError),
        ("F32", np.zeros((2, 2), int), ShapeError),
        ("F32", [True, False], ShapeError),
    ],
    ids=str,
)
def test_index_that_names_no_rows_is_an_error(model, kind, index, error):
    with pytest.raises(error, match="'F32'"):
        model[kind][index]


def test_part_of_a_block_is_an_error():
    line = ggufkit.model({"t": (np.full(64, 127, np.float32), "Q8_0")})["t"]
    assert line[32:64].numpy().tolist() == [127.0] * 32
    for index in (1, slice(0, 33), [0, 1]):
        with pytest.raises(ShapeError, match="'t' of one row"):
            line[index]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, ml_dtypes.bfloat16])
def test_decodes_to_another_dtype(model, kind, dtype):
    exact = model[kind].numpy().astype(np.float64)
    values = model[kind].numpy(dtype)
    assert values.dtype == dtype
    assert np.array_equal(values, exact.astype(np.float32).astype(dtype)) or dtype == np.float64
    out = np.empty(values.shape, dtype)
    assert model[kind].numpy(out=out) is out
    assert np.array_equal(out, values)


def test_bfloat16_bits_need_no_extra_package(model):
    bits = model["BF16"].numpy("bfloat16")
    assert bits.dtype == np.uint16
    assert np.array_equal(bits.view(ml_dtypes.bfloat16), ROWS.astype(ml_dtypes.bfloat16))
    assert np.array_equal(model["F32"].numpy("bfloat16"), bits)


def test_out_must_fit(model):
    with pytest.raises(ShapeError, match="does not fit"):
        model["F32"].numpy(out=np.empty((2, 2), np.float32))
    with pytest.raises(ValueError, match="`out` is of float32"):
        model["F32"].numpy(np.float16, out=np.empty((6, 64), np.float32))


def test_copy_says_whether_the_array_is_its_own(tmp_path):
    ggufkit.save(tmp_path / "m.gguf", {"plain": ROWS, "packed": (ROWS, "Q8_0")})
    with ggufkit.open(tmp_path / "m.gguf") as model:
        view, own = model["plain"].numpy(copy=False), model["plain"].numpy(copy=True)
        assert not view.flags.writeable
        own[0] = 7
        assert np.array_equal(view, ROWS)
        for tensor, dtype in ((model["packed"], None), (model["plain"], np.float16)):
            with pytest.raises(ValueError, match="makes a copy"):
                tensor.numpy(dtype, copy=False)


def test_iteration_is_refused_with_a_way_out(model):
    with pytest.raises(TypeError, match=r"cannot be iterated over\. Use numpy\(\)"):
        list(model["F32"])
    with pytest.raises(TypeError, match="is a scalar"):
        len(ggufkit.model({"s": np.float32(1)})["s"])
    assert ggufkit.model({"none": np.zeros((0, 4), np.float32)})["none"]


def test_gathered_rows_are_read_alone(tmp_path, monkeypatch):
    ggufkit.save(tmp_path / "m.gguf", {"t": (ROWS, "Q8_0")})
    with ggufkit.open(tmp_path / "m.gguf") as model:
        rows = model["t"][[4, 1]]
        assert rows.source.read(0, 2).nbytes == rows.nbytes == 2 * model["t"].row_bytes


def test_repr_is_one_short_line(model):
    assert repr(model["Q8_0"]) == "<Tensor 'Q8_0': Q8_0 (6, 64)>"


def test_table_of_tensors_is_a_list_of_dicts(model):
    rows = model.tensors.to_dicts()
    assert [row["name"] for row in rows] == list(model)
    assert rows[0] | {"offset": None, "path": None} == {
        "name": "F32",
        "type": "F32",
        "shape": [6, 64],
        "elements": 384,
        "nbytes": 1536,
        "offset": None,
        "path": None,
    }


def test_notebook_shows_escaped_names():
    model = ggufkit.model({"<b>": ROWS}, {"general.name": "<script>"})
    for value in (model, model.tensors, model["<b>"]):
        text = value._repr_html_()
        assert "<b>" not in text.replace("<b>in memory</b>", "").replace("<b>&lt;b&gt;</b>", "")
        assert "<script>" not in text
    assert model._ipython_key_completions_() == ["<b>"]
    assert model.metadata._ipython_key_completions_() == ["general.name"]


def test_tensors_pickle(model):
    for kind in KINDS:
        assert np.array_equal(pickle.loads(pickle.dumps(model[kind])).numpy(), model[kind].numpy())


def test_opaque_tensor_gives_its_bytes_alone():
    source = ggufkit.model({"t": np.zeros(4, np.uint8).view(np.int8)})["t"].source
    opaque = ggufkit.Tensor("t", ggufkit.quants.codec.tensor_type(4), (4,), 4, source)
    with pytest.raises(TensorTypeError, match="cannot be decoded"):
        _ = opaque.dtype


@pytest.mark.parametrize("shape", [(10, 64), (3, 4, 64), (640,), (0, 64)])
@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
@pytest.mark.parametrize("elements", [1, 200, 10_000])
def test_chunks_are_the_tensor_in_parts(shape, kind, elements):
    numbers = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    tensor = ggufkit.model({"t": (numbers, kind)})["t"]
    parts = [part.numpy() for part in tensor.chunks(elements)]
    assert np.array_equal(np.concatenate([numbers[:0], *parts]), tensor.numpy())
    if elements == 10_000:
        assert len(parts) == bool(len(tensor))


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "I32"])
def test_other_libraries_get_a_copy_by_dlpack(kind, tmp_path):
    numbers = np.arange(128, dtype=np.int32 if kind == "I32" else np.float32).reshape(2, 64)
    (path,) = ggufkit.save(tmp_path / "m.gguf", {"t": (numbers, kind)})
    with ggufkit.open(path) as model:
        array = np.from_dlpack(model["t"])
        assert np.array_equal(array, model["t"].numpy())
        assert array.dtype == model["t"].dtype
        assert not np.shares_memory(array, model["t"].raw())
        with pytest.raises(BufferError, match="must make a copy"):
            model["t"].__dlpack__(copy=False)
