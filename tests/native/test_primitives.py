"""Every SIMD primitive means, lane by lane, what it means for one number.

The program `check_primitives.cpp` is compiled here, with the flags of each instruction set.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

import ggufkit._native as _native

FOLDER = Path(__file__).parent
COMPILER = next((name for name in ("c++", "g++", "clang++") if shutil.which(name)), None)
WIDE = f"-DGGUFKIT_EMULATED -march=x86-64-v3 -include {FOLDER / 'avx512_emulated.hpp'}"
FLAGS = {
    "v4": "-march=x86-64-v4",
    "v3": "-march=x86-64-v3",
    "v2": "-march=x86-64-v2",
    "neon": "",
    "portable": "-DGGUFKIT_PORTABLE",
}

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")


def wrong_primitives(flags, tmp_path):
    """Return what the program prints of primitives that are wrong."""
    program = tmp_path / "check_primitives"
    options = ["-std=c++17", "-O1", "-ffp-contract=off", "-fno-math-errno", "-Wno-psabi", "-w"]
    source = str(FOLDER / "check_primitives.cpp")
    subprocess.run([COMPILER, *options, *flags.split(), source, "-o", str(program)], check=True)
    result = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    return result.stdout if result.returncode else ""


@pytest.mark.parametrize("isa", [isa for isa in _native.instruction_sets() if isa in FLAGS])
def test_primitives_mean_what_they_mean_for_one_number(isa, tmp_path):
    assert not wrong_primitives(FLAGS[isa], tmp_path)


@pytest.mark.parametrize("lanes", [8, 16])
def test_primitives_of_plain_vector_extensions_do_so_with_any_lane_count(lanes, tmp_path):
    assert not wrong_primitives(f"-DGGUFKIT_LANES={lanes}", tmp_path)


@pytest.mark.skipif(platform.machine() not in {"x86_64", "AMD64"}, reason="emulates on x86-64")
@pytest.mark.skipif("v3" not in _native.instruction_sets(), reason="emulates with AVX2")
def test_emulated_primitives_of_avx512_mean_the_same(tmp_path):
    assert not wrong_primitives(WIDE, tmp_path)
