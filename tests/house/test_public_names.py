"""Public names are the same for Python and type checkers, and a star import hides no builtin."""

from __future__ import annotations

import ast
import builtins
import inspect
from pathlib import Path

import ggufkit

FRAMEWORKS = {"mlx", "numpy", "safetensors", "torch", "transformers"}
STUB = Path(ggufkit.__file__).with_suffix(".pyi")


def stub_names():
    tree = ast.parse(STUB.read_text(encoding="utf-8"))
    return {alias.asname for node in tree.body for alias in node.names}


def test_type_checkers_see_every_public_name_and_no_other():
    public = {*ggufkit.__all__, *FRAMEWORKS, "open"}
    assert stub_names() == public
    assert dir(ggufkit) == sorted(public)


def test_a_star_import_replaces_no_library_of_the_same_name():
    assert not FRAMEWORKS & set(ggufkit.__all__)
    for name in FRAMEWORKS:
        assert getattr(ggufkit, name).__name__ == f"ggufkit.{name}"


def test_a_star_import_hides_no_builtin():
    assert not set(ggufkit.__all__) & set(dir(builtins))


def test_flat_names_are_verbs_and_the_few_classes_that_users_make():
    classes = {name for name in ggufkit.__all__ if inspect.isclass(getattr(ggufkit, name))}
    assert classes == {
        *("GGUFError", "Imatrix", "Metadata", "Model", "Tensor", "TensorType", "ValueType"),
    }


def test_no_other_name_is_found():
    for name in ("FormatError", "Sequence", "Path", "nothing"):
        assert not hasattr(ggufkit, name)
