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
FILES = ("CMakeLists.txt", "LICENSE", "Makefile", "pyproject.toml")
# How many files an addition may touch by hand.
MOST_FILES = {"command": 5, "rule": 5, "architecture": 3, "type": 4}
# What `make check` runs, without tests of this clone, and what else is about an addition.
MAKEFILE = (ROOT / "Makefile").read_text("utf-8").replace("\\\n", " ")
CHECKED = re.findall(r"^CHECKED := (.*)$", MAKEFILE, re.MULTILINE)[0].split()
OFFLINE = re.findall(r"^OFFLINE := (.*)$", MAKEFILE, re.MULTILINE)[0]
FAST = (
    *(f"tests/{package}" for package in CHECKED),
    *("--ignore=tests/house/test_newcomer.py", "--ignore=tests/house/test_isa_symbols.py"),
    "--deselect=tests/docs/test_readme.py::test_pip_installed_this_clone",
)
# Further tests, of the package or the whole program, by what is added.
TESTS = {
    "command": ("tests/cli/test_app.py", "tests/cli/commands/test_keys.py"),
    "rule": ("tests/cli/commands/test_check.py",),
    "architecture": ("tests/conversion/architecture", "tests/cli/commands/test_archs.py"),
    "type": ("tests/compat",),
}
WHOLE = (
    "tests/whole/test_faults.py::test_every_command_that_writes_meets_faults",
    *("tests/whole/test_untrusted.py", "-k", "keys or every"),
)


@pytest.fixture
def copy(tmp_path):
    """Return a copy of the tree as it is."""
    for name in (".ci", ".github", "benchmarks", "docs", "native", "site", "src", "tests", "tools"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=LEFT_OUT)
    for path in (*ROOT.glob("*.md"), *(ROOT / name for name in FILES)):
        shutil.copy(path, tmp_path)
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


def run_tests(folder, kinds):
    """Run the tests of `make check`, and those of the packages that additions belong to."""
    own = [path for kind in kinds for path in TESTS[kind]]
    pytest_options = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", OFFLINE)
    run(folder, *pytest_options, *FAST, *own)
    if "command" in kinds:
        run(folder, *pytest_options, *WHOLE)
    run(folder, "-m", "ruff", "check", "--quiet", "src", "tests")


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
    patterns = [
        re.escape(path_pattern).replace("NAME", r"\w+")
        for path_pattern in re.findall(r"`([^`]+)`", section)
    ]
    for path in add_examples.add(kind, copy):
        assert any(re.fullmatch(pattern, path) for pattern in patterns), path


def test_documented_tensor_type_needs_few_files(copy):
    assert len(add_examples.add("type", copy)) <= MOST_FILES["type"]
    assert "struct Q8_H" in (copy / "native/quants/types/q8_h.hpp").read_text(encoding="utf-8")
    code = "from ggufkit.format.types import tensor_type; assert tensor_type('Q8_H').id == 43"
    run(copy, "-c", code)


@pytest.mark.exhaustive
def test_additions_compile_and_pass_the_fast_tests_and_their_own(copy):
    tools = Path(sys.executable).parent
    pytest.importorskip("nanobind")
    if not (tools / "cmake").exists() or not (tools / "ninja").exists():
        pytest.skip("the build tools are not in this environment")
    for kind, limit in MOST_FILES.items():
        assert len(add_examples.add(kind, copy)) <= limit
    run(copy, "tools/write_indexes.py")
    compile_native(copy, tools)
    run(copy, "tools/write_types.py")
    run_tests(copy, MOST_FILES)


def compile_native(folder, tools):
    """Compile the native core of a copy, and put it in place of the installed one."""
    for module in folder.glob("src/ggufkit/_native*.so"):
        module.unlink()
    definitions = {
        "CMAKE_BUILD_TYPE": "Release",
        "GGUFKIT_OPTIMIZE": "-O1",  # compiles in half the time, as one instruction set does
        "GGUFKIT_ISAS": "host",
        "CMAKE_MAKE_PROGRAM": tools / "ninja",
        "Python_EXECUTABLE": sys.executable,
        "SKBUILD_PROJECT_NAME": "ggufkit",
        "SKBUILD_STATE": "wheel",
        "nanobind_DIR": importlib.import_module("nanobind").cmake_dir(),
    }
    options = [f"-D{name}={value}" for name, value in definitions.items()]
    done(folder, str(tools / "cmake"), "-S", ".", "-B", "built", "-G", "Ninja", *options)
    done(folder, str(tools / "cmake"), "--build", "built")
    (module,) = folder.glob("built/_native*")
    shutil.copy(module, folder / "src/ggufkit")
