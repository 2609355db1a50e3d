"""Public names are the same for Python and for type checkers, and hide no builtin but open."""

from __future__ import annotations

import ast
import builtins
import inspect
from pathlib import Path

import ggufkit

STUB = Path(ggufkit.__file__).with_suffix(".pyi")


def stub_names():
    tree = ast.parse(STUB.read_text(encoding="utf-8"))
    return {alias.asname for node in tree.body for alias in node.names}


def test_type_checkers_see_every_public_name_and_no_other():
    assert stub_names() == set(ggufkit.__all__)
    assert dir(ggufkit) == sorted(ggufkit.__all__)


def test_public_names_hide_no_builtin_but_open():
    assert set(ggufkit.__all__) & set(dir(builtins)) == {"open"}


def test_every_error_is_public():
    errors = inspect.getmembers(ggufkit.errors, inspect.isclass)
    own = {name for name, each in errors if each.__module__ == "ggufkit.errors"}
    assert own <= set(ggufkit.__all__)
