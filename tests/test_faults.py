"""Whatever befalls a command, at whatever call: inputs stay, an output is old or new and whole."""

from __future__ import annotations

import errno
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import faulty
import ggufkit as library
from ggufkit import store
from ggufkit.cli.app import COMMANDS
from ggufkit.errors import OutputError
from shell import ggufkit

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and signals")
PROGRAM = Path(faulty.__file__)
SOURCE = re.compile(r"(\.gguf|\.safetensors|\.bin): ")
CODES = {"killed": -9, "torn": -9, "short": 0, "interrupted": 130, "terminated": 143}
ENDS = {"killed", "failed", "interrupted"}
OTHERS = {"cut", "replaced"}  # what others do to the input
INTO_FOLDERS = {"convert", "export", "rename"}  # or from them: no file could be both
READING = {
    *("inspect", "check", "plan", "estimate", "imatrix show", "archs", "bench", "hash", "diff"),
    *("list", "edit", "recover"),  # what is edited in place is test_mortal's
    "imatrix compute",  # writes as the others of its group, and needs an extra
}


def runs(command, faults, folder):
    paths = os.pathsep.join([str(PROGRAM.parent), *(path for path in sys.path if path)])
    arguments = [sys.executable, str(PROGRAM), command, ",".join(sorted(faults)), str(folder)]
    environment = os.environ | {"PYTHONPATH": paths}
    done = subprocess.run(
        arguments, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def assert_lost_nothing(each):
    assert each["inputs"], each
    assert each["output"] in ("old", "new", "absent", "both"), each
    assert each["again"] == "new", each  # and nothing besides, so leftovers are swept
    assert "Traceback" not in each["said"], each
    if CODES.get(each["fault"]) != -9:
        assert not each["hidden"], each
    if each["code"] == 0:
        assert each["output"] == "new", each
    if each["code"] == 130:
        assert "interrupted; every output is whole, or as it was" in each["said"], each
    if each["fault"] in CODES:  # a signal may come when there is nothing left to do
        assert each["code"] in (CODES[each["fault"]], 0), each
        return
    assert each["code"] in (0, 1), each
    assert each["code"] == 0 or (each["output"] != "new" and "error: " in each["said"]), each
    if each["call"] == "pread" and each["code"]:
        assert SOURCE.search(each["said"]), each


def commands():
    """Yield the names of all commands, those of groups too."""
    for name in COMMANDS:
        command = importlib.import_module(f"ggufkit.cli.{name.replace('-', '_')}").command
        inner = getattr(command, "commands", None)
        yield from ((f"{name} {each}", one) for each, one in (inner or {}).items())
        if not inner:
            yield name, command


def test_every_command_that_writes_meets_faults():
    known = dict(commands())
    meeting = {" ".join(words[: 1 + (words[0] == "imatrix")]) for words in faulty.COMMANDS.values()}
    assert meeting | READING == set(known)
    for name in READING - {"imatrix compute", "edit"}:
        assert "OUT" not in {param.metavar for param in known[name].params}, name


@pytest.mark.parametrize(
    ("command", "faults"),
    [
        pytest.param("copy", {*faulty.FAULTS} - OTHERS),
        pytest.param("copy", OTHERS, marks=pytest.mark.matrix),
        pytest.param("split", {"interrupted"}),
        pytest.param("quantize", ENDS | OTHERS, marks=pytest.mark.matrix),
        pytest.param("convert", {"killed", "failed"}, marks=pytest.mark.matrix),
        pytest.param("select", {"failed"}, marks=pytest.mark.matrix),
        pytest.param("edit", ENDS, marks=pytest.mark.matrix),
        pytest.param("export", {"failed"}, marks=pytest.mark.matrix),
        pytest.param("convert-legacy", {"failed"}, marks=pytest.mark.matrix),
        pytest.param("rename", ENDS),
        pytest.param("imatrix", ENDS | OTHERS, marks=pytest.mark.matrix),
        pytest.param("merge", {"failed"}, marks=pytest.mark.matrix),
    ],
)
def test_command_that_meets_a_fault_anywhere_loses_nothing(tmp_path, command, faults):
    found = runs(command, faults, tmp_path)
    for each in found:
        assert_lost_nothing(each)
    assert {each["fault"] for each in found} == faults
    calls = {each["call"] for each in found}
    writing = {"pwrite", "fsync", "replace", "flock"}
    assert ({"hard_link", "unlink"} if command == "rename" else writing) <= calls
    outputs = {each["output"] for each in found}
    assert "new" in outputs
    assert outputs & {"old", "absent"}  # faults lie on both sides of publishing


def test_input_that_the_kernel_cannot_read_is_the_one_named(tmp_path, monkeypatch):
    source, out = tmp_path / "in.gguf", tmp_path / "out.gguf"
    library.save(source, {"a": np.ones(64, "f4")})

    def failing(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with library.open(source) as model:
        monkeypatch.setattr(store, "copy_file_range", failing)
        monkeypatch.setattr(os, "pread", failing)
        with pytest.raises(OutputError, match=r"in\.gguf: Input/output error"):
            library.write(model, out)
    assert not out.exists()


@pytest.fixture
def work(tmp_path, monkeypatch):
    faulty.make(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", faulty.COMMANDS)
def test_output_in_a_missing_folder_is_one_clear_error(work, command):
    arguments = [part.replace("out/", "gone/") for part in faulty.COMMANDS[command]]
    done = ggufkit(*arguments)
    assert done.code == 1
    assert "error: " in done.err
    assert "Traceback" not in done.err
    assert not (work / "gone").exists()


@pytest.mark.parametrize("command", [n for n in faulty.COMMANDS if n not in INTO_FOLDERS])
def test_output_that_is_the_input_is_refused(work, command):
    source = faulty.source_of(faulty.COMMANDS[command])
    before = faulty.content(work)
    out = source
    if command == "split":  # a set never takes the name of one file
        out = "in-00001-of-00002.gguf"
        (work / out).hardlink_to(work / source)
        before = faulty.content(work)
    arguments = [part if "out/" not in part else out for part in faulty.COMMANDS[command]]
    done = ggufkit(*arguments)
    assert done.code in (1, 2), done.out
    assert "nput" in done.err, done.err
    assert faulty.content(work) == before


@pytest.mark.skipif(getattr(os, "geteuid", lambda: 0)() == 0, reason="root may write anywhere")
@pytest.mark.parametrize("command", faulty.COMMANDS)
def test_folder_that_may_not_be_written_is_one_clear_error(work, command):
    before = faulty.content(work / "out")
    (work / "out").chmod(0o500)
    done = ggufkit(*faulty.COMMANDS[command])
    (work / "out").chmod(0o700)
    assert done.code == 1
    assert "ermission" in done.err
    assert faulty.content(work / "out") == before
