"""Build the files of a release into dist/, and test them without a compiler.

    python tools/release.py

- The sdist, and from the sdist alone a wheel. With Python 3.12 or newer it is abi3, for that and
  all later versions; nanobind does not support the stable ABI of older ones.
- The wheel in build/wheel, if it is for a Python before 3.12.
- auditwheel finds the Linux systems that a wheel runs on, and puts them into its name.

Then every wheel is installed into an empty environment of each matching Python here. The tests that
depend on how ggufkit is installed run there, without a compiler on the path.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import step
from scikit_build_core.build import build_sdist

ROOT = Path(__file__).resolve().parents[1]
DIST, WORK = ROOT / "dist", ROOT / "build" / "release"
TOOLS = ["cmake", "ninja", "nanobind", "scikit-build-core"]
STABLE = (3, 12)  # the first Python with the stable ABI that nanobind needs
MINORS = range(10, 20)
PYENV = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
COMPILERS = re.compile(
    r"(.*-)?(c\+\+|cc|c89|c99|cpp|g\+\+|gcc|clang|clang\+\+|clang-cpp|ld|ld\..*|as|cmake|ninja|make)"
    r"(-[\d.]+)?"
)
# `make test` runs all tests on this very wheel. Here those run that an empty environment may fail:
# those that read data files of the package, start processes, or use the native core.
FEWER_TESTS = ["tests/format", "tests/cli/test_app.py"]  # with the other Pythons
TESTS = [
    *(*FEWER_TESTS, "tests/models", "tests/system", "tests/checks/test_check.py"),
    *("tests/checks/test_requirements.py", "tests/quants/test_codec.py"),
]


@dataclass(frozen=True)
class Python:
    """An interpreter on this machine."""

    program: str
    minor: int

    @property
    def is_stable(self) -> bool:
        """Whether nanobind supports its stable ABI."""
        return (3, self.minor) >= STABLE

    def environment(self, name: str, packages: Sequence[str | Path]) -> Path:
        """Return the Python of a new environment with some packages."""
        folder = WORK / name
        shutil.rmtree(folder, ignore_errors=True)
        make = [self.program, "-m", "venv", folder]
        do(f"Make an environment of Python 3.{self.minor}", make, is_silent=True)
        python = folder / "bin" / "python"
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        do("Fetch a pip that knows dependency groups", [*pip, "pip>=25.1"], is_silent=True)
        do("Fetch what goes into it", [*pip, *packages], is_silent=True)
        return python


def do(
    title: str,
    command: Sequence[str | Path],
    *,
    is_silent: bool = False,
    folder: Path = ROOT,
    path: Sequence[Path | str] = (),
) -> None:
    """Run a step with a path of programs; end if it fails."""
    environment = os.environ | ({"PATH": os.pathsep.join(map(str, path))} if path else {})
    code = step.run(title, command, is_silent=is_silent, folder=folder, environment=environment)
    if code != 0:
        sys.exit(f"make wheel: failed: {title}")


def pythons() -> list[Python]:
    """Return the interpreters of this machine that ggufkit runs on, one of each version."""
    programs = {sys.version_info.minor: sys.executable}
    for minor in MINORS:
        ours = shutil.which(f"python3.{minor}"), *map(str, PYENV.glob(f"3.{minor}.*/bin/python"))
        working = [program for program in ours if program and works(program)]
        if working:
            programs.setdefault(minor, working[0])
    return [Python(program, minor) for minor, program in sorted(programs.items())]


def works(program: str) -> bool:
    """Whether a program on the path is a Python that can make environments."""
    probe = [program, "-c", "import ensurepip, venv"]
    return subprocess.run(probe, check=False, capture_output=True).returncode == 0


def unpacked_sdist() -> Path:
    """Build the sdist and return the folder in which it is unpacked."""
    name = build_sdist(str(DIST))
    shutil.unpack_archive(DIST / name, WORK)
    return WORK / name.removesuffix(".tar.gz")


def build_from(source: Path, python: Python) -> None:
    """Build a wheel from an unpacked sdist, for many Linux systems."""
    builder = python.environment("builder", TOOLS)
    do(
        f"Build a wheel from the sdist, with Python 3.{python.minor}",
        [builder, "tools/build_wheel.py", WORK / "wheel"],
        folder=source,
        path=[builder.parent, os.environ["PATH"]],
    )
    repair(WORK / "wheel")


def repair(folder: Path) -> None:
    """Let auditwheel check the wheel of a folder, and name it after the systems it runs on."""
    (wheel,) = folder.glob("*.whl")
    tools = Path(sys.executable).parent
    command = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", DIST, wheel]
    do(f"Audit {wheel.name}", command, path=[tools, os.environ["PATH"]])


def programs_without_compilers() -> Path:
    """Return a folder of links to this machine's programs, without compilers."""
    folder = WORK / "programs"
    folder.mkdir()
    for place in ["/usr/bin", "/bin"]:
        for program in Path(place).iterdir():
            link = folder / program.name
            if not COMPILERS.fullmatch(program.name) and not link.is_symlink():
                link.symlink_to(program)
    for compiler in ["cc", "c++", "gcc", "g++", "clang", "clang++"]:
        if shutil.which(compiler, path=str(folder)):
            sys.exit(f"make wheel: {compiler} is still on the path")
    return folder


def suits(wheel: Path, python: Python) -> bool:
    """Whether a wheel fits a Python."""
    tag = int(re.search(r"-cp3(\d+)-", wheel.name)[1])
    return python.minor == tag or ("-abi3-" in wheel.name and python.minor > tag)


def test(wheel: Path, python: Python, source: Path, programs: Path, tests: Sequence[str]) -> None:
    """Install a wheel into an empty environment and run the tests of the sdist there."""
    group = f"{ROOT / 'pyproject.toml'}:wheel-test"
    empty = python.environment(f"empty-3.{python.minor}", [wheel, "--group", group])
    command = [
        empty,
        "-m",
        "pytest",
        "-q",
        "-n",
        "auto",
        "-m",
        "not real and not matrix and not exhaustive and not oracle and not torch",
    ]
    title = f"Test {wheel.name} with Python 3.{python.minor}, without a compiler"
    do(title, [*command, *tests], folder=source, path=[empty.parent, programs])


def main() -> None:
    """Build, audit and test."""
    for folder in (DIST, WORK):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    here = pythons()
    source = unpacked_sdist()
    stable = [python for python in here if python.is_stable]
    build_from(source, stable[0] if stable else here[0])
    if stable and sys.version_info < STABLE:
        repair(ROOT / "build" / "wheel")
    programs = programs_without_compilers()
    tests = TESTS
    for wheel in sorted(DIST.glob("*.whl"), key=lambda wheel: "-abi3-" not in wheel.name):
        for python in filter(lambda python: suits(wheel, python), here):
            test(wheel, python, source, programs, tests)
            tests = FEWER_TESTS
    print("dist/ holds", *sorted(path.name for path in DIST.iterdir()), sep="\n  ")
    if not stable:
        print("No Python 3.12 or newer is here, so no abi3 wheel was made: that is not tested.")


if __name__ == "__main__":
    main()
