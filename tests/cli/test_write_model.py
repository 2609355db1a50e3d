"""What a command says of its outputs once they are written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ggufkit as api
from shell import done

COMMANDS = {
    "copy": ("copy", "in.gguf", "out.gguf"),
    "resume": ("copy", "in.gguf", "out.gguf", "--resume"),
    "edit": ("edit", "in.gguf", "--set", "general.name=new", "--output", "out.gguf"),
    "select": ("select", "in.gguf", "out.gguf", "--drop", "b"),
    "quantize": ("quantize", "in.gguf", "out.gguf", "Q8_0"),
}


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_command_succeeds_where_the_size_of_its_output_cannot_be_told(
    tmp_path, monkeypatch, arguments
):
    monkeypatch.chdir(tmp_path)
    tensors = {name: np.ones((4, 64), "f4") for name in "ab"}
    api.save("in.gguf", tensors, {"general.architecture": "llama"})
    stat = Path.stat

    def failing(path, **options):
        if path.name == "out.gguf" and path in Path().iterdir():
            raise OSError(5, "Input/output error", str(path))
        return stat(path, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", failing)
        done(*arguments)
    with api.open("out.gguf") as model:
        assert model.tensors
