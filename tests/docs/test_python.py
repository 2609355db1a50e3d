"""The code in docs/python.md runs and prints what its comments show."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

import ggufkit

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
# Beside a print, or below it on lines of their own.
PROMISE = re.compile(r"^ *print\(.*\)  # (.*)$|^# (.*)$", flags=re.MULTILINE)


def test_examples_of_code_print_the_shown_output(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {}
    for block in BLOCKS:
        promised = [beside or below for beside, below in PROMISE.findall(block)]
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(block, "python.md", "exec"), namespace)  # noqa: S102 (our own page)
        assert printed.getvalue().splitlines() == promised, block
    namespace["model"].close()


@pytest.mark.parametrize("name", sorted(set(ggufkit.__all__) - {"__version__"}))
def test_every_public_name_is_explained(name):
    assert re.search(rf"\b{name}\b", PAGE)
