"""The command `recover`."""

from __future__ import annotations

import numpy as np
import pytest

import ggufkit as api
from shell import done, ggufkit


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.gguf"
    api.save(path, {"a": np.zeros(50, np.float32)}, {"text": "x" * 100})
    return path


def interrupt(path, upto):
    before = path.read_bytes()
    api.edit_in_place(path, set={"text": "y" * 100})
    after = path.read_bytes()
    pending = path.with_name(".model.gguf.ggufkit-edit")
    path.with_name(".model.gguf.ggufkit-undo").rename(pending)
    path.write_bytes(after[:upto] + before[upto:])
    return before, after


def test_recover_says_what_state_the_file_is_in(path):
    assert done("recover", path).lines == [f"{path}: no edit was interrupted"]
    before, _ = interrupt(path, 0)
    assert "the file is unchanged" in done("recover", path).out
    assert path.read_bytes() == before
    _, after = interrupt(path, 100)
    assert done("recover", path, "--json").json() == [{"file": str(path), "outcome": "after"}]
    assert path.read_bytes() == after


def test_any_shard_or_the_folder_means_the_whole_set(tmp_path):
    whole = tmp_path / "whole.gguf"
    api.save(whole, {"a": np.zeros(50, "f4"), "b": np.zeros(50, "f4")}, {"text": "x" * 100})
    (tmp_path / "set").mkdir()
    parts = done("copy", whole, tmp_path / "set" / "s.gguf", "--shard-tensors", 1)
    first, second = sorted((tmp_path / "set").iterdir())
    assert parts.code == 0
    for path in (second, tmp_path / "set", first):
        before = first.read_bytes()
        api.edit_in_place(second, set={"text": str(path).ljust(100, "y")[-100:]})
        after = first.read_bytes()
        done_journal = first.with_name(f".{first.name}.ggufkit-undo")
        done_journal.rename(first.with_name(f".{first.name}.ggufkit-edit"))
        upto = next(offset for offset, byte in enumerate(after) if byte != before[offset]) + 1
        first.write_bytes(after[:upto] + before[upto:])
        assert done("recover", path).lines == [f"{path}: finished the edit"]
        assert first.read_bytes() == after
        assert done("recover", path).lines == [f"{path}: no edit was interrupted"]


def test_failure_on_one_file_does_not_stop_the_others(path):
    other = path.with_name("other.gguf")
    other.write_bytes(path.read_bytes())
    path.with_name(".other.gguf.ggufkit-edit").write_bytes(b"junk")
    _, after = interrupt(path, 100)
    result = ggufkit("recover", other, path, "--json")
    assert result.code == 1
    assert [row["outcome"] for row in result.json()] == [None, "after"]
    assert ".ggufkit-edit" in result.err
    assert path.read_bytes() == after
    assert ggufkit("recover", path.with_name("missing.gguf")).code == 1
