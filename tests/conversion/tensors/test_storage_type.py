"""The stored type of each tensor is the one that llama.cpp's converter chooses."""

from __future__ import annotations

import numpy as np
import pytest

from ggufkit.conversion.tensors.storage_type import stored
from ggufkit.models.sources import from_array


@pytest.mark.parametrize("ternary", ["TQ1_0", "TQ2_0"])
@pytest.mark.parametrize(("name", "shape", "kind"), [
    ("blk.0.attn_q.weight", (4, 256), None),
    ("blk.0.attn_q.weight", (4, 128), "F16"),
    ("token_embd.weight", (4, 256), "F16"),
    ("output.weight", (4, 256), "F16"),
    ("output_norm.weight", (256,), "F32"),
])  # fmt: skip
def test_ternary_files_keep_embeddings_and_output_f16(ternary, name, shape, kind):
    tensor = from_array(name, np.ones(shape, np.float32))
    assert stored(tensor, ternary).type.name == (kind or ternary)


@pytest.mark.parametrize(("own", "kind"), [
    ({}, "F32"),
    ({"blk.*.ffn_gate_inp.weight": "file"}, "Q8_0"),
    ({"*_inp.weight": "BF16"}, "BF16"),
    ({"other.weight": "BF16"}, "F32"),
])  # fmt: skip
def test_architecture_file_gives_a_tensor_its_own_type(own, kind):
    tensor = from_array("blk.0.ffn_gate_inp.weight", np.ones((4, 64), np.float32))
    assert stored(tensor, "Q8_0", own).type.name == kind


@pytest.mark.parametrize("kind", ["F32", "BF16"])
def test_tensor_can_keep_the_type_of_its_source_in_every_file(kind):
    tensor = from_array("blk.0.ffn_gate_inp.weight", np.ones((4, 64), np.float32), kind)
    assert stored(tensor, "Q8_0", {"*": "source"}).type.name == kind
    assert stored(tensor, "F16", {"*": "source"}, from_fp8=True).type.name == "Q8_0"


def test_vectors_and_norms_stay_f32_whatever_an_architecture_file_says():
    for name, shape in (("blk.0.attn_norm.weight", (2, 64)), ("blk.0.attn_sinks.weight", (64,))):
        tensor = from_array(name, np.ones(shape, np.float32))
        assert stored(tensor, "Q8_0", {"*": "file"}).type.name == "F32"
