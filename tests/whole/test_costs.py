"""The cost of importing ggufkit and of opening a model, in exact counts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ggufkit

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "open.py"
TABLE_BYTES_PER_TENSOR = 2048  # objects for a name, a shape, a type, a place: what a table holds
TABLE_BYTES_PER_KEY = 512
PAGES = 1 << 19  # the allocator takes memory from the system by the page and the arena


def modules_after(code):
    """Return the names of the modules loaded by `code` in a fresh interpreter."""
    report = "; import sys, json; print(json.dumps(sorted(sys.modules)))"
    command = [sys.executable, "-c", code + report]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_import_loads_neither_numpy_nor_the_native_core():
    assert not {"numpy", "ggufkit._native"} & modules_after("import ggufkit")


def test_version_needs_no_numpy():
    run = "import sys; sys.argv = ['ggufkit', '--version']; from ggufkit.cli import main"
    guard = "exec('try: main()\\nexcept SystemExit as end: assert not end.code')"
    assert "numpy" not in modules_after(f"{run}; {guard}")


NETWORK = {"ssl", "http.client", "ggufkit.remote.get"}
FEEDBACK = {"ggufkit.imatrix.hessian", "ggufkit.quantization.gptq_source", "ggufkit.llama_cpp"}
WRITING = {"ggufkit.output.execute", "ggufkit.edits.in_place", "concurrent.futures"}
IMPORTANCE = {"ggufkit.imatrix.matrix", "ggufkit.quantization.provenance"}
LOOKING = NETWORK | FEEDBACK | WRITING | IMPORTANCE
TABLES = {"ggufkit._toml"}  # of recipes, and of what few files have


@pytest.mark.parametrize(
    ("arguments", "unneeded"),
    [
        (("inspect", "MODEL"), LOOKING | TABLES | {"ggufkit.quantization.recipes"}),
        (("check", "MODEL"), LOOKING),
        (("plan", "MODEL"), LOOKING),
        (("estimate", "MODEL"), LOOKING),
        (("quantize", "MODEL", "OUT", "Q8_0"), NETWORK | FEEDBACK),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_command_loads_no_heavy_module_that_it_does_not_need(arguments, unneeded, tmp_path):
    model = ggufkit.model(
        {"a.weight": np.ones((4, 32), np.float32)}, {"general.architecture": "llama"}
    )
    places = {"MODEL": str(tmp_path / "in.gguf"), "OUT": str(tmp_path / "out.gguf")}
    ggufkit.write(model, places["MODEL"])
    argv = ["ggufkit", *(places.get(argument, argument) for argument in arguments)]
    run = f"import sys; sys.argv = {argv!r}; from ggufkit.cli import main"
    loaded = modules_after(f"{run}; exec('try: main()\\nexcept SystemExit: pass')")
    assert "numpy" in loaded  # the command has run
    assert not loaded & unneeded


@pytest.mark.parametrize("name", ggufkit.__all__)
def test_public_name_is_loaded_on_demand(name):
    assert getattr(ggufkit, name) is not None
    assert name in dir(ggufkit)


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_opening_needs_memory_for_tensors_but_not_for_the_vocabulary(name, request, vocabularies):
    path = request.getfixturevalue(name)
    model = ggufkit.open(path)
    allowed = PAGES + len(model.tensors) * TABLE_BYTES_PER_TENSOR
    allowed += len(model.metadata) * TABLE_BYTES_PER_KEY
    command = [sys.executable, str(BENCHMARK), "--measure", "ggufkit"]
    command += [str(path), str(vocabularies[0]), "1"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout)["memory"] <= allowed
