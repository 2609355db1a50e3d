"""Checkpoints in Mistral's own format become the same files as with llama.cpp's converter."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import ggufkit
import mistral_folders
from ggufkit.errors import CheckpointError
from shell import ggufkit as run

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "oracle"))
import mistral_digests

CASES = mistral_folders.cases()
RECORDED = mistral_digests.recorded()
OPTIONS = {
    mistral_digests.PROJECTOR: {"mmproj": True},
    mistral_digests.NO_TEMPLATE: {"no_community_template": True},
}


def folder_of(case: str, place: Path) -> Path:
    return mistral_folders.make(CASES[case], place / case)


def test_every_case_of_mistrals_format_is_recorded():
    assert CASES.keys() == RECORDED.keys(), "tests/oracle/mistral_digests.py records them"
    assert all(set(mistral_digests.TYPES) <= set(digests) for digests in RECORDED.values())


@pytest.mark.parametrize("case", CASES)
def test_mistrals_format_becomes_the_same_file(case, tmp_path):
    folder = folder_of(case, tmp_path)
    for kind, expected in RECORDED[case].items():
        out = tmp_path / "ours.gguf"
        options = OPTIONS.get(kind, {"outtype": kind})
        with ggufkit.convert(folder, mistral_format="params" in CASES[case], **options) as model:
            ggufkit.write(model, out)
        assert mistral_digests.digest(out) == expected, kind


def test_command_converts_mistrals_format(tmp_path):
    out = tmp_path / "out.gguf"
    done = run("convert", folder_of("tekken-v7", tmp_path), out, "--mistral-format")
    assert done.code == 0
    assert mistral_digests.digest(out) == RECORDED["tekken-v7"]["auto"]
    assert run("check", out).code == 0


def test_folder_with_only_mistrals_format_names_the_option(tmp_path):
    with pytest.raises(CheckpointError, match="--mistral-format"):
        ggufkit.convert(folder_of("spm-v1", tmp_path))


def test_folder_without_params_says_so(tmp_path):
    with pytest.raises(CheckpointError, match=r"has no params\.json"):
        ggufkit.convert(folder_of("config", tmp_path), mistral_format=True)
    refused = run("convert", tmp_path / "config", tmp_path / "c.gguf", "--mistral-format")
    assert refused.code == 1
    assert "Leave out the option for Mistral's own format (--mistral-format)" in refused.err


def test_folder_with_both_formats_is_read_as_config_json_says(tmp_path):
    folder = folder_of("config", tmp_path)
    for path in folder_of("spm-v1", tmp_path).iterdir():
        path.rename(folder / path.name)
    out = tmp_path / "ours.gguf"
    with ggufkit.convert(folder) as model:
        ggufkit.write(model, out)
    assert mistral_digests.digest(out) == RECORDED["config"]["auto"]


def test_version_without_a_template_is_named(tmp_path):
    notes: list[str] = []
    ggufkit.convert(folder_of("tied", tmp_path), mistral_format=True, say=notes.append).close()
    assert any("no chat template" in note and "'v11'" in note for note in notes)


def test_flag_that_leaves_out_templates_of_mistral_needs_its_format(tmp_path):
    flag = "--disable-mistral-community-chat-template"
    out, folder = tmp_path / "out.gguf", folder_of("tekken-v7", tmp_path)
    assert run("convert", folder, out, "--mistral-format", flag).code == 0
    with ggufkit.open(out) as model:
        assert "tokenizer.chat_template" not in model.metadata
    refused = run("convert", folder, out, flag)
    assert (refused.code, "goes with --mistral-format" in refused.err) == (2, True)


def test_projector_of_a_folder_without_an_encoder_is_one_error(tmp_path):
    with pytest.raises(CheckpointError, match="configuration has no vision encoder") as caught:
        ggufkit.convert(folder_of("tekken-v7", tmp_path), mistral_format=True, mmproj=True)
    assert caught.value.problems == ()


def test_missing_field_is_named_with_its_file(tmp_path):
    folder = folder_of("spm-v3", tmp_path)
    params = json.loads((folder / "params.json").read_text())
    del params["head_dim"]
    (folder / "params.json").write_text(json.dumps(params))
    with pytest.raises(CheckpointError, match=r"params\.json lacks head_dim"):
        ggufkit.convert(folder, mistral_format=True)


def test_unknown_quantization_is_named(tmp_path):
    folder = folder_of("fp8", tmp_path)
    params = json.loads((folder / "params.json").read_text())
    params["quantization"] = {"qformat_weight": "nvfp4"}
    (folder / "params.json").write_text(json.dumps(params))
    with pytest.raises(CheckpointError, match="quantized by 'nvfp4'"):
        ggufkit.convert(folder, mistral_format=True)


def test_folder_without_a_tokenizer_says_which_file_is_missing(tmp_path):
    folder = folder_of("spm-v3", tmp_path)
    (folder / "tokenizer.model.v3").unlink()
    with pytest.raises(CheckpointError, match=r"no tekken\.json and no tokenizer\.model"):
        ggufkit.convert(folder, mistral_format=True)


def test_latest_version_of_the_tokenizer_is_read(tmp_path):
    folder = folder_of("spm-v3", tmp_path)
    (folder / "tokenizer.model").write_bytes(b"not a model")
    with ggufkit.convert(folder, mistral_format=True) as model:
        assert model.metadata["tokenizer.chat_template"] == "mistral-v3"


@pytest.mark.parametrize(
    ("field", "value"),
    [("default_num_special_tokens", 3), ("default_num_special_tokens", -1),
     ("default_vocab_size", 10**9), ("default_vocab_size", 2)],
)  # fmt: skip
def test_tekken_that_contradicts_itself_is_refused(tmp_path, field, value):
    folder = folder_of("tekken-v7", tmp_path)
    content = json.loads((folder / "tekken.json").read_text())
    content["config"][field] = value
    (folder / "tekken.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="contradict their format"):
        ggufkit.convert(folder, mistral_format=True)


def test_token_that_no_merge_makes_is_named(tmp_path):
    folder = folder_of("tekken-v7", tmp_path)
    content = json.loads((folder / "tekken.json").read_text())
    content["vocab"][260] |= {"token_bytes": "enp6eg=="}
    (folder / "tekken.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=r"token 260 .* is not made of two others"):
        ggufkit.convert(folder, mistral_format=True)
