"""docs/peers.md maps every flag of llama.cpp's converter to an option that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import real
from ggufkit.cli.commands.convert import command

PAGE = (Path(__file__).parents[2] / "docs" / "peers.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("## The flags of convert_hf_to_gguf.py")[2]
ROWS = dict(re.findall(r"^\| `(--[\w-]+)` \| (.+) \|$", TABLE, re.MULTILINE))


def flags():
    """Return the flags of the converter, as its source defines them."""
    source = (real.llama_cpp_source() / "convert_hf_to_gguf.py").read_text(encoding="utf-8")
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    added = [call for call in calls if ast.unparse(call.func).endswith(".add_argument")]
    names = [arg.value for call in added for arg in call.args if isinstance(arg, ast.Constant)]
    return {name for name in names if name.startswith("--")}


def test_page_names_every_flag_of_the_converter():
    assert set(ROWS) == flags()


@pytest.mark.parametrize("flag", ROWS)
def test_every_option_that_the_page_names_exists(flag):
    known = {
        name
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    flags_in_row = re.findall(r"(?<![\w/])--[\w-]+", ROWS[flag])
    assert known.issuperset(flags_in_row)
