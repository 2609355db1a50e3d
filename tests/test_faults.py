"""Whatever befalls a command, at whatever call: inputs stay, an output is old or new and whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import faulty
from shell import ggufkit

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and signals")
PROGRAM = Path(faulty.__file__)
CODES = {"killed": -9, "torn": -9, "short": 0, "interrupted": 130, "terminated": 143}
ENDS = {"killed", "failed", "interrupted"}


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
    assert each["output"] in ("old", "new", "absent"), each
    assert each["again"] == "new", each  # and nothing besides, so leftovers are swept
    assert "Traceback" not in each["said"], each
    if each["fault"] in ("failed", "interrupted", "terminated"):
        assert not each["hidden"], each
    if each["code"] == 0:
        assert each["output"] == "new", each
    if each["fault"] == "failed":
        assert each["code"] in (0, 1), each
        assert each["code"] == 0 or (each["output"] != "new" and "error: " in each["said"]), each
    else:  # a signal may come when there is nothing left to do
        assert each["code"] in (CODES[each["fault"]], 0), each


@pytest.mark.parametrize(
    ("command", "faults"),
    [
        pytest.param("copy", {*faulty.FAULTS}),
        pytest.param("split", {"interrupted"}),
        pytest.param("quantize", ENDS, marks=pytest.mark.matrix),
        pytest.param("convert", {"killed", "failed"}, marks=pytest.mark.matrix),
        pytest.param("select", {"failed"}, marks=pytest.mark.matrix),
        pytest.param("edit", ENDS, marks=pytest.mark.matrix),
        pytest.param("imatrix", ENDS, marks=pytest.mark.matrix),
    ],
)
def test_command_that_meets_a_fault_anywhere_loses_nothing(tmp_path, command, faults):
    found = runs(command, faults, tmp_path)
    for each in found:
        assert_lost_nothing(each)
    assert {each["fault"] for each in found} == faults
    calls = {each["call"] for each in found}
    assert {"open", "pwrite", "fsync", "replace", "flock"} <= calls
    outputs = {each["output"] for each in found}
    assert "new" in outputs
    assert outputs & {"old", "absent"}  # faults lie on both sides of publishing


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


@pytest.mark.parametrize("command", [name for name in faulty.COMMANDS if name != "convert"])
def test_output_that_is_the_input_is_refused(work, command):
    (source,) = (part for part in faulty.COMMANDS[command] if part in ("in.gguf", "matrix.gguf"))
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
