"""`install` lets gguf-py use ggufkit, wherever its names are, and `uninstall` undoes it."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
import types
from pathlib import Path

import gguf
import gguf.gguf_reader
import gguf.quants
import pytest

import ggufkit.compat
from ggufkit.compat import gguf as ours

ROOT = Path(__file__).resolve().parents[2]
THEIRS = {name: getattr(gguf, name) for name in ggufkit.compat.patch.NAMES}


@pytest.fixture
def installed():
    ggufkit.compat.install()
    yield
    ggufkit.compat.uninstall()


@pytest.mark.usefixtures("installed")
def test_names_of_the_module_and_its_submodules_are_ours():
    for name in THEIRS:
        assert getattr(gguf, name) is getattr(ours, name)
    assert gguf.gguf_reader.GGUFReader is ours.GGUFReader
    assert gguf.gguf_writer.GGUFWriter is ours.GGUFWriter
    assert gguf.quants.dequantize is ours.dequantize


def test_uninstall_gives_all_names_back():
    ggufkit.compat.install()
    ggufkit.compat.install()
    ggufkit.compat.uninstall()
    ggufkit.compat.uninstall()
    assert {name: getattr(gguf, name) for name in THEIRS} == THEIRS
    assert gguf.quants.quantize is THEIRS["quantize"]


def test_modules_that_imported_the_names_before_get_ours(monkeypatch):
    early = types.ModuleType("early")
    early.Reader, early.dequantize = THEIRS["GGUFReader"], THEIRS["dequantize"]
    monkeypatch.setitem(sys.modules, "early", early)
    monkeypatch.setitem(sys.modules, "strange", object())
    ggufkit.compat.install()
    assert early.Reader is ours.GGUFReader
    assert early.dequantize is ours.dequantize
    early.dequantize = None  # what a program has set since is its own
    ggufkit.compat.uninstall()
    assert early.Reader is THEIRS["GGUFReader"]
    assert early.dequantize is None


def run(*arguments: str, cwd: object = None) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *arguments], check=False, capture_output=True, text=True, cwd=cwd
    )


BEFORE = """
import sys, ggufkit.compat
ggufkit.compat.install()
assert "gguf" not in sys.modules and "numpy" not in sys.modules
import importlib.util
spec = importlib.util.find_spec("gguf")
assert spec.origin.endswith("__init__.py"), spec
import gguf
assert gguf.GGUFReader.__module__ == "ggufkit.compat.gguf.gguf_reader"
assert type(gguf.__spec__.loader).__module__ != "ggufkit.compat.patch"
assert gguf.__loader__ is gguf.__spec__.loader
from gguf.quants import dequantize
assert dequantize.__module__ == "ggufkit.compat.gguf.quants"
ggufkit.compat.uninstall()
assert gguf.GGUFReader.__module__ == "gguf.gguf_reader"
"""
NEVER = """
import sys, ggufkit.compat
ggufkit.compat.install()
ggufkit.compat.uninstall()
import gguf
assert gguf.GGUFReader.__module__ == "gguf.gguf_reader"
"""


@pytest.mark.parametrize("program", [BEFORE, NEVER], ids=["installed", "uninstalled"])
def test_gguf_is_patched_when_it_is_imported_later(program):
    done = run("-c", program)
    assert done.returncode == 0, done.stderr


def test_a_script_runs_unchanged(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, gguf, neighbour\n"
        "print(gguf.GGUFReader.__module__, __name__, sys.argv[1:], neighbour.NAME)\n"
    )
    (tmp_path / "neighbour.py").write_text("NAME = 'found'\n")
    done = run("-m", "ggufkit.compat", str(script), "--flag", "x")
    assert done.stdout == "ggufkit.compat.gguf.gguf_reader __main__ ['--flag', 'x'] found\n", (
        done.stderr
    )


WORKERS = """
import multiprocessing, os, site
site.addsitedir(os.environ["SITE"])  # what Python does at its start in the folder of packages

def reader(_=None):
    import gguf
    return gguf.GGUFReader.__module__

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(reader(), *pool.map(reader, [0]))
"""


@pytest.mark.parametrize("value", ["1", "0", ""])
def test_workers_of_a_program_get_the_stand_in_by_a_variable(value, tmp_path, monkeypatch):
    shutil.copy(ROOT / "src" / "ggufkit-compat.pth", tmp_path)
    (tmp_path / "script.py").write_text(WORKERS)
    monkeypatch.setenv("SITE", str(tmp_path))
    monkeypatch.setenv("GGUFKIT_COMPAT", value)
    ours, theirs = "ggufkit.compat.gguf.gguf_reader", "gguf.gguf_reader"
    done = run(str(tmp_path / "script.py"))
    assert done.stdout.split() == [ours if value == "1" else theirs] * 2, done.stderr
    assert run("-m", "ggufkit.compat", str(tmp_path / "script.py")).stdout.split() == [ours] * 2


def test_the_installed_package_brings_the_switch_for_workers():
    files = importlib.metadata.files("ggufkit")
    assert "ggufkit-compat.pth" in [str(file) for file in files]


def test_a_script_that_brings_its_own_gguf_gets_that_one(tmp_path):
    """llama.cpp's converter prefers the gguf-py of its own folder."""
    shutil.copytree(Path(gguf.__file__).parent, tmp_path / "own" / "gguf")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nsys.path.insert(1, sys.path[0] + '/own')\n"
        "import gguf\nprint(gguf.__file__, gguf.GGUFWriter.__module__)\n"
    )
    done = run("-m", "ggufkit.compat", str(script))
    place, module = done.stdout.split()
    assert Path(place).is_relative_to(tmp_path)
    assert module == "ggufkit.compat.gguf.gguf_writer"


def test_a_module_runs_unchanged(tmp_path):
    (tmp_path / "tool.py").write_text("import gguf\nprint(gguf.quantize.__module__, __name__)\n")
    done = run("-m", "ggufkit.compat", "-m", "tool", cwd=tmp_path)
    assert done.stdout == "ggufkit.compat.gguf.quants __main__\n", done.stderr


@pytest.mark.parametrize("arguments", [[], ["-m"], ["missing.py"]])
def test_usage_is_shown_for_what_cannot_run(arguments):
    done = run("-m", "ggufkit.compat", *arguments)
    assert done.returncode == 2
    assert "python -m ggufkit.compat SCRIPT" in done.stderr
    assert "Traceback" not in done.stderr


def test_stand_in_has_all_names_of_gguf_and_its_submodules():
    missing = [name for name in vars(gguf) if not name.startswith("_") and not hasattr(ours, name)]
    assert not missing
    assert set(ours.__all__) <= set(dir(ours))
    assert ours.GGMLQuantizationType is gguf.GGMLQuantizationType
    assert ours.__spec__ is not None
    assert ours.__version__.split(".")[0].isdigit()
    import ggufkit.compat.gguf.constants

    import ggufkit.compat.gguf.quants
    from ggufkit.compat.gguf.tensor_mapping import TensorNameMap

    assert ggufkit.compat.gguf.constants is gguf.constants
    assert ggufkit.compat.gguf.quants._type_traits is gguf.quants._type_traits
    assert TensorNameMap is gguf.TensorNameMap
    with pytest.raises(AttributeError, match="nothing"):
        _ = ours.nothing


def test_star_import_gives_our_names():
    names: dict[str, object] = {}
    exec("from ggufkit.compat.gguf import *", names)  # noqa: S102 (only a module may say so)
    assert names["GGUFReader"] is ours.GGUFReader
    assert names["Keys"] is gguf.Keys


def test_maps_of_tensor_names_are_made_once_and_may_be_changed():
    arch = gguf.MODEL_ARCH.LLAMA
    theirs = THEIRS["get_tensor_name_map"](arch, 3)
    first, second = (ours.get_tensor_name_map(arch, 3) for _ in range(2))
    assert type(first) is type(theirs)
    assert first.mapping == second.mapping == theirs.mapping
    assert first.get_name("model.layers.2.self_attn.q_proj.weight", (".weight",)) == (
        "blk.2.attn_q.weight"
    )
    first.mapping.clear()
    assert second.mapping
    assert ours.get_tensor_name_map(arch, 3).mapping == theirs.mapping
    assert ours.get_tensor_name_map(arch, 2).mapping != theirs.mapping


def test_maps_of_tensor_names_know_what_a_program_has_added(monkeypatch):
    arch, added = gguf.MODEL_ARCH.LLAMA, gguf.MODEL_TENSOR.SSM_IN
    assert not any(kind == added for kind, _ in ours.get_tensor_name_map(arch, 1).mapping.values())
    monkeypatch.setitem(gguf.MODEL_TENSORS, arch, [*gguf.MODEL_TENSORS[arch], added])
    assert any(kind == added for kind, _ in ours.get_tensor_name_map(arch, 1).mapping.values())
