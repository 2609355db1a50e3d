"""Files changed at random give typed errors: a short run, always the same."""

from __future__ import annotations

import pytest

import fuzz


@pytest.mark.parametrize("target", fuzz.TARGETS)
def test_changed_input_gives_nothing_but_typed_errors(target, tmp_path):
    assert fuzz.fuzz(target, 7, tmp_path / "input.gguf", lambda count: count == 150) == 150


def test_what_is_no_typed_error_is_found(tmp_path, monkeypatch):
    def failing(data, path):
        raise KeyError(data[:1])

    monkeypatch.setitem(fuzz.TARGETS, "broken", (failing, fuzz.name_seeds))
    with pytest.raises(KeyError):
        fuzz.fuzz("broken", 0, tmp_path / "input", lambda count: count > 0)
    assert (tmp_path / "input.last").exists()
