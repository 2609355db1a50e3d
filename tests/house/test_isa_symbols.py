"""Each object of kernels exports one symbol, so that no object's code replaces another's.

The objects are compiled here, with the commands that CMake would use but without optimization: what
is not inlined shows, and it takes a fifth of the time.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ["cmake", "ninja", "nm"]
SYMBOLS = {"isa.cpp": "ggufkit_quants_table", "refiners.cpp": "ggufkit_refiners"}
MARK = "-DGGUFKIT_ISA="
COMPILERS_OWN = {"DW.ref.__gxx_personality_v0"}  # how exceptions end, the same in all objects

pytestmark = pytest.mark.skipif(
    not all(
        shutil.which(tool, path=None) or (Path(sys.executable).parent / tool).exists()
        for tool in TOOLS
    ),
    reason="needs cmake, ninja and nm",
)


def tool(name):
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else name


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """Return the compile command of each kernel object, by the name of its only symbol."""
    build = tmp_path_factory.mktemp("build")
    configure = [tool("cmake"), "-S", str(ROOT), "-B", str(build), "-G", "Ninja"]
    options = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_EXPORT_COMPILE_COMMANDS": "ON",
        "CMAKE_MAKE_PROGRAM": tool("ninja"),
        "Python_EXECUTABLE": sys.executable,
    }
    definitions = [f"-D{key}={value}" for key, value in options.items()]
    subprocess.run([*configure, *definitions], check=True, capture_output=True)
    entries = json.loads((build / "compile_commands.json").read_text())
    commands_of_symbols = {}
    for entry in entries:
        symbol = SYMBOLS.get(Path(entry["file"]).name)
        command = shlex.split(entry["command"])
        isas = [flag.removeprefix(MARK) for flag in command if flag.startswith(MARK)]
        commands_of_symbols |= {f"{symbol}_{isa}": command for isa in isas if symbol}
    return commands_of_symbols


@pytest.mark.parametrize(
    "instruction_sets",
    ["usual", pytest.param("newer", marks=pytest.mark.exhaustive)],
)
def test_each_object_exports_only_its_table(commands, tmp_path, instruction_sets):
    """The sources differ between instruction sets only in their vectors: two sets show most."""
    assert {f"{symbol}_portable" for symbol in SYMBOLS.values()} <= commands.keys()
    usual = {name for name in commands if name.endswith(("_portable", "_v3", "_neon"))}
    symbols = usual if instruction_sets == "usual" else commands.keys() - usual
    for symbol in sorted(symbols):
        command = commands[symbol]
        object_file = tmp_path / f"{symbol}.o"
        position = command.index("-o") + 1
        rest = [*command[position + 1 :], "-O0"]
        subprocess.run([*command[:position], str(object_file), *rest], check=True)
        listing = subprocess.run(
            ["nm", "--extern-only", "--defined-only", "--format=posix", str(object_file)],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        names = {line.split()[0] for line in listing.stdout.splitlines()}
        assert names - COMPILERS_OWN == {symbol}


def test_compiler_flags_forbid_contraction_and_unsafe_math(commands):
    for symbol, command in commands.items():
        assert "-ffp-contract=off" in command, symbol
        assert not {"-ffast-math", "-march=native", "-Ofast"} & set(command), symbol
