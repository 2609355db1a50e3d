from __future__ import annotations

import json

from shell import ggufkit


def test_archs_lists_names_files_and_classes():
    out = ggufkit("archs").out
    assert "LlamaForCausalLM" in out
    assert "ggufkit/arch/llama.toml" in out


def test_archs_shows_the_one_that_serves_a_class():
    document = json.loads(ggufkit("archs", "Qwen3ForCausalLM", "--json").out)
    assert [entry["name"] for entry in document] == ["qwen3"]
    assert "Qwen3ForCausalLM" in document[0]["classes"]


def test_archs_shows_the_one_of_a_listed_name():
    document = json.loads(ggufkit("archs", "gemma3", "--json").out)
    assert [entry["name"] for entry in document] == ["gemma3"]


def test_archs_answers_an_unknown_class_with_the_nearest():
    done = ggufkit("archs", "Lama2ForCausalLM")
    assert done.code == 1
    assert "nearest known" in done.err


def test_archs_searches_a_folder_of_ones_own(tmp_path):
    (tmp_path / "new.toml").write_text('like = "llama"\nclasses = ["NewForCausalLM"]\n')
    done = ggufkit("archs", "NewForCausalLM", "--arch-path", tmp_path)
    assert str(tmp_path / "new.toml") in done.out


def test_archs_reports_a_wrong_file_without_a_traceback(tmp_path):
    (tmp_path / "new.toml").write_text("clases = 3")
    done = ggufkit("archs", "--arch-path", tmp_path)
    assert done.code == 1
    assert "Did you mean classes?" in done.err
    assert "Traceback" not in done.err


def test_folder_that_is_not_there_is_wrong_usage(tmp_path):
    assert ggufkit("archs", "--arch-path", tmp_path / "absent").code == 2
