"""Models of arrays hold what was meant, and say so where a form has two meanings."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ggufkit
from ggufkit import quants
from ggufkit.errors import ShapeError, TensorTypeError

NUMBERS = np.linspace(-2, 2, 128, dtype=np.float32).reshape(2, 64)
BITS = NUMBERS.astype(ml_dtypes.bfloat16).view(np.uint16)
PACKED = quants.quantize(NUMBERS, "Q8_0")


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        *((PACKED, "F32"), (PACKED, "BF16"), (PACKED, "Q8_0")),
        *((BITS, "Q8_0"), (BITS, "F32"), (BITS, "BF16")),
    ],
)
def test_unsigned_integers_are_not_read_as_bits_in_silence(array, kind):
    with pytest.raises(TensorTypeError, match=r"cannot become .*ggufkit\.(packed|bf16)"):
        ggufkit.model({"t": (array, kind)})


@pytest.mark.parametrize(
    ("pair", "explicit"),
    [((PACKED, "Q8_0"), ggufkit.packed(PACKED, "Q8_0")), ((BITS, "BF16"), ggufkit.bf16(BITS))],
)
def test_bits_are_taken_where_they_are_called_so(pair, explicit):
    tensor = ggufkit.model({"t": explicit})["t"]
    assert (tensor.name, tensor.type, tensor.shape) == ("t", pair[1], NUMBERS.shape)
    assert np.array_equal(tensor.raw(), pair[0].view(np.uint8))


def test_bits_of_the_wrong_dtype_are_refused():
    with pytest.raises(TensorTypeError, match="not an array of uint8"):
        ggufkit.packed(NUMBERS, "Q8_0")
    with pytest.raises(TensorTypeError, match="not an array of uint16"):
        ggufkit.bf16(NUMBERS)
    with pytest.raises(ShapeError, match="do not divide"):
        ggufkit.packed(PACKED[:, :33], "Q8_0")


def test_more_axes_than_ggml_reads_are_refused():
    with pytest.raises(ShapeError, match="5 axes"):
        ggufkit.model({"t": np.ones((2, 1, 1, 1, 4), np.float32)})


def test_quantized_tensors_bring_the_version_of_their_blocks(tmp_path):
    (path,) = ggufkit.save(tmp_path / "m.gguf", {"t": (NUMBERS, "Q8_0")})
    with ggufkit.open(path) as model:
        assert model.metadata.typed("general.quantization_version") == np.uint32(2)
    assert "quantization-version" not in {finding.rule for finding in ggufkit.check(path)}
    assert not ggufkit.model({"t": NUMBERS}).metadata


def test_replaced_metadata_may_be_a_dict(tmp_path):
    model = ggufkit.model({"t": NUMBERS}, {"general.architecture": "llama", "x.y": np.uint64(3)})
    keys = model.metadata | {"general.name": "x"}
    (path,) = model.replace(metadata=dict(keys.typed_items())).write(tmp_path / "m.gguf")
    with ggufkit.open(path) as written:
        assert written.metadata == keys
    (path,) = model.replace(metadata={"general.name": "y"}).write(tmp_path / "n.gguf")
    with ggufkit.open(path) as written:
        assert dict(written.metadata) == {"general.name": "y"}
