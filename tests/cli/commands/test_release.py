"""`ggufkit release` and `ggufkit card` on the command line; tests/release tests what they make."""

from __future__ import annotations

import subprocess
import sys

import pytest

from shell import done, ggufkit


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("words", [(), ("model.gguf",), ("model.gguf", "--watch", "list.txt")])
def test_needs_a_source_or_a_list_and_a_folder(words, tmp_path):
    (tmp_path / "list.txt").write_text("model.gguf\n")
    result = ggufkit("release", *words)
    assert result.code == 2
    assert "ggufkit release SOURCE -o FOLDER" in result.err


def test_init_writes_the_settings_where_it_is_told(tmp_path):
    done("release", "init", "-o", "mine.toml")
    assert "# rungs = " in (tmp_path / "mine.toml").read_text()


def test_init_prints_the_settings_for_a_pipe(tmp_path):
    assert "# rungs = " in done("release", "init", "-o", "-").out
    assert not list(tmp_path.iterdir())


def test_missing_source_is_named():
    result = ggufkit("release", "absent.gguf", "-o", "out")
    assert result.code == 1
    assert "absent.gguf" in result.err


def test_limit_of_disk_space_needs_a_place(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    result = ggufkit("release", "model.gguf", "-o", "out", "--disk", "1GB")
    assert result.code == 1
    assert "--upload" in result.err
    assert not (tmp_path / "out").exists()


def test_card_needs_a_finished_release(tmp_path):
    result = ggufkit("card", tmp_path)
    assert result.code == 1
    assert "has no release that was finished" in result.err
    (tmp_path / "release.json").write_text("[]")
    assert "not the journal of a release" in ggufkit("card", tmp_path).err


@pytest.mark.parametrize("command", ["release", "card"])
def test_help_does_not_wait_for_modules_that_only_the_work_needs(command):
    words = [sys.executable, "-X", "importtime", "-m", "ggufkit", command, "--help"]
    errors = subprocess.run(words, check=True, capture_output=True, text=True).stderr
    assert "ggufkit.cli.write_model" in errors
    assert "ggufkit.release" not in errors
