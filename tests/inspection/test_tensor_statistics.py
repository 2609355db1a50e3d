from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import ggufkit
from ggufkit import quants
from ggufkit.errors import TensorTypeError, ValueTypeError
from ggufkit.format.types import GGML_TYPES, tensor_type
from ggufkit.inspection.tensor_statistics import TILE_ELEMENTS
from ggufkit.models.tensors.in_memory import as_tensor
from ggufkit.models.tensors.tensor import Tensor

RANDOM = np.random.default_rng(12)
ARRAY = RANDOM.standard_normal((700, 1024)).astype("f4")
ENCODABLE = [row.name for row in GGML_TYPES.values() if row.id in quants.kernels.codecs()]


@pytest.mark.parametrize("name", ["F32", "F16", "BF16", "Q4_K", "Q8_0", "IQ4_XS"])
def test_statistics_agree_with_numpy(name):
    tensor = as_tensor("t", (ARRAY, name))
    figures, values = ggufkit.tensor_statistics(tensor), tensor.numpy().astype("f8")
    assert tensor.elements > TILE_ELEMENTS
    assert (figures.elements, figures.nan, figures.infinite) == (values.size, 0, 0)
    assert (figures.min, figures.max) == (values.min(), values.max())
    assert figures.zeros == np.count_nonzero(values == 0)
    assert figures.zero_share == figures.zeros / values.size
    np.testing.assert_allclose(
        [figures.mean, figures.std, figures.norm],
        [values.mean(), values.std(), np.linalg.norm(values)],
        rtol=1e-12,
    )
    counts = np.histogram(values, figures.histogram.edges)[0]
    assert counts.tolist() == list(figures.histogram.counts)


def test_the_result_does_not_depend_on_threads():
    tensor = as_tensor("t", (ARRAY, "Q5_K"))
    assert ggufkit.tensor_statistics(tensor, threads=1) == ggufkit.tensor_statistics(
        tensor, threads=3
    )


def test_levels_and_scales_of_a_quantized_tensor_are_counted():
    tensor = as_tensor("t", (ARRAY, "Q4_0"))
    figures = ggufkit.tensor_statistics(tensor)
    packed = tensor.raw().reshape(-1, 18)
    nibbles = np.concatenate((packed[:, 2:] & 15, packed[:, 2:] >> 4)).reshape(-1)
    levels, counts = np.unique(nibbles.astype(int) - 8, return_counts=True)
    assert figures.levels == dict(zip(levels.tolist(), counts.tolist(), strict=True))
    scales = np.ascontiguousarray(packed[:, :2]).view("f2").astype("f8")
    assert np.histogram(scales, figures.scales.edges)[0].tolist() == list(figures.scales.counts)


def test_a_plain_tensor_has_no_levels():
    figures = ggufkit.tensor_statistics(as_tensor("t", ARRAY))
    assert figures.levels is None
    assert figures.scales is None


def test_numbers_that_are_not_finite_are_counted_and_enter_nothing_else():
    figures = ggufkit.tensor_statistics(as_tensor("t", np.float32([np.nan, np.inf, -np.inf, 3, 0])))
    assert (figures.elements, figures.nan, figures.infinite, figures.zeros) == (5, 1, 2, 1)
    assert (figures.min, figures.max, figures.mean, figures.norm) == (0.0, 3.0, 1.5, 3.0)
    assert sum(figures.histogram.counts) == 2


@pytest.mark.parametrize("array", [np.empty(0, "f4"), np.full(3, np.nan, "f4")])
def test_without_finite_elements_there_is_no_range(array):
    figures = ggufkit.tensor_statistics(as_tensor("t", array))
    assert (figures.min, figures.max, figures.mean, figures.std) == (None, None, None, None)
    assert figures.histogram.counts == ()
    assert figures.zero_share == 0


@pytest.mark.parametrize("kind", [row for row in GGML_TYPES.values() if row.is_quantized], ids=str)
def test_random_blocks_of_every_type_have_statistics(kind):
    data = RANDOM.integers(0, 256, (4, 2 * kind.block_bytes), np.uint8)
    tensor = Tensor.over(
        "t", kind, (4, 2 * kind.block_size), ggufkit.models.sources.ArraySource(data)
    )
    figures = ggufkit.tensor_statistics(tensor)
    assert sum(figures.levels.values()) == figures.elements == 8 * kind.block_size
    assert figures.to_dict()["zero_share"] == figures.zero_share


def test_memory_does_not_grow_with_the_tensor(tmp_path):
    ggufkit.save(tmp_path / "m.gguf", {"t": np.zeros((16, 1 << 20), "f4")}, {})
    with ggufkit.open(tmp_path / "m.gguf") as model:
        tracemalloc.start()
        ggufkit.tensor_statistics(model["t"], threads=1)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 32 << 20


def test_progress_ends_at_the_bytes_of_the_tensor():
    seen = []
    tensor = as_tensor("t", ARRAY)
    ggufkit.tensor_statistics(tensor, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (tensor.nbytes, tensor.nbytes)


def test_an_unknown_type_is_refused():
    tensor = Tensor("t", tensor_type(77), (4,), 4, as_tensor("t", ARRAY).source)
    with pytest.raises(TensorTypeError, match="TYPE_77, which cannot be decoded"):
        ggufkit.tensor_statistics(tensor)


def test_one_bin_is_refused():
    with pytest.raises(ValueTypeError, match="1 bins are too few"):
        ggufkit.tensor_statistics(as_tensor("t", ARRAY), bins=1)
