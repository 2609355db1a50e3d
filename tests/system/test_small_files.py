"""Small files have a limit: a sparse file of gigabytes is refused before it is read."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import numpy as np
import pytest

import ggufkit
from ggufkit.errors import FormatError
from ggufkit.system.text_file import Most, read_small
from shell import ggufkit as run

SOURCE = Path(ggufkit.__file__).parent
# Readers that have a limit of their own, or read what ggufkit itself installs.
OWN_LIMIT = {
    "system/text_file.py",
    "system/sandbox.py",  # the answers of a child that has limits
    "conversion/checkpoint/folder.py",
    "cli/pipes.py",  # a whole model
}
INSTALLED = ("resources.files(", "files[name].read_text(", "(package / ", "Path(__file__).")


@pytest.mark.parametrize("most", Most)
def test_reads_a_file_at_its_limit_and_refuses_a_larger_one(tmp_path, most):
    path = tmp_path / "file"
    path.touch()
    os.truncate(path, most + 1)
    with pytest.raises(FormatError, match=f"more than {most:,} bytes") as caught:
        read_small(path, most)
    assert caught.value.path == str(path)
    if most <= Most.RECIPE:
        os.truncate(path, most)
        assert len(read_small(path, most)) == most


def test_every_file_that_is_read_whole_has_a_limit():
    """The list of readers comes from the source, so that a new one cannot be forgotten."""
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).as_posix()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            text = ast.unparse(node)
            is_whole = node.func.attr in ("read_bytes", "read_text") or text.endswith(".read()")
            is_known = name in OWN_LIMIT or any(part in text for part in INSTALLED)
            is_own = name in ("_toml.py", "rules/rules.py", "diffusion/architecture.py")
            is_own |= name.startswith("checks/")
            assert not is_whole or is_known or is_own, f"{name}: {text}"


@pytest.fixture
def huge(tmp_path):
    """A sparse file larger than the limit of any small file except a calibration text."""
    path = tmp_path / "huge"
    path.touch()
    os.truncate(path, Most.VALUES + 1)
    return path


@pytest.fixture
def model(tmp_path):
    keys = {"general.architecture": "llama", "general.name": "x"}
    return ggufkit.save(tmp_path / "m.gguf", {"x.weight": np.zeros((2, 32), "f4")}, keys)[0]


COMMANDS = {
    "a chat template": ["edit", "MODEL", "--chat-template", "HUGE"],
    "types of tensors": ["quantize", "MODEL", "OUT", "Q8_0", "--tensor-type-file", "HUGE"],
    "a recipe": ["quantize", "MODEL", "OUT", "HUGE.toml"],
}


@pytest.mark.parametrize("case", COMMANDS)
def test_command_refuses_a_huge_file(model, huge, case):
    os.link(huge, huge.with_name("huge.toml"))
    places = {"MODEL": model, "HUGE": huge, "HUGE.toml": huge.with_name("huge.toml")}
    places["OUT"] = model.with_name("out.gguf")
    result = run(*(places.get(word, word) for word in COMMANDS[case]))
    assert result.code in (1, 2)
    assert "more than" in result.err
    assert not places["OUT"].exists()


def test_huge_pointers_in_caches_are_passed_over(huge, tmp_path, monkeypatch):
    repository = tmp_path / "hub" / "models--a--b"
    (repository / "refs").mkdir(parents=True)
    (repository / "snapshots").mkdir()
    os.link(huge, repository / "refs" / "main")
    home = tmp_path / "home"
    home.mkdir()
    os.link(huge, home / ".lmstudio-home-pointer")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HOME", str(home))
    assert not [model for model in ggufkit.find_models() if model.name.startswith("a/b")]
