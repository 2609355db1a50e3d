from __future__ import annotations

import pytest

import forge
import ggufkit as library
import legacy_files
from sampled import divided
from shell import done, ggufkit


def test_converts_a_file_and_reports_it(tmp_path):
    legacy_files.write(tmp_path / "old.bin", "GGJT", 3, "Q4_0")
    result = done("convert-legacy", tmp_path / "old.bin", tmp_path / "new.gguf")
    assert result.out.startswith(f"wrote {tmp_path / 'new.gguf'} (")
    assert result.err == ""
    with library.open(tmp_path / "new.gguf") as model:
        assert model.metadata["llama.block_count"] == legacy_files.LAYERS


def test_notes_missing_scores_but_not_scores_from_another_vocabulary(tmp_path):
    legacy_files.write(tmp_path / "old.bin", "GGML", 0)
    legacy_files.write(tmp_path / "scored.bin", "GGJT", 3)
    done("convert-legacy", tmp_path / "scored.bin", tmp_path / "scored.gguf")
    bare = done("convert-legacy", tmp_path / "old.bin", tmp_path / "bare.gguf")
    assert "--vocab-from" in bare.err
    words = ("--vocab-from", tmp_path / "scored.gguf")
    lent = done("convert-legacy", tmp_path / "old.bin", tmp_path / "lent.gguf", *words)
    assert lent.err == ""
    with library.open(tmp_path / "lent.gguf") as model:
        assert model.metadata["tokenizer.ggml.scores"][261] == -2


def test_decoded_blocks_are_quantized_in_the_same_run(tmp_path):
    legacy_files.write(tmp_path / "old.bin", "GGJT", 1, "Q4_0")
    options = ("--quantize", "Q8_0", "--rms-epsilon", "1e-5", "--context-length", 4096)
    done("convert-legacy", tmp_path / "old.bin", tmp_path / "new.gguf", *options)
    with library.open(tmp_path / "new.gguf") as model:
        assert model.tensors["blk.0.ffn_up.weight"].type.name == "Q8_0"
        assert model.metadata["llama.context_length"] == 4096


def test_requantizing_needs_an_option(tmp_path):
    legacy_files.write(tmp_path / "old.bin", "GGJT", 3, "Q5_0")
    words = ("convert-legacy", tmp_path / "old.bin", tmp_path / "new.gguf", "--quantize", "Q8_0")
    assert "--allow-requantize" in ggufkit(*words).err
    assert not (tmp_path / "new.gguf").exists()
    done(*words, "--allow-requantize")


def test_refuses_an_output_that_is_the_input(tmp_path):
    legacy_files.write(tmp_path / "old.bin", "GGJT", 3)
    before = (tmp_path / "old.bin").read_bytes()
    assert ggufkit("convert-legacy", tmp_path / "old.bin", tmp_path / "old.bin").code == 1
    assert (tmp_path / "old.bin").read_bytes() == before


def test_other_commands_point_to_convert_legacy(tmp_path):
    legacy_files.write(tmp_path / "old.bin", "GGJT", 3)
    assert "convert-legacy" in ggufkit("inspect", tmp_path / "old.bin").err


@pytest.mark.parametrize(
    "name", divided(([name] for name in forge.corpus()), lambda number: number % 8 == 0)
)
def test_refuses_a_forged_gguf(name, tmp_path):
    path = forge.write(forge.corpus()[name], tmp_path / "forged")
    result = ggufkit("convert-legacy", path, tmp_path / "out.gguf")
    assert result.code == 1
    assert "error: " in result.err
    assert not (tmp_path / "out.gguf").exists()
