"""`convert` with `keep_quantized`: GPTQ's weights become blocks with the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

import ggufkit
from plain_checkpoint import ARCH, CONFIG, numbers, whole
from tensors_file import write_checkpoint

RNG = np.random.default_rng(3)
WIDTHS = {8: 64, 12: 128, 10: 10}  # of the plain checkpoint, and of this one
SIZES = {"hidden_size": 64, "intermediate_size": 128}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32}


def packed(stem, rows, width):
    """Return a matrix of GPTQ with the zero point 8 in all groups."""
    return {
        f"{stem}.qweight": RNG.integers(-(2**31), 2**31, (width // 8, rows)).astype(np.int32),
        f"{stem}.qzeros": np.full((width // 32, rows // 8), 0x77777777, np.int32),
        f"{stem}.scales": RNG.normal(size=(width // 32, rows)).astype(np.float16),
    }


@pytest.fixture
def checkpoint(tmp_path):
    (tmp_path / "plain.toml").write_text(ARCH)
    tensors = {}
    for name, array in whole().items():
        shape = [WIDTHS[size] for size in array.shape]
        is_packed = "_proj" in name
        stem = name.removesuffix(".weight")
        tensors |= packed(stem, *shape) if is_packed else {name: numbers(*shape)}
    config = CONFIG | SIZES | {"quantization_config": GPTQ}
    return write_checkpoint(tmp_path / "model", config, model=tensors)


def test_weights_keep_their_numbers_through_names_and_permutations(checkpoint, tmp_path):
    notes = []
    arch = {"arch_path": [tmp_path]}
    packed_model = ggufkit.convert(checkpoint, keep_quantized=True, say=notes.append, **arch)
    decoded = ggufkit.convert(checkpoint, outtype="f32", **arch)
    assert packed_model.metadata["general.file_type"] == 2
    assert any(note.startswith("kept exactly: 14 as Q4_0; 0 ") for note in notes)
    for name, tensor in decoded.tensors.items():
        is_matrix = name.startswith("blk.") and "norm" not in name
        assert (packed_model.tensors[name].type == "Q4_0") == is_matrix
        if is_matrix:
            assert np.array_equal(packed_model.tensors[name].numpy(), tensor.numpy())
    ggufkit.write(packed_model, tmp_path / "kept.gguf")
    assert ggufkit.check(tmp_path / "kept.gguf") == []


def test_by_default_weights_are_decoded_as_in_the_converter_of_llama_cpp(checkpoint, tmp_path):
    model = ggufkit.convert(checkpoint, arch_path=[tmp_path])
    assert {tensor.type.name for tensor in model.tensors.values()} == {"F16", "F32"}
