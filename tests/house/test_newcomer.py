"""The files that CONTRIBUTING.md names for an addition suffice: a copy of the tree gets each."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ggufkit

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import add_examples  # noqa: E402 (a tool, not a package)

LEFT_OUT = shutil.ignore_patterns("__pycache__", ".*", "build", "*.so.*")
# How many files an addition may touch by hand.
MOST_FILES = {"command": 4, "rule": 5, "architecture": 3, "type": 4}
TESTS = {
    "command": (
        *("tests/cli/commands/test_keys.py", "tests/docs/test_commands.py"),
        *("tests/docs/test_docs.py", "tests/cli/test_app.py", "tests/whole/test_untrusted.py"),
        "tests/whole/test_faults.py::test_every_command_that_writes_meets_faults",
    ),
    "rule": ("tests/rules", "tests/docs/test_docs.py"),
    "architecture": (
        "tests/conversion/architecture/test_new.py",
        "tests/conversion/architecture/test_architecture.py",
    ),
}
NAMED = {"command": "keys or every or index or lists", "rule": "blank or every or page or lists"}


@pytest.fixture
def copy(tmp_path):
    """Return a copy of the tree as it is."""
    for name in ("src", "tests", "docs", "tools", "native"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=LEFT_OUT)
    for path in (*ROOT.glob("*.md"), ROOT / "pyproject.toml"):
        shutil.copy(path, tmp_path)
    shutil.copytree(ROOT / "benchmarks", tmp_path / "benchmarks", ignore=LEFT_OUT)
    for native in Path(ggufkit.__file__).parent.glob("_native.*"):  # as installed
        shutil.copy(native, tmp_path / "src" / "ggufkit")
    return tmp_path


def run(folder, *words):
    """Run Python with the package of a copy."""
    done(folder, sys.executable, *words)


def done(folder, *command):
    others = {name: value for name, value in os.environ.items() if name != "GGUFKIT_WIDE"}
    environment = others | {"PYTHONPATH": str(folder / "src")}
    ended = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]


@pytest.mark.matrix
@pytest.mark.parametrize("kind", TESTS)
def test_addition_passes_its_tests(copy, kind):
    touched = add_examples.add(kind, copy)
    assert len(touched) <= MOST_FILES[kind]
    run(copy, "tools/write_indexes.py")
    chosen = ("-k", NAMED[kind]) if kind in NAMED else ()
    run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen, *TESTS[kind])
    run(copy, "-m", "ruff", "check", "--quiet", "src", "tests")


HEADINGS = {
    "command": "Add a command",
    "rule": "Add a check rule",
    "architecture": "Add an architecture",
    "type": "Add a tensor type",
}


@pytest.mark.parametrize("kind", HEADINGS)
def test_contributing_names_each_file_that_an_addition_touches(copy, kind):
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = page.split(f"### {HEADINGS[kind]}\n")[1].split("\n#")[0]
    named = [re.escape(each).replace("NAME", r"\w+") for each in re.findall(r"`([^`]+)`", section)]
    for path in add_examples.add(kind, copy):
        assert any(re.fullmatch(each, path) for each in named), path


def test_documented_tensor_type_needs_one_row_and_one_file(copy):
    assert len(add_examples.add("type", copy)) <= MOST_FILES["type"]
    assert "struct Q8_H" in (copy / "native/quants/types/q8_h.hpp").read_text(encoding="utf-8")
    code = "from ggufkit.format.types import tensor_type; assert tensor_type('Q8_H').id == 43"
    run(copy, "-c", code)


BUILT = (
    *("tests/house/test_native_table.py", "tests/format/test_byte_order.py"),
    "tests/quants/test_codec.py",
)


@pytest.mark.matrix
def test_new_tensor_type_compiles_and_passes_the_tests_without_ggml(copy):
    tools = Path(sys.executable).parent
    pytest.importorskip("nanobind")
    if not (tools / "cmake").exists() or not (tools / "ninja").exists():
        pytest.skip("the build tools are not in this environment")
    add_examples.add("type", copy)
    shutil.copy(ROOT / "CMakeLists.txt", copy)
    for built in copy.glob("src/ggufkit/_native*"):
        built.unlink() if built.suffix != ".pyi" else None
    definitions = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_MAKE_PROGRAM": tools / "ninja",
        "Python_EXECUTABLE": sys.executable,
        "SKBUILD_PROJECT_NAME": "ggufkit",
        "SKBUILD_STATE": "wheel",
        "nanobind_DIR": importlib.import_module("nanobind").cmake_dir(),
    }
    told = [f"-D{name}={value}" for name, value in definitions.items()]
    done(copy, str(tools / "cmake"), "-S", ".", "-B", "built", "-G", "Ninja", *told)
    done(copy, str(tools / "cmake"), "--build", "built")
    (module,) = copy.glob("built/_native*")
    shutil.copy(module, copy / "src/ggufkit")
    run(
        copy,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not real and not matrix",
        *BUILT,
    )
