"""ik_llama.cpp's types decode to the numbers that its own code gives."""

from __future__ import annotations

import json

import numpy as np
import pytest

import ggufkit
import ik_digests
import ik_repacked
from ggufkit import quants
from ggufkit.errors import ShapeError, TensorTypeError, TruncatedError
from ggufkit.format.types import IK, TensorType
from ggufkit.inspection import summary
from ggufkit.models.byte_ranges import decoded_rows
from ggufkit.models.sources import from_array
from ggufkit.quants.ik_interleaved import interleaved, separated
from shell import done

KINDS = ik_digests.kinds()
REPACKED = json.loads(ik_repacked.TABLE.read_text(encoding="utf-8"))
RECORDED = json.loads(ik_digests.TABLE.read_text(encoding="utf-8"))
ENCODED = json.loads(ik_digests.ENCODED.read_text(encoding="utf-8"))


def test_every_type_with_a_decoder_is_recorded():
    assert sorted(RECORDED) == sorted(kind.name for kind in KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_elements_are_those_of_ik_llama(kind):
    elements = quants.dequantize(ik_digests.seeded_rows(kind), kind)
    assert ik_digests.digest(elements) == RECORDED[kind]


def test_every_type_with_an_encoder_is_recorded():
    assert sorted(ENCODED) == sorted(kind.name for kind in ik_digests.encodable_kinds())


@pytest.mark.parametrize("isa", quants.instruction_sets())
@pytest.mark.parametrize("kind", ik_digests.encodable_kinds(), ids=str)
def test_encoded_rows_are_those_of_ik_llama(kind, isa, monkeypatch):
    monkeypatch.setenv("GGUFKIT_ISA", isa)
    digests = ik_digests.encoded_digests(
        kind, lambda values, weights: quants.quantize(values, kind, imatrix=weights)
    )
    assert digests == ENCODED[kind]


def test_quantize_writes_types_of_ik_llama_that_options_name(tmp_path):
    values = np.random.default_rng(0).standard_normal((4, 512)).astype("f4")
    kinds = {
        "blk.0.ffn_up.weight": "IQ4_K",
        "blk.0.ffn_gate.weight": "Q6_0",
        "output.weight": "IQ6_K",
    }
    arrays = dict.fromkeys(kinds, values)
    ggufkit.write(ggufkit.model(arrays, {"general.architecture": "llama"}), tmp_path / "in.gguf")
    options = ["--tensor-type", "ffn_up=IQ4_K", "--tensor-type", "ffn_gate=Q6_0"]
    options += ["--output-tensor-type", "IQ6_K"]
    done("quantize", tmp_path / "in.gguf", tmp_path / "out.gguf", "Q8_0", *options)
    with ggufkit.open(tmp_path / "out.gguf") as model:
        for name, kind in kinds.items():
            assert model[name].type == kind
            np.testing.assert_array_equal(model[name].raw(), quants.quantize(values, kind))


@pytest.mark.parametrize("kind", [k for k in KINDS if k.interleaved == 1], ids=str)
def test_torch_decodes_the_same_bits(kind):
    torch = pytest.importorskip("torch")
    from ggufkit.frameworks.torch_blocks import decode

    rows = ik_digests.seeded_rows(kind)
    assert ik_digests.digest(decode(torch.from_numpy(rows), kind).numpy()) == RECORDED[kind]


@pytest.fixture
def path(tmp_path):
    """Return a file with a tensor of each kind, and its tensors as arrays."""
    tensors = [from_array(f"{kind}.weight", ik_digests.seeded_rows(kind), kind) for kind in KINDS]
    file = tmp_path / "ik.gguf"
    ggufkit.write(ggufkit.model({"a": [1.0]}).replace(tensors=tensors), file)
    return file


def test_a_file_is_read_decoded_and_measured(path):
    with ggufkit.open(path) as model:
        for kind in KINDS:
            tensor = model[f"{kind}.weight"]
            rows = ik_digests.seeded_rows(kind)
            assert (tensor.type, tensor.nbytes) == (kind, rows.nbytes)
            assert ik_digests.digest(tensor.numpy()) == RECORDED[kind]
            statistics = ggufkit.tensor_statistics(tensor)
            assert statistics.max == tensor.numpy().max()
        assert summary.summarize(model).program == IK
        assert not ggufkit.diff(model, model).tensors


def test_check_names_the_program_and_finds_nothing_else(path):
    findings = ggufkit.check(path, data=True)
    assert {finding.rule for finding in findings} >= {"type-program"}
    assert not [finding for finding in findings if finding.rule.startswith("data-")]
    assert any(IK in finding.message for finding in findings)


@pytest.mark.parametrize("target", ["Q8_0", "Q4_K", "F32"])
def test_types_become_those_of_llama_cpp(path, tmp_path, target):
    with ggufkit.open(path) as model:
        result = ggufkit.quantize(model, target, allow_requantize=True, pure=True)
        ggufkit.write(result, tmp_path / "out.gguf")
        with ggufkit.open(tmp_path / "out.gguf") as out:
            for name, tensor in out.tensors.items():
                expected = quants.quantize(model[name].numpy(), tensor.type)
                assert tensor.type.program is None
                np.testing.assert_array_equal(tensor.raw(), expected)


def test_deinterleaved_rows_have_the_same_elements(path, tmp_path):
    out = tmp_path / "plain.gguf"
    done("copy", path, out, "--deinterleave")
    with ggufkit.open(path) as model, ggufkit.open(out) as plain:
        for name, tensor in model.tensors.items():
            assert plain[name].type == (tensor.type.plain or tensor.type)
            expected, actual = (x.numpy() + np.float32(0) for x in (tensor, plain[name]))
            np.testing.assert_array_equal(actual, expected, err_msg=name)


@pytest.mark.parametrize("kind", ik_repacked.kinds(), ids=str)
def test_plain_rows_are_interleaved_as_by_ik_llama_and_back(kind):
    rows = ik_repacked.random_rows(kind)
    moved = interleaved(rows, kind)
    assert ik_repacked.digest(moved) == REPACKED[kind]
    np.testing.assert_array_equal(separated(moved, kind), rows)


def test_rows_that_are_no_groups_and_types_of_their_own_are_not_interleaved():
    with pytest.raises(ShapeError, match="6 rows of Q4_K_R4 are not groups of 4"):
        interleaved(np.zeros((6, 144), np.uint8), TensorType["Q4_K_R4"])
    with pytest.raises(ShapeError, match="pairs of columns"):
        interleaved(np.zeros((16, 6), np.uint8), TensorType["BF16_R16"])
    with pytest.raises(TensorTypeError, match="no plain form"):
        interleaved(np.zeros((4, 8), np.uint8), TensorType["IQ1_S_R4"])


def test_interleaved_rows_are_read_in_any_part_and_refused_in_part_of_a_group(path):
    with ggufkit.open(path) as model:
        tensor = model["Q4_K_R4.weight"]
        rows = decoded_rows(tensor, 3, 6)
        np.testing.assert_array_equal(rows, tensor.numpy()[3:6])
        np.testing.assert_array_equal(tensor[4:8].numpy(), tensor.numpy()[4:8])
        with pytest.raises(ShapeError, match="belong together"):
            tensor[3:6]
        with pytest.raises(ShapeError, match="cannot be chosen"):
            tensor[[0, 2]]
    with pytest.raises(ShapeError, match="3 rows of Q4_K_R4 are not groups of 4"):
        quants.dequantize(np.zeros((3, 144), np.uint8), "Q4_K_R4")


def test_quantizing_again_names_the_program(path):
    with ggufkit.open(path) as model, pytest.raises(TensorTypeError, match="of ik_llama"):
        ggufkit.quantize(model, "Q4_K_M")


def test_hashing_names_the_program(path):
    assert f"only {IK} reads this file" in done("hash", path).err


def test_rows_shorter_than_their_prefix_are_refused():
    with pytest.raises(ShapeError, match="4 bytes before the blocks"):
        quants.dequantize(np.zeros((2, 3), np.uint8), "IQ4_KS")
    with pytest.raises(ShapeError, match="a prefix of 4 bytes"):
        quants.dequantize(np.zeros((2, 136), np.uint8), "IQ4_KS")


def test_a_file_without_the_last_row_prefix_is_truncated(path):
    with ggufkit.open(path) as model:
        last = [*model.tensors.values()][-1]
        size = last.offset + last.nbytes - last.row_bytes + 1
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(TruncatedError):
        ggufkit.open(path)


def test_ik_types_are_not_written_as_big_endian(path, tmp_path):
    with (
        ggufkit.open(path) as model,
        pytest.raises(TensorTypeError, match="cannot change its byte order"),
    ):
        ggufkit.write(model, tmp_path / "big.gguf", byte_order="big")


def test_a_type_without_decoder_gives_bytes_alone():
    kind = next(k for k in TensorType if k.program == IK and k not in KINDS)
    with pytest.raises(TensorTypeError, match="cannot be decoded"):
        quants.dequantize(np.zeros((16, kind.row_bytes(1024)), np.uint8), kind)


def test_slices_of_rows_keep_their_prefix_and_no_row_is_cut(path):
    with ggufkit.open(path) as model:
        tensor = model["IQ4_KS.weight"]
        np.testing.assert_array_equal(tensor[3:5].numpy(), tensor.numpy()[3:5])
        np.testing.assert_array_equal(tensor[[5, 2]].numpy(), tensor.numpy()[[5, 2]])
        with pytest.raises(ShapeError, match="cannot be cut"):
            tensor[1][:256]
