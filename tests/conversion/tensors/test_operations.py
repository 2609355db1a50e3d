from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggufkit.conversion.checkpoint.safetensors import open_safetensors
from ggufkit.conversion.tensors import moves, row_sources
from ggufkit.conversion.tensors.moves import concat, stack
from ggufkit.conversion.tensors.operations import OPERATIONS, perform
from ggufkit.errors import CheckpointError, ShapeError
from ggufkit.models.sources import from_array
from ggufkit.system.mapped_file import MappedFile
from tensors_file import safetensors_bytes

RNG = np.random.default_rng(7)


def numbers(*shape, dtype=np.float32):
    return RNG.normal(size=shape).astype(dtype)


def read_in_pieces(tensor, step):
    """Read as the engine does: runs of rows, in any order."""
    parts = {
        start: tensor.source.read(start, min(start + step, tensor.rows))
        for start in reversed(range(0, tensor.rows, step))
    }
    data = np.concatenate([parts[start] for start in sorted(parts)])
    return data.reshape(-1).view(tensor.type.dtype).reshape(tensor.shape)


def three_valued(array):
    inverse = np.float32(1) / np.float32(np.abs(array.astype("f8")).mean())
    return np.clip(np.rint(array * inverse), -1, 1) / inverse


def swap_halves(array, heads):
    return (
        array.reshape(heads, 2, array.shape[0] // heads // 2, *array.shape[1:])
        .swapaxes(1, 2)
        .reshape(array.shape)
    )


def kinds_together(array, heads, kinds):
    return array.reshape(heads, kinds, -1, *array.shape[1:]).swapaxes(0, 1).reshape(array.shape)


def groups_apart(array, heads, kv_heads):
    grouped = array.reshape(kv_heads, heads // kv_heads + 2, -1, array.shape[-1])
    parts = (grouped[:, :-2], grouped[:, -2], grouped[:, -1])
    return np.concatenate([part.reshape(-1, array.shape[-1]) for part in parts])


def folded(array, epsilon=1e-5):
    weight, bias, mean, variance = array.reshape(4, -1)
    spread = (variance.astype(np.float32) + np.float32(epsilon)).astype(array.dtype)
    factor = weight / np.sqrt(spread)
    return factor, bias - mean * factor


MATRIX = numbers(3, 4)
CASES = {
    "permute": (numbers(32, 6), (4,), lambda a: swap_halves(a, 4)),
    "permute the first heads": (
        numbers(24, 3), (4, 6), lambda a: np.concatenate([swap_halves(a[:16], 4), a[16:]]),
    ),
    "permute a bias": (numbers(32), (4,), lambda a: swap_halves(a, 4)),
    "unpermute": (swap_halves(numbers(32, 6), 4), (4,), None),
    "regroup": (numbers(24, 5), (4, 1, 1, 1), lambda a: kinds_together(a, 4, 3)),
    "regroup a bias": (numbers(24), (4, 1, 1, 1), lambda a: kinds_together(a, 4, 3)),
    "regroup_rows": (numbers(24, 5), (4, 3), lambda a: kinds_together(a, 4, 3)),
    "regroup_rows from a row on": (
        numbers(28, 5), (4, 3, 4), lambda a: np.concatenate([a[:4], kinds_together(a[4:], 4, 3)]),
    ),
    "regroup_heads": (
        numbers(12, 5), (2, 2, 2, 4), lambda a: a[[0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11]]
    ),
    "regroup_heads of no rows": (numbers(12, 5), (2, 0, 2, 0), lambda a: a),
    "sum": (numbers(4, 3, 5), (1,), lambda a: a[:, 0] + a[:, 1] + a[:, 2]),
    "sum of halves": (
        numbers(4, 2, 5, dtype=np.float16), (1,), lambda a: a[:, 0] + a[:, 1]
    ),
    "sum of a matrix": (numbers(4, 5), (1,), lambda a: a.T[0] + a.T[1] + a.T[2] + a.T[3] + a.T[4]),
    "regroup_columns": (numbers(5, 24), (4, 3), lambda a: kinds_together(a.T, 4, 3).T),
    "regroup by sizes": (numbers(24, 5), (2, 3, 4, 5), lambda a: np.concatenate(
        [a[:3], a[12:15], a[3:7], a[15:19], a[7:12], a[19:]]
    )),
    "regroup shared heads": (numbers(32, 5), (2, 2, 1, 1), lambda a: groups_apart(a, 4, 2)),
    "transpose": (numbers(6, 9), (), np.transpose),
    "transpose a stack": (numbers(3, 6, 9), (), lambda a: a.swapaxes(1, 2)),
    "squeeze": (numbers(4, 1, 5), (1,), lambda a: a[:, 0]),
    "unsqueeze": (numbers(4, 5), (2,), lambda a: a[:, :, None]),
    "full": (numbers(4, 5), (2.5, 3), lambda _: np.full(3, 2.5, np.float32)),
    "zeros_before": (numbers(2, 3), (1,), lambda a: np.concatenate([np.zeros((1, 3)), a])),
    "unflatten": (numbers(6, 5), (2, -1), lambda a: a.reshape(2, 3, 5)),
    "reshape": (numbers(4, 6), (3, 8), lambda a: a.reshape(3, 8)),
    "reshape to one": (numbers(4, 6), (-1, 1), lambda a: a.reshape(-1, 1)),
    "rows": (numbers(9, 3), (2, 7), lambda a: a[2:7]),
    "at": (numbers(4, 3, 2, 5, 6), (2, 1, 2), lambda a: a[:, :, 1]),
    "at the first axis": (numbers(3, 4), (0, 2, 3), lambda a: a[2]),
    "axes": (numbers(4, 3, 5), (0, 2, 1), lambda a: a.transpose(0, 2, 1)),
    "axes of halves": (
        numbers(4, 3, 5, dtype=np.float16), (1, 2, 0), lambda a: a.transpose(1, 2, 0)
    ),
    "split": (numbers(8, 3), (1, 2), lambda a: a[4:]),
    "split a stack": (numbers(3, 8, 5), (1, 4), lambda a: a[:, 2:4]),
    "every": (numbers(8, 3), (1, 2), lambda a: a[1::2]),
    "every of a stack": (numbers(3, 8, 5), (0, 2), lambda a: a[:, ::2]),
    "part": (numbers(9, 3), (2, 7), lambda a: a[2:7]),
    "part of a stack": (numbers(3, 8, 5), (1, 7), lambda a: a[:, 1:7]),
    "add": (numbers(4, 5), (1,), lambda a: a + np.float32(1)),
    "add to halves": (numbers(4, 5, dtype=np.float16), (1,), lambda a: a + np.float16(1)),
    "scale": (numbers(4, 5), (0.3,), lambda a: a * np.float32(0.3)),
    "scale halves": (
        numbers(4, 5, dtype=np.float16), (0.3,),
        lambda a: (a.astype(np.float32) * np.float32(0.3)).astype(np.float16),
    ),
    "scale by one": (numbers(4, 5, dtype=np.float16), (1.0,), lambda a: a),
    "scale_runs": (
        numbers(5, 3), (2, 0.5, 3, 0.3),
        lambda a: a * np.repeat(np.float32([0.5, 0.3]), [2, 3])[:, None],
    ),
    "scale_runs in turns": (
        numbers(8, 3), (1, 2, 3, 0.5),
        lambda a: a * np.tile(np.float32([2, 0.5, 0.5, 0.5]), 2)[:, None],
    ),
    "center": (numbers(8), (), lambda a: a - np.float32(a.mean(dtype=np.float64))),
    "center halves": (
        numbers(8, dtype=np.float16), (),
        lambda a: (a.astype("f4") - np.float32(np.float16(a.mean(dtype="f8")))).astype("f2"),
    ),
    "batch_weight": (np.abs(numbers(24)), (1e-5,), lambda a: folded(a)[0]),
    "batch_bias": (np.abs(numbers(24)), (1e-5,), lambda a: folded(a)[1]),
    "batch_bias of halves": (
        np.abs(numbers(24, dtype=np.float16)), (0.1,), lambda a: folded(a, 0.1)[1]
    ),
    "pad_rows": (numbers(3, 4), (5,), lambda a: np.concatenate([a, np.zeros((2, 4), "f4")])),
    "spread": (numbers(3, 4), (2,), lambda a: a[[0, 0]]),
    "resize": (
        np.arange(4, dtype=np.float32).reshape(1, 4, 1), (3,),
        lambda _: np.array([0, 0.5, 1, 1, 1.5, 2, 2, 2.5, 3], "f4").reshape(1, 9, 1),
    ),
    "resize halves to one": (numbers(9, 4, dtype=np.float16), (1,), lambda a: a[:1].astype("f4")),
    "resize to the same size": (numbers(9, 4), (3,), lambda a: a),
    "target_ids": (
        np.array([3, 1, 5, 9], "i8"), (99,), lambda a: a + np.arange(4)
    ),
    "softplus": (
        numbers(4, 5), (), lambda a: np.logaddexp(0, a.astype(np.float64)).astype(np.float32)
    ),
    "exchange": (
        numbers(10, 3), (5, 0, 3),
        lambda a: a.reshape(5, 2, 3)[[3, 1, 2, 0, 4]].reshape(10, 3),
    ),
    "vector": (numbers(1, 1, 5), (), lambda a: a.reshape(-1)),
    "flatten": (numbers(2, 3, 5), (2, 3), lambda a: a.reshape(6, 5)),
    "ternary": (numbers(6, 5), (), three_valued),
    "ternary already": (np.float32([[0.5, -0.5], [0, 0.5]]), (), lambda a: a),
    "int32": (np.array([[3, 1], [2**31 - 1, -9]], "i8"), (), lambda a: a.astype("i4")),
    "product": (numbers(2, 5), (0,), lambda a: a[0] * a[1]),
    "side_by_side": (numbers(6, 5), (2,), lambda a: np.hstack([a[:3], a[3:]])),
    "linear": (
        numbers(7, 4), (from_array("m", MATRIX),),
        lambda a: (a.astype("f8") @ MATRIX.astype("f8").T).astype("f4"),
    ),
    "linear with a vector, of halves": (
        numbers(7, 4, dtype=np.float16), (from_array("m", MATRIX), from_array("v", MATRIX[:, 0])),
        lambda a: (a.astype("f8") @ MATRIX.astype("f8").T + MATRIX[:, 0]).astype("f2"),
    ),
    "divide_rows": (
        numbers(4, 5), (from_array("d", np.float32([2, -1, 0.25, 3])), 0.5),
        lambda a: a / np.float32([2, 0.5, 0.5, 3])[:, None],
    ),
    "divide_rows of a stack": (
        numbers(2, 2, 5), (from_array("d", np.float32([[2, 1], [4, 3]])), 0.5),
        lambda a: a / np.float32([[2, 1], [4, 3]])[:, :, None],
    ),
    "unit_columns": (numbers(4, 5), (), lambda a: a / (np.sqrt((a * a).sum(axis=0)) + 1e-7)),
    "reciprocal": (numbers(4, 5) + np.float32(9), (), lambda a: 1 / a),
    "silu": (
        np.float32([[-200, -128, -1], [0, 1, 128]]), (),
        lambda a: (a / (1 + np.exp(-a.astype("f8")))).astype("f4"),
    ),
    "floats": (numbers(4, 5, dtype=np.float16), (), lambda a: a),
    "neg_exp": (numbers(4, 5), (), lambda a: -np.exp(a.astype(np.float64)).astype(np.float32)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("step", [1, 3, 100])
@pytest.mark.parametrize("home", ["memory", "file"])
def test_operation_matches_numpy_in_any_pieces(case, step, home, tmp_path):
    array, arguments, expected = CASES[case]
    tensor = from_array("x", array)
    if home == "file":
        (tmp_path / "x").write_bytes(safetensors_bytes({"x": array}))
        _, (tensor,) = open_safetensors(tmp_path / "x")
    done = perform(tensor, case.split()[0], arguments)
    reference = swap_halves_back(array) if expected is None else expected(array)
    assert done.shape == reference.shape
    assert np.array_equal(read_in_pieces(done, step), reference)


def swap_halves_back(array):
    return array.reshape(4, 4, 2, 6).swapaxes(1, 2).reshape(array.shape)


def test_every_operation_has_a_case():
    assert {case.split()[0] for case in CASES} == set(OPERATIONS)


@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 7), st.integers(1, 9))
def test_stack_can_be_read_across_its_parts(count, rows, width, step):
    arrays = [numbers(rows, width) for _ in range(count)]
    stacked = stack("s", [from_array(str(n), array) for n, array in enumerate(arrays)])
    assert np.array_equal(read_in_pieces(stacked, step), np.stack(arrays))


def test_concat_joins_the_first_axis_of_matrices_and_of_vectors():
    for arrays in ([numbers(2, 3), numbers(4, 3)], [numbers(2), numbers(5)]):
        joined = concat("c", [from_array(str(n), array) for n, array in enumerate(arrays)])
        assert np.array_equal(read_in_pieces(joined, 2), np.concatenate(arrays))


def test_rows_of_a_file_stay_a_span_that_the_kernel_copies(tmp_path):
    (tmp_path / "x").write_bytes(safetensors_bytes({"x": numbers(8, 3)}))
    _, (tensor,) = open_safetensors(tmp_path / "x")
    for moved in (perform(tensor, "rows", [2, 4]), moves.reshape(tensor, (4, 6))):
        assert moved.source.span is not None


@pytest.mark.parametrize("home", ["memory", "file"])
@pytest.mark.parametrize("run", [1, 20, 100, 1 << 20])
@pytest.mark.parametrize("shape", [(300, 7), (7, 300), (3, 50, 20)])
@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float32, np.float64])
def test_transposing_gives_the_same_for_any_size_of_runs_and_tiles(
    home, run, shape, dtype, tmp_path, monkeypatch
):
    monkeypatch.setattr(moves, "RUN_BYTES", run * shape[-2])
    monkeypatch.setattr(row_sources, "TILE_BYTES", 3 * run)
    monkeypatch.setattr(row_sources, "READ_BYTES", 40 * run)
    tensor = tensor_at(home, RNG.integers(-99, 99, shape).astype(dtype), tmp_path)
    transposed = moves.transpose(tensor)
    for step in (4, 1000):
        assert np.array_equal(read_in_pieces(transposed, step), tensor.numpy().swapaxes(-1, -2))


def tensor_at(home, array, folder):
    if home == "memory":
        return from_array("x", array)
    (folder / "x").write_bytes(safetensors_bytes({"x": array}))
    return open_safetensors(folder / "x")[1][0]


def test_gathers_long_rows_from_a_file_as_from_memory(tmp_path):
    array = numbers(200, 300)
    for name, arguments in (("permute", (4,)), ("every", (1, 2)), ("regroup", (5, 4))):
        expected = perform(from_array("x", array), name, arguments).numpy()
        gathered = perform(tensor_at("file", array, tmp_path), name, arguments)
        assert np.array_equal(read_in_pieces(gathered, 70), expected)


def runs_of(source):
    return sum(owner() is source for owner, _ in row_sources.RUNS)


def test_releases_runs_of_columns_when_all_are_read():
    transposed = moves.transpose(from_array("x", numbers(6, 4)))
    transposed.source.read(0, 3)
    assert runs_of(transposed.source) == 1
    transposed.source.read(3, 4)
    assert runs_of(transposed.source) == 0


def test_keeps_the_last_read_runs_and_releases_earlier_ones(monkeypatch):
    monkeypatch.setattr(row_sources, "CACHED_BYTES", 0)
    count = row_sources.CACHED_RUNS + 1
    transposed = [moves.transpose(from_array("x", numbers(6, 4))) for _ in range(count)]
    for tensor in transposed:
        tensor.source.read(0, 1)
    assert [runs_of(tensor.source) for tensor in transposed] == [0] + [1] * (count - 1)


def test_failed_run_fails_all_waiting_threads_and_is_retried(monkeypatch, tmp_path):
    array = numbers(6, 4)
    tensor = tensor_at("file", array, tmp_path)
    transposed = moves.transpose(tensor)
    monkeypatch.setattr(MappedFile, "read", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        transposed.source.read(0, 1)
    monkeypatch.undo()
    assert np.array_equal(transposed.numpy(), array.T)


def test_transposed_rows_are_pickled_without_their_cache(tmp_path):
    transposed = moves.transpose(tensor_at("file", numbers(6, 4), tmp_path))
    transposed.source.read(0, 1)
    again = pickle.loads(pickle.dumps(transposed.source))
    assert runs_of(again) == 0
    assert np.array_equal(again.read(0, 4), transposed.source.read(0, 4))


def test_refuses_to_stack_tensors_that_differ():
    with pytest.raises(ShapeError, match="different"):
        stack("s", [from_array("a", numbers(2, 3)), from_array("b", numbers(3, 2))])
    with pytest.raises(ShapeError, match="different"):
        stack("s", [from_array("a", numbers(2)), from_array("b", numbers(2, dtype=np.float16))])


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("permute", (5,)), ("permute", (0,)), ("regroup_rows", (5, 3)), ("regroup", (3, 1, 1, 1)),
     ("split", (0, 3)), ("split", (0, 0)), ("split", (3, 2)), ("part", (5, 9)),
     ("part", (5, 5)), ("every", (2, 2)), ("every", (0, 3)), ("reshape", (5, 5)),
     ("reshape", (-1, -1)), ("regroup_heads", (2, 2, 2, 9)), ("regroup_heads", (5, 2, 2, 4)),
     ("sum", (2,)), ("resize", (3,))],
)  # fmt: skip
def test_refuses_a_shape_that_does_not_fit_and_names_the_tensor(name, arguments):
    with pytest.raises(ShapeError, match="'x'"):
        perform(from_array("x", numbers(8, 3)), name, arguments)


def test_refuses_arguments_that_are_not_numbers():
    with pytest.raises(CheckpointError, match="needs numbers"):
        perform(from_array("x", numbers(8, 3)), "permute", ("four",))


@pytest.mark.parametrize(
    ("matrix", "vector", "message"),
    [((3, 5), (3,), "cannot be multiplied by 'm'"), ((4,), (4,), "cannot be multiplied by 'm'"),
     ((3, 4), (4,), "'v' of shape \\(4,\\) cannot be added")],
)  # fmt: skip
def test_linear_layer_of_another_width_is_refused(matrix, vector, message):
    layer = (from_array("m", numbers(*matrix)), from_array("v", numbers(*vector)))
    with pytest.raises(ShapeError, match=message):
        perform(from_array("x", numbers(7, 4)), "linear", layer)


def test_rows_without_a_divisor_for_each_are_refused():
    divisors = from_array("d", numbers(3))
    with pytest.raises(ShapeError, match="cannot be divided by 'd'"):
        perform(from_array("x", numbers(7, 4)), "divide_rows", (divisors, 1))
