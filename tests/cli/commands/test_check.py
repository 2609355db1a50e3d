from __future__ import annotations

import re

import numpy as np
import pytest

import ggufkit as api
from ggufkit.rules.rules import all_rules
from shell import done, ggufkit
from small_llama import keys, tensors

LEVELS = ("none", "note", "warning", "error")  # of SARIF


@pytest.fixture
def sound(tmp_path):
    path = tmp_path / "sound.gguf"
    api.save(path, {"a.weight": np.ones((2, 64), np.float32)}, {"general.architecture": "llama"})
    return path


@pytest.fixture
def cut(sound):
    path = sound.with_name("cut.gguf")
    path.write_bytes(sound.read_bytes()[:-100])
    return path


@pytest.fixture
def foreign(sound):
    """Valid GGUF that llama.cpp refuses."""
    path = sound.with_name("foreign.gguf")
    with api.open(sound) as model:
        api.write(model, path, byte_order="big")
    return path


def test_sound_file_is_called_valid(sound):
    result = done("check", sound)
    counts = "(0 errors, 0 warnings, 0 notes)"
    assert result.out == f"{sound}: valid GGUF {counts}; tensor data was not read (--data)\n"


def test_finding_is_one_line_with_place_severity_rule_and_remedy(cut):
    result = ggufkit("check", cut)
    assert result.code == 1
    assert not result.err
    findings = api.check(cut)
    assert len(result.lines) == len(findings) + 1
    for line, finding in zip(result.lines, findings, strict=False):
        assert line == (
            f"{cut}:{finding.offset}: {finding.severity}: {finding.message} "
            f"[{finding.rule}, breaks the specification]. {finding.remedy}."
        )


def test_marks_what_only_llama_cpp_refuses(foreign):
    result = done("check", foreign)
    assert "[big-endian, llama.cpp refuses it]" in result.out
    assert result.lines[-1].startswith(f"{foreign}: valid GGUF that llama.cpp refuses (0 errors, 1")


def test_one_bad_file_among_good_ones_is_an_error(sound, cut):
    result = ggufkit("check", sound, cut)
    assert result.code == 1
    assert sum(bool(re.search(r" errors?, ", line)) for line in result.lines) == 2


def test_json_holds_every_finding_of_every_file(sound, cut, foreign):
    result = ggufkit("check", "--json", sound, cut, foreign)
    assert result.code == 1
    document = result.json()
    assert [entry["file"] for entry in document] == [str(sound), str(cut), str(foreign)]
    assert [entry["verdict"].split()[0] for entry in document] == ["valid", "broken:", "valid"]
    assert document[0]["findings"] == []
    (finding,) = document[1]["findings"]
    assert finding["rule"] == "data-truncated"
    assert set(finding) == {"rule", "severity", "offset", "message", "remedy", "breaks", "path"}


def test_missing_file_does_not_stop_the_check_of_others(sound):
    missing = sound.with_name("none.gguf")
    result = ggufkit("check", missing, sound)
    assert result.code == 1
    assert "error: No such file or directory [unreadable]" in result.lines[0]
    assert result.lines[1].startswith(f"{missing}: not readable (1 error, ")
    assert result.lines[2].startswith(f"{sound}: valid GGUF (")


def test_web_page_is_recognised(tmp_path):
    page = tmp_path / "model.gguf"
    page.write_text("<!DOCTYPE html><html>")
    assert "[html, " in ggufkit("check", page).out


def test_missing_file_argument_is_wrong_usage():
    assert ggufkit("check").code == 2


# In depth.


@pytest.fixture
def odd(tmp_path):
    """A model with a number of the wrong type, a token that does not exist, and a NaN."""
    path = tmp_path / "odd.gguf"
    spoiled = tensors()
    spoiled["output_norm.weight"][3] = np.nan
    others = {"llama__context_length": np.int64(128), "tokenizer__ggml__eos_token_id": np.uint32(9)}
    api.save(path, spoiled, keys(**others))
    return path


def rules(result):
    return [finding["rule"] for entry in result.json() for finding in entry["findings"]]


def test_data_option_checks_tensor_data(odd):
    assert rules(done("check", "--json", odd)) == ["key-type", "token-id-range"]
    deep = done("check", "--json", "--data", "--threads", "2", odd)
    assert rules(deep) == ["key-type", "token-id-range", "data-nan"]


def test_option_sets_the_lowest_severity_that_fails(odd, sound):
    assert ggufkit("check", odd).code == 0
    assert ggufkit("check", "--fail-on", "warning", odd).code == 1
    assert ggufkit("check", "--fail-on", "note", sound).code == 0


def test_fix_is_shown_first_and_repairs_what_is_safe(odd):
    before = odd.read_bytes()
    assert "~ llama.context_length" in done("check", "--fix", "--dry-run", odd).out
    assert odd.read_bytes() == before
    fixed = done("check", "--fix", odd)
    assert "- tokenizer.ggml.eos_token_id" in fixed.out
    assert "valid GGUF (0 errors, 0 warnings, 0 notes)" in fixed.lines[-1]
    with api.open(odd) as model:
        assert model.metadata.type_name("llama.context_length") == "uint32"
        assert model.metadata["llama.context_length"] == 128
        assert "tokenizer.ggml.eos_token_id" not in model.metadata
    done("edit", odd, "--undo")
    assert rules(done("check", "--json", odd)) == ["key-type", "token-id-range"]


def test_fix_writes_the_version_that_readers_assume(tmp_path):
    path = tmp_path / "quantized.gguf"
    model = api.model({"a.weight": (np.ones((2, 64), np.float32), "Q8_0")})
    model.replace(metadata={"general.architecture": "llama"}).write(path)
    assert rules(done("check", "--json", path)) == ["quantization-version"]
    assert rules(done("check", "--json", "--fix", path)) == []


def test_fix_leaves_a_number_that_does_not_fit(odd):
    api.edit_in_place(odd, set={"llama.context_length": np.int64(-1)}, force=True)
    assert "key-kind" in rules(done("check", "--json", "--fix", odd))


def test_broken_file_is_reported_and_not_fixed(cut):
    before = cut.read_bytes()
    result = ggufkit("check", "--fix", cut)
    assert result.code == 1
    assert "data-truncated" in result.out
    assert cut.read_bytes() == before


def test_explains_a_rule():
    result = done("check", "--explain", "key-type")
    assert result.lines[0] == "key-type: warning, llama.cpp refuses it"
    assert "KEY is of type FOUND" in result.out
    assert result.lines[-1] == "--fix repairs this."
    unknown = ggufkit("check", "--explain", "key-typ")
    assert unknown.code == 2
    assert "Did you mean 'key-type'?" in unknown.err


def test_sarif_has_what_its_schema_requires(odd, cut):
    result = ggufkit("check", "--sarif", odd, cut)
    assert result.code == 1
    document = result.json()
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "ggufkit"
    assert [rule["id"] for rule in driver["rules"]] == list(all_rules())
    assert all(rule["defaultConfiguration"]["level"] in LEVELS for rule in driver["rules"])
    findings = [finding for path in (odd, cut) for finding in api.check(path)]
    for result_of_sarif, finding in zip(run["results"], findings, strict=True):
        assert (
            driver["rules"][result_of_sarif["ruleIndex"]]["id"]
            == result_of_sarif["ruleId"]
            == finding.rule
        )
        assert result_of_sarif["level"] == finding.severity
        assert result_of_sarif["message"]["text"].startswith(finding.message)
        place = result_of_sarif["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"] == finding.path.as_uri()
        assert place["region"] == {"byteOffset": finding.offset, "byteLength": 0}


@pytest.mark.parametrize(
    "arguments", [["--json", "--sarif", "x"], ["--dry-run", "x"], ["--threads", "0", "x"]]
)
def test_contradicting_options_are_wrong_usage(arguments):
    assert ggufkit("check", *arguments).code == 2


def test_each_model_of_a_folder_has_an_entry(sound, cut, tmp_path):
    api.save(tmp_path / "parts.gguf", tensors(), keys(), shard_size=50_000)
    document = ggufkit("check", tmp_path, "--json").json()
    first = next(tmp_path.glob("parts-00001-of-*.gguf"))
    assert [entry["file"] for entry in document] == [str(cut), str(first), str(sound)]
    assert [bool(entry["findings"]) for entry in document] == [True, False, False]
    lines = ggufkit("check", tmp_path).lines
    assert sum("valid GGUF" in line or "broken" in line for line in lines) == len(document)


def test_explanation_can_be_json():
    document = done("check", "--explain", "key-type", "--json").json()
    assert document["rule"] == "key-type"
    assert document["fixable"]
    assert document["explanation"].endswith(".")
    assert set(document) == {
        "rule", "severity", "breaks", "message", "explanation", "remedy", "fixable",
    }  # fmt: skip


def test_names_option_checks_file_names(tmp_path):
    path = tmp_path / "small-f32.gguf"
    api.save(path, tensors(), keys())
    assert rules(done("check", path, "--json")) == []
    assert rules(done("check", path, "--json", "--names")) == ["file-name"]
