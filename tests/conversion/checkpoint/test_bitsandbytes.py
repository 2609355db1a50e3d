from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest

from ggufkit import quants
from ggufkit.conversion.checkpoint.dequantize import dequantize
from ggufkit.conversion.checkpoint.safetensors import open_safetensors
from ggufkit.errors import CheckpointError
from tensors_file import safetensors_bytes

RNG = np.random.default_rng(31)
METHOD = {"quantization_config": {"quant_method": "bitsandbytes"}}
DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
STATE = "x.weight.quant_state.bitsandbytes__nf4"


def decode(folder, arrays):
    path = folder / "model.safetensors"
    path.write_bytes(safetensors_bytes(arrays))
    return {tensor.name: tensor for tensor in dequantize(open_safetensors(path)[1], METHOD).tensors}


def description(**fields):
    return np.frombuffer(json.dumps(fields).encode(), np.uint8)


def four_bits(shape, block, dtype, *, is_nested, kind="nf4"):
    """Return random parts of a weight and the decoded numbers."""
    count = int(np.prod(shape))
    codes = RNG.integers(0, 16, count + count % 2, np.uint8)
    codes[count:] = 0
    table = np.sort(RNG.normal(size=16)).astype(np.float32)
    blocks = -(-count // block)
    state = {"quant_type": kind, "blocksize": block, "dtype": dtype, "shape": list(shape)}
    arrays = {"x.weight": (codes[::2] << 4 | codes[1::2])[:, None], "x.weight.quant_map": table}
    if is_nested:
        inner = RNG.integers(0, 256, blocks, np.uint8)
        inner_table = np.linspace(-1, 1, 256, dtype=np.float32)
        outer = RNG.random(-(-blocks // 4)).astype(np.float32)
        absmax = inner_table[inner] * np.repeat(outer, 4)[:blocks] + np.float32(0.75)
        state |= {"nested_blocksize": 4, "nested_dtype": "float32", "nested_offset": 0.75}
        arrays |= {"x.weight.absmax": inner, "x.weight.nested_absmax": outer}
        arrays |= {"x.weight.nested_quant_map": inner_table}
    else:
        absmax = RNG.random(blocks).astype(np.float32)
        arrays["x.weight.absmax"] = absmax
    arrays[f"x.weight.quant_state.bitsandbytes__{kind}"] = description(**state)
    numbers = table[codes[:count]] * np.repeat(absmax, block)[:count]
    return arrays, numbers.astype(DTYPES[dtype]).astype(np.float32).reshape(shape)


@pytest.mark.parametrize("is_nested", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "block"), [((12, 32), 64), ((5, 51), 64), ((3, 3), 4)])
def test_decodes_4_bit_weights_by_table_and_scale(tmp_path, shape, block, dtype, is_nested):
    arrays, expected = four_bits(shape, block, dtype, is_nested=is_nested)
    weight = decode(tmp_path, arrays)
    assert list(weight) == ["x.weight"]
    tensor = weight["x.weight"]
    parts = [tensor.source.read(start, min(start + 2, shape[0])) for start in range(0, shape[0], 2)]
    assert tensor.type.name == {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}[dtype]
    assert np.array_equal(quants.dequantize(np.concatenate(parts), tensor.type), expected)


def test_decodes_fp4_by_its_own_table(tmp_path):
    arrays, expected = four_bits((4, 64), 64, "float32", is_nested=False, kind="fp4")
    assert np.array_equal(decode(tmp_path, arrays)["x.weight"].numpy(), expected)


def test_decodes_8_bit_weights_in_steps_of_the_row_scale_over_127(tmp_path):
    codes = RNG.integers(-127, 128, (6, 10)).astype(np.int8)
    scales = RNG.random(6).astype(np.float32)
    arrays = {"x.weight": codes, "x.SCB": scales, "x.weight_format": np.array(0, np.uint8)}
    weight = decode(tmp_path, arrays)
    expected = codes.astype(np.float32) * scales[:, None] * np.float32(1 / 127)
    assert list(weight) == ["x.weight"]
    assert np.array_equal(weight["x.weight"].numpy(), expected)


def test_decoded_weights_keep_their_places(tmp_path):
    arrays, _ = four_bits((4, 64), 64, "float16", is_nested=True)
    others = {"a.weight": np.ones((2, 2), np.float16), "z.weight": np.ones((2, 2), np.float16)}
    assert list(decode(tmp_path, arrays | others)) == ["a.weight", "x.weight", "z.weight"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x.weight": None}, "x.weight is missing"),
        ({"x.weight": np.ones((3, 1), np.uint8)}, "3 elements"),
        ({"x.weight": np.ones((128, 1), np.float16)}, "of type F16"),
        ({"x.weight.absmax": None}, "absmax is missing"),
        ({"x.weight.absmax": np.ones(3, np.uint8)}, "3 elements"),
        ({"x.weight.nested_absmax": None}, "nested_absmax is missing"),
        ({"x.weight.nested_absmax": np.ones(9, np.float32)}, "nested_absmax has the shape"),
        ({"x.weight.quant_map": np.ones(15, np.float32)}, "quant_map has the shape"),
        ({"x.weight.nested_quant_map": np.ones(16, np.float32)}, "nested_quant_map has the shape"),
        ({STATE: np.frombuffer(b"[]", np.uint8)}, "not contain a JSON object"),
        ({STATE: np.frombuffer(b"{", np.uint8)}, "not JSON"),
        ({STATE: np.frombuffer(b"[" * 60_000, np.uint8)}, "not JSON"),
        ({STATE: np.zeros(1 << 17, np.uint8)}, "is not JSON in at most"),
        ({STATE: np.zeros(4, np.float32)}, "is not JSON in at most"),
    ],
)
def test_reports_parts_that_do_not_fit(tmp_path, change, message):
    arrays, _ = four_bits((4, 64), 64, "float16", is_nested=True)
    arrays = {name: array for name, array in (arrays | change).items() if array is not None}
    with pytest.raises(CheckpointError, match=message):
        decode(tmp_path, arrays)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("blocksize", n) for n in (None, 0, -64, True, "64", 1 << 40)),
        *(("shape", n) for n in (None, [], [4, 0], [4, -1], [4, 64.0], [1 << 60, 1], [1] * 65)),
        *(("nested_blocksize", n) for n in (None, 0)),
        *(("nested_offset", n) for n in (None, "0.5", True, 10**400, float("inf"), float("nan"))),
        *(("dtype", n) for n in (None, "int8", ["float16"])),
    ],
)
def test_reports_invalid_quant_state(tmp_path, key, value):
    arrays, _ = four_bits((4, 64), 64, "float16", is_nested=True)
    fields = json.loads(arrays[STATE].tobytes())
    arrays[STATE] = description(**fields | {key: value})
    with pytest.raises(CheckpointError, match=f": {key} is "):
        decode(tmp_path, arrays)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x.weight": np.ones((6, 10), np.float16)}, "of type F16"),
        ({"x.weight": np.ones(6, np.int8)}, "not a matrix"),
        ({"x.SCB": np.ones(5, np.float32)}, "x.SCB has the shape"),
        ({"x.weight_format": np.array(2, np.uint8)}, "x.weight_format is not 0"),
    ],
)
def test_reports_8_bit_weights_that_do_not_fit(tmp_path, change, message):
    arrays = {"x.weight": np.ones((6, 10), np.int8), "x.SCB": np.ones(6, np.float32)}
    with pytest.raises(CheckpointError, match=message):
        decode(tmp_path, arrays | change)


def test_lists_every_faulty_weight(tmp_path):
    with pytest.raises(CheckpointError) as caught:
        decode(tmp_path, {f"{name}.SCB": np.ones(6, np.float32) for name in "abc"})
    assert [problem[0] for problem in caught.value.problems] == ["a", "b", "c"]
