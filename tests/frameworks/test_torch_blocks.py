"""Blocks decode to the bits of the native kernels with PyTorch's operations, compiled or not."""

from __future__ import annotations

import math

import numpy as np
import pytest

import ggufkit
from ggufkit import quants
from ggufkit.errors import ShapeError, TensorTypeError, ValueTypeError
from ggufkit.format.types import TensorType, tensor_type
from ggufkit.quants.kernels import has_kernel

pytestmark = pytest.mark.torch

TYPES = [kind.name for kind in TensorType if has_kernel(kind)]
# One of each way to decode: groups with minima, a grid with signs, a table of scales.
COMPILED = ("Q4_K", "IQ3_S", "NVFP4")


def blocks_of(name, seed, density=1.0):
    """Return random rows: whatever a file may hold, infinite scales included."""
    kind = tensor_type(name)
    rng = np.random.default_rng(seed)
    shape = (2, 3, 16 * kind.block_bytes)
    return rng.integers(0, 256, shape, np.uint8) * (rng.random(shape) < density).astype(np.uint8)


def same_bits(ours, theirs):
    """Whether floats are the same bits; any NaN is like any other."""
    equal = ours.view(np.uint32) == theirs.view(np.uint32)
    return bool((equal | (np.isnan(ours) & np.isnan(theirs))).all())


def test_every_type_has_a_decoder():
    from ggufkit.frameworks.torch_blocks import DECODABLE

    assert {name for name in DECODABLE if not tensor_type(name).program} == set(TYPES)


@pytest.mark.parametrize("name", TYPES)
def test_values_are_those_of_the_kernels(name, torch):
    for seed, density in enumerate((1.0, 0.5, 0.1)):
        data = blocks_of(name, seed, density)
        decoded = ggufkit.torch.dequantize(torch.from_numpy(data), name)
        assert same_bits(decoded.numpy(), quants.dequantize(data, name))


@pytest.mark.parametrize("name", [name for name in TYPES if tensor_type(name).block_size > 1])
def test_products_need_no_rounding_so_fused_operations_change_nothing(name, torch):
    """With a scale in float64 each value rounds once; two roundings would differ somewhere."""
    if name == "Q8_K":
        pytest.skip("its scale has 24 bits, but nothing is added to its products")
    from ggufkit.frameworks import torch_blocks

    data = torch.from_numpy(blocks_of(name, 9)).reshape(-1, tensor_type(name).block_bytes)
    once = ggufkit.torch.dequantize(data, name)
    real = torch_blocks.torch

    class Doubled:
        float32 = real.float64

        def __getattr__(self, attribute):
            return getattr(real, attribute)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(torch_blocks, "torch", Doubled())
        exact = ggufkit.torch.dequantize(data, name)
    assert exact.dtype == real.float64
    assert same_bits(exact.float().numpy(), once.numpy())


@pytest.mark.parametrize("name", TYPES)
def test_every_type_compiles_into_one_graph(name, torch):
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda *layers: [ggufkit.torch.dequantize(data, name) for data in layers],
        backend="aot_eager",
        fullgraph=True,
    )
    data = blocks_of(name, 5)
    for decoded in compiled(torch.from_numpy(data), torch.from_numpy(data.copy())):
        assert same_bits(decoded.numpy(), quants.dequantize(data, name))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler's own modules
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_code_gives_the_same_bits(name, torch):
    torch._dynamo.reset()
    compiled = torch.compile(lambda data: ggufkit.torch.dequantize(data, name), fullgraph=True)
    data = blocks_of(name, 6)
    assert same_bits(compiled(torch.from_numpy(data)).numpy(), quants.dequantize(data, name))


def test_shapes_and_views_of_packed_data_are_taken(torch):
    data = torch.from_numpy(blocks_of("Q6_K", 1))
    whole = ggufkit.torch.dequantize(data, "q6_k").numpy()
    assert same_bits(ggufkit.torch.dequantize(data[:, 1:2], 14).numpy(), whole[:, 1:2])
    shifted = torch.cat((torch.zeros(1, dtype=torch.uint8), data.flatten()))[1:]
    assert same_bits(ggufkit.torch.dequantize(shifted, 14).numpy(), whole.flatten())
    assert ggufkit.torch.dequantize(data[:0], "Q6_K").shape == (0, 3, 16 * 256)


def test_another_dtype_is_rounded_from_float32(torch):
    data = torch.from_numpy(quants.quantize(np.linspace(-1, math.pi, 64, dtype=np.float32), "Q8_0"))
    half = ggufkit.torch.dequantize(data, "Q8_0", torch.float16)
    assert torch.equal(half, ggufkit.torch.dequantize(data, "Q8_0").half())


def test_wrong_data_is_refused_with_its_reason(torch):
    data = torch.zeros(18, dtype=torch.uint8)
    with pytest.raises(ShapeError, match="34 bytes of a Q8_0"):
        ggufkit.torch.dequantize(data, "Q8_0")
    with pytest.raises(ValueTypeError, match="float32"):
        ggufkit.torch.dequantize(data.float(), "Q4_0")
    with pytest.raises(TensorTypeError, match="Q4_2"):
        ggufkit.torch.dequantize(data, 4)
