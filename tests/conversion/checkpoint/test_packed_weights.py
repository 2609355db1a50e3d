from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ggufkit import quants
from ggufkit.conversion.checkpoint.dequantize import dequantize
from ggufkit.conversion.checkpoint.safetensors import open_safetensors
from ggufkit.conversion.tensors import row_sources
from ggufkit.errors import CheckpointError
from tensors_file import safetensors_bytes

RNG = np.random.default_rng(23)


def opened(folder, arrays):
    path = folder / "model.safetensors"
    path.write_bytes(safetensors_bytes(arrays))
    return open_safetensors(path)[1]


def decode(folder, arrays, *, keep=False, **settings):
    config = {"quantization_config": settings}
    done = dequantize(opened(folder, arrays), config, keep_quantized=keep)
    return {tensor.name: tensor for tensor in done.tensors}


def by_rows(tensor, step):
    """Read a matrix a few rows at a time."""
    rows = tensor.shape[0]
    parts = [tensor.source.read(start, min(start + step, rows)) for start in range(0, rows, step)]
    return np.concatenate(parts).view(np.float32)


def packed_along(codes, bits, *, gapless, order=None):
    """Pack each row of codes into words of 32 bits, bit by bit."""
    per_word = 32 // bits
    packed = []
    for row in codes.tolist():
        stream = 0
        for column, code in enumerate(row):
            word, place = divmod(column, per_word)
            if order is not None:
                place = order.index(place)
            stream |= code << (column * bits if gapless else word * 32 + place * bits)
        count = -(-len(row) * bits // 32) if gapless else -(-len(row) // per_word)
        packed.append([stream >> 32 * n & 0xFFFFFFFF for n in range(count)])
    return np.array(packed, np.uint32).view(np.int32)


def packed_down(codes, bits, **how):
    return np.ascontiguousarray(packed_along(codes.T, bits, **how).T)


def gptq(bits, rows, width, groups, index, *, less=1):
    """Return random parts of GPTQ and the decoded matrix."""
    codes = RNG.integers(0, 1 << bits, (rows, width))
    zeros = RNG.integers(0, 1 << bits, (groups, rows))
    scales = RNG.normal(size=(groups, rows)).astype(np.float16)
    arrays = {
        "x.qweight": packed_down(codes.T, bits, gapless=True),
        "x.qzeros": packed_along(zeros, bits, gapless=True),
        "x.scales": scales,
    }
    centred = codes - (zeros.T + less)[:, index]
    return arrays, centred.astype(np.float32) * scales.astype(np.float32).T[:, index]


def said_gptq(bits, **more):
    return {"quant_method": "gptq", "bits": bits, "group_size": 32, **more}


@settings(deadline=None, max_examples=25)
@given(st.sampled_from([2, 3, 4, 8]), st.integers(1, 3), st.integers(1, 4), st.integers(1, 70))
def test_decodes_gptq_of_every_width(tmp_path_factory, bits, high, groups, step):
    rows, width = 32 * high, 32 * groups
    arrays, expected = gptq(bits, rows, width, groups, np.arange(width) // 32)
    weight = decode(tmp_path_factory.mktemp("gptq"), arrays, **said_gptq(bits))
    assert np.array_equal(by_rows(weight["x.weight"], step), expected)


@pytest.mark.parametrize("bits", [3, 4])
def test_gptq_in_activation_order_finds_the_group_of_each_column(tmp_path, bits):
    index = RNG.permutation(np.arange(96) // 32)
    arrays, expected = gptq(bits, 64, 96, 3, index)
    arrays["x.g_idx"] = index.astype(np.int32)
    weight = decode(tmp_path, arrays, **said_gptq(bits, desc_act=True))
    assert list(weight) == ["x.weight"]
    assert np.array_equal(by_rows(weight["x.weight"], 7), expected)


def test_gptq_version_2_stores_zero_points_unchanged(tmp_path):
    arrays, expected = gptq(4, 32, 64, 2, np.arange(64) // 32, less=0)
    weight = decode(tmp_path, arrays, **said_gptq(4, checkpoint_format="gptq_v2"))
    assert np.array_equal(weight["x.weight"].numpy(), expected)


def test_gptq_may_have_one_group_for_all_columns(tmp_path):
    arrays, expected = gptq(8, 32, 64, 1, np.zeros(64, int))
    weight = decode(tmp_path, arrays, **said_gptq(8) | {"group_size": -1})
    assert np.array_equal(weight["x.weight"].numpy(), expected)


def test_unquantized_tensors_are_unchanged_and_come_first(tmp_path):
    arrays, _ = gptq(4, 32, 32, 1, np.zeros(32, int))
    weights = decode(tmp_path, arrays | {"z.weight": np.ones((2, 2), np.float16)}, **said_gptq(4))
    assert list(weights) == ["z.weight", "x.weight"]


def said_awq(**more):
    return {"quant_method": "awq", "bits": 4, "version": "gemm", "group_size": 16, **more}


def awq(rows, width, group=16, scales=None):
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    codes = RNG.integers(0, 16, (rows, width))
    zeros = RNG.integers(0, 16, (width // group, rows))
    if scales is None:
        scales = RNG.normal(size=(width // group, rows)).astype(np.float16)
    arrays = {
        "x.qweight": packed_along(codes.T, 4, gapless=False, order=order),
        "x.qzeros": packed_along(zeros, 4, gapless=False, order=order),
        "x.scales": scales,
    }
    spread = np.repeat(scales.astype(np.float32), group, axis=0).T
    return arrays, (codes - np.repeat(zeros, group, axis=0).T).astype(np.float32) * spread


@pytest.mark.parametrize("step", [1, 5, 8, 11, 40])
def test_decodes_awq(tmp_path, step):
    arrays, expected = awq(40, 48)
    weight = decode(tmp_path, arrays, **said_awq())
    assert np.array_equal(by_rows(weight["x.weight"], step), expected)


def said_packed(**weights):
    group = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 10, **weights}
    return {"quant_method": "compressed-tensors", "format": "pack-quantized",
            "config_groups": {"group_0": {"weights": group}}}  # fmt: skip


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("is_symmetric", [True, False])
def test_decodes_packed_integers_of_compressed_tensors(tmp_path, bits, is_symmetric):
    codes = RNG.integers(0, 1 << bits, (13, 30))
    zeros = RNG.integers(0, 1 << bits, (13, 3))
    scales = RNG.normal(size=(13, 3)).astype(np.float16)
    arrays = {
        "x.weight_packed": packed_along(codes, bits, gapless=False),
        "x.weight_scale": scales,
        "x.weight_shape": np.array([13, 30], np.int64),
    }
    if is_symmetric:
        zeros[:] = 1 << (bits - 1)
    else:
        arrays["x.weight_zero_point"] = packed_down(zeros, bits, gapless=False)
    weight = decode(tmp_path, arrays, **said_packed(num_bits=bits))
    centred = (codes - np.repeat(zeros, 10, axis=1)).astype(np.float32)
    expected = centred * np.repeat(scales.astype(np.float32), 10, axis=1)
    assert list(weight) == ["x.weight"]
    assert np.array_equal(by_rows(weight["x.weight"], 4), expected)


def test_decodes_packed_integers_with_one_scale_per_row(tmp_path):
    codes = RNG.integers(0, 16, (4, 9))
    arrays = {
        "x.weight_packed": packed_along(codes, 4, gapless=False),
        "x.weight_scale": np.full((4, 1), 0.5, np.float16),
        "x.weight_shape": np.array([4, 9], np.int64),
    }
    weight = decode(tmp_path, arrays, **said_packed(strategy="channel", group_size=None))
    assert np.array_equal(weight["x.weight"].numpy(), (codes - 8) * np.float32(0.5))


def test_decodes_packed_integers_in_activation_order(tmp_path):
    codes, index = RNG.integers(0, 16, (4, 20)), RNG.permutation(np.arange(20) // 10)
    scales = RNG.normal(size=(4, 2)).astype(np.float16)
    arrays = {
        "x.weight_packed": packed_along(codes, 4, gapless=False),
        "x.weight_scale": scales,
        "x.weight_shape": np.array([4, 20], np.int64),
        "x.weight_g_idx": index.astype(np.int32),
    }
    weight = decode(tmp_path, arrays, **said_packed())
    expected = (codes - 8).astype(np.float32) * scales.astype(np.float32)[:, index]
    assert np.array_equal(weight["x.weight"].numpy(), expected)


@pytest.mark.parametrize("form", ["auto_round:auto_gptq", "auto_awq"])
def test_decodes_checkpoints_of_auto_round_by_their_packing(tmp_path, form):
    is_awq = form.endswith("awq")
    arrays, expected = awq(32, 64, 32) if is_awq else gptq(4, 32, 64, 2, np.arange(64) // 32)
    settings = {"quant_method": "auto-round", "bits": 4, "group_size": 32, "packing_format": form}
    weight = decode(tmp_path, arrays, **settings)
    assert np.array_equal(weight["x.weight"].numpy(), expected)


def centred_gptq(bits, width, size, zero):
    """Return parts of GPTQ whose groups of `size` all have one zero point, and the matrix."""
    index = np.arange(width) // size
    arrays, _ = gptq(bits, 64, width, width // size, index)
    codes = RNG.integers(0, 1 << bits, (64, width))
    zeros = np.full((width // size, 64), zero - 1)
    arrays["x.qweight"] = packed_down(codes.T, bits, gapless=True)
    arrays["x.qzeros"] = packed_along(zeros, bits, gapless=True)
    scales = arrays["x.scales"].astype(np.float32).T[:, index]
    return arrays, (codes - zero).astype(np.float32) * scales


@pytest.mark.parametrize("size", [32, 64, 128])
@pytest.mark.parametrize(
    ("bits", "zero", "kind"), [(4, 8, "Q4_0"), (4, 4, "Q4_1"), (4, 16, "Q4_1"), (8, 128, "Q8_0")]
)
def test_kept_groups_of_gptq_are_blocks_with_the_same_numbers(tmp_path, size, bits, zero, kind):
    arrays, expected = centred_gptq(bits, 256, size, zero)
    settings = said_gptq(bits, group_size=size)
    packed = decode(tmp_path, arrays, keep=True, **settings)["x.weight"]
    assert packed.type == kind
    assert np.array_equal(packed.numpy(), expected)
    blocks = np.concatenate([packed.source.read(row, row + 16) for row in range(0, 64, 16)])
    assert np.array_equal(quants.dequantize(blocks, kind), expected)


def test_kept_groups_of_awq_are_blocks_with_the_same_numbers(tmp_path):
    powers = np.ldexp(1, RNG.integers(-9, 3, (3, 40))).astype(np.float16)
    arrays, expected = awq(40, 96, group=32, scales=powers)
    packed = decode(tmp_path, arrays, keep=True, **said_awq(group_size=32))["x.weight"]
    assert packed.type == "Q4_1"
    assert np.array_equal(packed.numpy(), expected)
    parts = [packed.source.read(row, min(row + 7, 40)) for row in range(0, 40, 7)]
    assert np.array_equal(quants.dequantize(np.concatenate(parts), "Q4_1"), expected)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda _: {"x.g_idx": RNG.permutation(np.arange(256) // 32).astype(np.int32)},
        lambda arrays: {"x.scales": arrays["x.scales"].astype(np.float32) * np.float32(1 / 3)},
        lambda arrays: {"x.scales": np.full(arrays["x.scales"].shape, 1e5, np.float32)},
        lambda arrays: {"x.qzeros": np.full(arrays["x.qzeros"].shape, 0x22222222, np.int32)},
    ],
    ids=["activation order", "finer scales", "large scales", "finer minima"],
)
def test_groups_that_no_type_holds_exactly_are_decoded(tmp_path, spoil):
    arrays, _ = centred_gptq(4, 256, 32, 8)
    arrays |= spoil(arrays)
    decoded_values = [
        decode(tmp_path, arrays, keep=keep, **said_gptq(4))["x.weight"] for keep in (False, True)
    ]
    assert [tensor.type.name for tensor in decoded_values] == ["F32", "F32"]


def test_experts_are_kept_only_if_all_fit_one_type(tmp_path):
    even, odd = centred_gptq(4, 64, 32, 8)[0], centred_gptq(4, 64, 32, 4)[0]
    parts = [("a.experts.0", even), ("a.experts.1", even), ("b.experts.0", even)]
    parts.append(("b.experts.1", odd))
    arrays = {f"{stem}{key[1:]}": part for stem, own in parts for key, part in own.items()}
    packed = decode(tmp_path, arrays, keep=True, **said_gptq(4))
    assert [tensor.type.name for tensor in packed.values()] == ["Q4_0", "Q4_0", "F32", "F32"]


@pytest.mark.parametrize(
    ("change", "settings", "message"),
    [
        ({"x.qzeros": None}, {}, "x.qzeros is missing"),
        ({"x.scales": None}, {}, "x.scales is missing"),
        ({"x.scales": np.ones((1, 64), np.float16)}, {}, "x.qweight has the shape"),
        ({"x.scales": np.ones((2, 32), np.int32)}, {}, "x.scales is of type I32"),
        ({"x.qweight": np.ones((8, 32), np.float32)}, {}, "x.qweight is of type F32"),
        ({"x.qweight": np.ones((8, 4, 8), np.int32)}, {}, "not a matrix"),
        ({"x.qweight": np.ones((0, 32), np.int32)}, {}, "not a matrix"),
        ({"x.qzeros": np.ones((2, 5), np.int32)}, {}, "x.qzeros has the shape"),
        ({"x.g_idx": np.full(64, 2, np.int32)}, {}, "beyond the 2"),
        ({"x.g_idx": np.full(64, -1, np.int32)}, {}, "beyond the 2"),
        ({"x.g_idx": np.zeros(63, np.int32)}, {}, "x.g_idx is I32 of"),
        ({}, {"group_size": 16}, "groups of 16"),
        ({}, {"group_size": 0}, "not a size"),
        ({}, {"group_size": None}, "not a size"),
        ({}, {"bits": 5}, "bits is 5"),
        ({}, {"bits": True}, "bits is True"),
        ({}, {"bits": "4"}, "bits is"),
        ({}, {"checkpoint_format": "marlin"}, "marlin"),
        ({}, {"checkpoint_format": 2}, "cannot be decoded"),
    ],
)
def test_reports_gptq_tensors_that_do_not_fit(tmp_path, change, settings, message):
    arrays, _ = gptq(4, 32, 64, 2, np.arange(64) // 32)
    arrays = {name: array for name, array in (arrays | change).items() if array is not None}
    with pytest.raises(CheckpointError, match=message):
        decode(tmp_path, arrays, **said_gptq(4) | settings)


@pytest.mark.parametrize("message", [{"version": "gemv"}, {"bits": 3}, {"group_size": 32}])
def test_reports_awq_tensors_that_do_not_fit(tmp_path, message):
    with pytest.raises(CheckpointError, match=str(next(iter(message.values())))):
        decode(tmp_path, awq(16, 32)[0], **said_awq(**message) | message)


@pytest.mark.parametrize(
    ("shape", "weights", "message"),
    [
        ([13, 30], {}, "should have the shape"),
        ([12, 99], {}, "should have the shape"),
        ([12, -1], {}, "should have the shape"),
        ([12, 30], {"num_bits": 9}, "1 to 8"),
        ([12, 30], {"type": "float"}, "float"),
        ([12, 30], {"strategy": "tensor_group"}, "tensor_group"),
        ([12, 30], {"group_size": 7}, "groups of 7"),
    ],
)
def test_reports_packed_integers_that_do_not_fit(tmp_path, shape, weights, message):
    arrays = {
        "x.weight_packed": np.ones((12, 4), np.int32),
        "x.weight_scale": np.ones((12, 3), np.float16),
        "x.weight_shape": np.array(shape, np.int64),
    }
    with pytest.raises(CheckpointError, match=message):
        decode(tmp_path, arrays, **said_packed(**weights))


def test_lists_all_problems_at_once(tmp_path):
    arrays = {f"{n}.qweight": np.ones((8, 32), np.int32) for n in "abc"}
    with pytest.raises(CheckpointError) as caught:
        decode(tmp_path, arrays, **said_gptq(4))
    assert [problem[0] for problem in caught.value.problems] == ["a", "b", "c"]


def test_does_not_hold_many_packed_matrices_in_memory_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(row_sources, "CACHED_BYTES", 1 << 16)
    arrays = {f"{n}.qweight": np.ones((64, 512), np.int32) for n in range(32)}
    for name in list(arrays):
        stem = name.removesuffix(".qweight")
        arrays |= {f"{stem}.qzeros": np.ones((16, 64), np.int32)}
        arrays |= {f"{stem}.scales": np.ones((16, 512), np.float16)}
    weights = decode(tmp_path, arrays, **said_gptq(4))
    tracemalloc.start()
    for tensor in weights.values():
        for start in range(0, 512, 32):
            tensor.source.read(start, start + 32)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < sum(array.nbytes for array in arrays.values()) / 4
