from __future__ import annotations

import pytest

import forge
import ggufkit as library
import legacy_files
from shell import done, ggufkit


def test_file_is_converted_and_reported(tmp_path):
    legacy_files.write(tmp_path / "old.bin", "GGJT", 3, "Q4_0")
    result = done("convert-legacy", tmp_path / "old.bin", tmp_path / "new.gguf")
    assert result.out.startswith(f"wrote {tmp_path / 'new.gguf'} (")
    assert result.err == ""
    with library.open(tmp_path / "new.gguf") as model:
        assert model.metadata["llama.block_count"] == legacy_files.LAYERS


def test_missing_scores_are_noted_and_borrowed_ones_are_not(tmp_path):
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


def test_decoded_blocks_become_small_again_in_one_go(tmp_path):
    legacy_files.write(tmp_path / "old.bin", "GGJT", 1, "Q4_0")
    options = ("--recipe", "Q8_0", "--rms-epsilon", "1e-5", "--context-length", 4096)
    done("convert-legacy", tmp_path / "old.bin", tmp_path / "new.gguf", *options)
    with library.open(tmp_path / "new.gguf") as model:
        assert model.tensors["blk.0.ffn_up.weight"].type.name == "Q8_0"
        assert model.metadata["llama.context_length"] == 4096


def test_quantizing_again_wants_to_be_allowed(tmp_path):
    legacy_files.write(tmp_path / "old.bin", "GGJT", 3, "Q5_0")
    words = ("convert-legacy", tmp_path / "old.bin", tmp_path / "new.gguf", "--recipe", "Q8_0")
    assert "--allow-requantize" in ggufkit(*words).err
    assert not (tmp_path / "new.gguf").exists()
    done(*words, "--allow-requantize")


def test_output_that_is_the_input_is_refused(tmp_path):
    legacy_files.write(tmp_path / "old.bin", "GGJT", 3)
    before = (tmp_path / "old.bin").read_bytes()
    assert ggufkit("convert-legacy", tmp_path / "old.bin", tmp_path / "old.bin").code == 1
    assert (tmp_path / "old.bin").read_bytes() == before


def test_other_commands_lead_here(tmp_path):
    legacy_files.write(tmp_path / "old.bin", "GGJT", 3)
    assert "convert-legacy" in ggufkit("inspect", tmp_path / "old.bin").err


@pytest.mark.matrix
@pytest.mark.parametrize("name", forge.corpus())
def test_forged_gguf_is_an_error(name, tmp_path):
    path = forge.write(forge.corpus()[name], tmp_path / "forged")
    result = ggufkit("convert-legacy", path, tmp_path / "out.gguf")
    assert result.code == 1
    assert "error: " in result.err
    assert not (tmp_path / "out.gguf").exists()
