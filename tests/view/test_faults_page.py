"""Findings are those of `check`, and the preview is what `check --fix` changes."""

from __future__ import annotations

import numpy as np

import ggufkit
from ggufkit.view.faults_page import faults


def test_findings_are_those_of_check(shown_gemma3):
    found = faults(shown_gemma3)
    expected = ggufkit.check(shown_gemma3.name)
    assert [each["rule"] for each in found["findings"]] == [each.rule for each in expected]
    assert [each["message"] for each in found["findings"]] == [each.message for each in expected]


def test_the_preview_names_what_fix_would_change(shown):
    metadata = {"general.architecture": "llama", "llama.block_count": np.uint64(1)}
    model = shown({"token_embd.weight": np.zeros((4, 32), np.float32)}, metadata)
    found = faults(model)
    changed = {each["key"]: (each["before_type"], each["after_type"]) for each in found["changes"]}
    assert changed["llama.block_count"] == ("uint64", "uint32")
    assert any(each["fixable"] and each["explanation"] for each in found["findings"])


def test_looking_changes_no_byte(shown):
    model = shown({}, {"general.architecture": "llama", "llama.block_count": np.uint64(1)})
    path = model.model.path
    before = path.read_bytes()
    faults(model)
    assert path.read_bytes() == before
