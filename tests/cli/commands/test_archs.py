from __future__ import annotations

import json

from shell import ggufkit


def test_archs_lists_names_files_and_classes():
    out = ggufkit("archs").out
    assert "LlamaForCausalLM" in out
    assert "ggufkit/arch/llama.toml" in out


def test_archs_shows_the_files_for_a_class():
    document = json.loads(ggufkit("archs", "Qwen3ForCausalLM", "--json").out)
    names = [entry["name"] for entry in document]
    assert names == ["qwen3", "qwen3-reranker", "qwen3-reranker-tied"]
    assert all("Qwen3ForCausalLM" in entry["classes"] for entry in document)


def test_archs_shows_the_file_with_a_listed_name():
    document = json.loads(ggufkit("archs", "gemma3", "--json").out)
    assert [entry["name"] for entry in document] == ["gemma3"]


def test_archs_suggests_the_nearest_to_an_unknown_class():
    done = ggufkit("archs", "Lama2ForCausalLM")
    assert done.code == 2
    assert "nearest known" in done.err


def test_archs_suggests_the_nearest_to_an_unknown_name():
    done = ggufkit("archs", "quen3")
    assert done.code == 2
    assert "did you mean qwen3?" in done.err


def test_archs_searches_the_users_folder(tmp_path):
    (tmp_path / "new.toml").write_text('like = "llama"\nclasses = ["NewForCausalLM"]\n')
    done = ggufkit("archs", "NewForCausalLM", "--arch-path", tmp_path)
    assert str(tmp_path / "new.toml") in done.out


def test_archs_reports_a_wrong_file_without_a_traceback(tmp_path):
    (tmp_path / "new.toml").write_text("clases = 3")
    done = ggufkit("archs", "--arch-path", tmp_path)
    assert done.code == 1
    assert "Did you mean classes?" in done.err
    assert "Traceback" not in done.err


def test_missing_folder_is_wrong_usage(tmp_path):
    assert ggufkit("archs", "--arch-path", tmp_path / "absent").code == 2
