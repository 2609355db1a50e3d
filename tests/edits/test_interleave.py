"""`copy --interleave` stores what ik_llama.cpp's `llama-quantize --repack` does."""

from __future__ import annotations

import numpy as np
import pytest

import ggufkit
from ggufkit import quants
from ggufkit.edits.interleave import deinterleaved, interleaved
from ggufkit.format.types import TensorType
from ggufkit.models.sources import from_array, retyped
from ggufkit.quants import ik_interleaved
from shell import done
from shell import ggufkit as run

RANDOM = np.random.default_rng(1).standard_normal((2, 16, 256)).astype(np.float32)
SHAPES = {
    "blk.0.attn_q.weight": ("Q4_K", RANDOM[0]),
    "blk.0.attn_k.weight": ("Q8_0", RANDOM[0, :12]),  # not groups of 8
    "blk.0.ffn_down.weight": ("IQ4_XS", RANDOM[1]),
    "blk.0.ffn_up_exps.weight": ("Q6_K", RANDOM),
    "blk.0.ffn_down_exps.weight": ("Q6_K", RANDOM[:, :6]),  # 12 rows, but 6 in each matrix
    "blk.0.attn_norm.weight": ("F32", RANDOM[0, 0]),
    "blk.0.attn_v.weight": ("BF16", RANDOM[0]),
    "output.weight": ("Q5_K", RANDOM[0]),
    "token_embd.weight": ("Q4_K", RANDOM[0]),
}
TYPES = {
    "blk.0.attn_q.weight": "Q4_K_R4",
    "blk.0.ffn_down.weight": "IQ4_XS_R8",
    "blk.0.ffn_up_exps.weight": "Q6_K_R4",
    "output.weight": "Q5_K_R4",
}


def model(file_type=15):
    tensors = [from_array(name, array, kind) for name, (kind, array) in SHAPES.items()]
    keys = {"general.file_type": np.uint32(file_type)} if file_type is not None else {"a": 1}
    return ggufkit.model({"a": [1.0]}, keys).replace(tensors=tensors)


def test_interleaves_what_ik_llama_does_and_keeps_the_rest(tmp_path):
    before, path = model(), tmp_path / "repacked.gguf"
    ggufkit.write(before, tmp_path / "plain.gguf")
    done("copy", tmp_path / "plain.gguf", path, "--interleave")
    with ggufkit.open(path) as after:
        for name, tensor in after.tensors.items():
            plain = before[name]
            assert tensor.type == TYPES.get(name, plain.type)
            rows = plain.raw().reshape(-1, tensor.row_bytes)
            expected = ik_interleaved.interleaved(rows, tensor.type) if name in TYPES else rows
            np.testing.assert_array_equal(tensor.raw().reshape(rows.shape), expected)
            np.testing.assert_array_equal(tensor.numpy(), plain.numpy())
    done("copy", path, tmp_path / "back.gguf", "--deinterleave")
    with ggufkit.open(tmp_path / "back.gguf") as back:
        assert back.metadata["general.file_type"] == 14  # of Q4_K_S and Q4_K_M the first
        assert all(
            (back[name].raw() == tensor.raw()).all() for name, tensor in before.tensors.items()
        )


@pytest.mark.parametrize(
    ("plain", "repacked", "back"),
    [(15, 214, 14), (10, 210, 10), (21, 21, 21), (140, 340, 140), (29, 229, 29), (38, 38, 38)],
)
def test_the_number_of_the_recipe_is_that_of_ik_llama(plain, repacked, back):
    changed = interleaved(model(plain))
    assert changed.metadata.typed("general.file_type") == np.uint32(repacked)
    assert deinterleaved(changed).metadata["general.file_type"] == back


def test_a_model_without_the_number_gets_none():
    assert "general.file_type" not in interleaved(model(None)).metadata


def test_a_model_that_cannot_be_interleaved_is_refused(tmp_path):
    path = tmp_path / "a.gguf"
    ggufkit.save(path, {"blk.0.attn_q.weight": RANDOM[0], "token_embd.weight": RANDOM[0]}, {})
    result = run("copy", path, tmp_path / "b.gguf", "--interleave")
    assert result.code == 1
    assert "no tensor can be interleaved" in result.err
    assert run("copy", path, tmp_path / "b.gguf", "--interleave", "--deinterleave").code == 2


@pytest.mark.parametrize("kind", ["Q4_K_R4", "IQ4_NL_R4", "BF16_R16"])
def test_a_tensor_is_quantized_into_interleaved_rows(kind):
    plain = TensorType[TensorType[kind].plain]
    tensor = from_array("a.weight", RANDOM[0])
    expected = ik_interleaved.interleaved(quants.quantize(RANDOM[0], plain), TensorType[kind])
    np.testing.assert_array_equal(retyped(tensor, kind).raw(), expected)
