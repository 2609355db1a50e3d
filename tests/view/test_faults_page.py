"""Findings are those of `check`, and the preview is what `check --fix` changes."""

from __future__ import annotations

import numpy as np

import ggufkit
from ggufkit.view.faults_page import faults


def test_findings_are_those_of_check(gemma3_page):
    document = faults(gemma3_page)
    expected = ggufkit.check(gemma3_page.name)
    assert [finding["rule"] for finding in document["findings"]] == [
        finding.rule for finding in expected
    ]
    assert [finding["message"] for finding in document["findings"]] == [
        finding.message for finding in expected
    ]


def test_the_preview_names_what_fix_would_change(model_page):
    metadata = {"general.architecture": "llama", "llama.block_count": np.uint64(1)}
    model = model_page({"token_embd.weight": np.zeros((4, 32), np.float32)}, metadata)
    document = faults(model)
    changed = {
        change["key"]: (change["before_type"], change["after_type"])
        for change in document["changes"]
    }
    assert changed["llama.block_count"] == ("uint64", "uint32")
    assert any(finding["fixable"] and finding["explanation"] for finding in document["findings"])


def test_looking_changes_no_byte(model_page):
    model = model_page({}, {"general.architecture": "llama", "llama.block_count": np.uint64(1)})
    path = model.model.path
    before = path.read_bytes()
    faults(model)
    assert path.read_bytes() == before
