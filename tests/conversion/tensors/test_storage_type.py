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
