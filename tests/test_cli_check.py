from __future__ import annotations

import re

import numpy as np
import pytest

import ggufkit as api
from shell import done, ggufkit


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
    assert result.out == f"{sound}: valid GGUF (0 errors, 0 warnings, 0 notes)\n"


def test_finding_is_one_line_with_place_severity_rule_and_remedy(cut):
    result = ggufkit("check", cut)
    assert result.code == 1
    assert not result.err
    found = api.check(cut)
    assert len(result.lines) == len(found) + 1
    for line, finding in zip(result.lines, found, strict=False):
        assert line == (
            f"{cut}:{finding.offset}: {finding.severity}: {finding.message} "
            f"[{finding.rule}, breaks the specification]. {finding.remedy}."
        )


def test_what_only_llama_cpp_refuses_is_told_apart(foreign):
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


def test_missing_file_does_not_keep_others_from_being_checked(sound):
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


def test_no_file_at_all_is_wrong_usage():
    assert ggufkit("check").code == 2
