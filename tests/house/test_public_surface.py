"""The public names and signatures are the recorded ones."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

import ggufkit

SURFACE = runpy.run_path(str(Path(__file__).with_name("public_surface.py")))


def test_public_surface_is_the_recorded_one():
    recorded = SURFACE["RECORD"].read_text(encoding="utf-8").splitlines()
    current = SURFACE["surface"]()
    changed = [f"- {line}" for line in recorded if line not in current]
    changed += [f"+ {line}" for line in current if line not in recorded]
    assert not changed, (
        "run `python tests/house/public_surface.py --write`, keep old names (docs/stability.md) "
        "and add a line to CHANGELOG.md"
    )


def test_old_names_work_with_a_warning():
    with pytest.warns(DeprecationWarning, match=r"is ggufkit\.results\.Plan now") as warned:
        assert ggufkit.PlannedSize is ggufkit.results.Plan
    assert warned[0].filename == __file__


def test_old_arguments_work_with_a_warning(tmp_path):
    path, weights = tmp_path / "a.gguf", {"a.b": np.ones(32, "f4")}
    for save in (ggufkit.save, ggufkit.numpy.save, ggufkit.mlx.save):
        for arguments, options in (((path,), {}), ((), {"path": path})):
            with pytest.warns(DeprecationWarning, match="path is the first argument") as warned:
                save(weights, *arguments, metadata={"x": "y"}, **options)
            assert warned[0].filename == __file__
    with pytest.warns(DeprecationWarning, match="path is the first"):
        ggufkit.save(weights, path, {"x": "y"})
    model = ggufkit.open(path)
    with pytest.warns(DeprecationWarning, match="unset of edit is called drop_keys"):
        assert "x" not in model.edit(unset="x").metadata
    with pytest.warns(DeprecationWarning, match="renames of select is called rename"):
        assert [*ggufkit.select(model, renames="a.*=c.*").tensors] == ["c.b"]
    with pytest.warns(DeprecationWarning, match="unset of edit_in_place is called drop_keys"):
        assert ggufkit.edit_in_place(path, unset="x").changes
