"""After a fault at any call, inputs are unchanged and an output is the complete old or new one."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import faulty
import ggufkit as library
from derived import is_writing, leaves
from ggufkit.errors import OutputError
from ggufkit.system import descriptors
from ggufkit.system.hidden_files import EDIT
from shell import ggufkit

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and signals")
PROGRAM = Path(faulty.__file__)
CAPABILITY_VERSION = 0x20080522  # of the numbers that Linux takes
SOURCE = re.compile(r"(\.gguf|\.safetensors|\.bin|matrix\.dat): ")
CODES = {"killed": -9, "torn": -9, "short": 0, "interrupted": 130, "terminated": 143}
# Commands whose input is their output have no separate faults of the input.
INPUT_FAULTS = {"cut", "replaced"}
CHANGING_INPUT = faulty.IN_PLACE | {"rename", "card"}
REFUSED = re.compile(
    "being (written|edited) by another|exists (and is not empty|already)|already exists|changed"
    "|Nothing was renamed"
    "|odd.gguf: No such file"  # by that name: the other has renamed it
)
INTO_FOLDERS = {"convert", "export", "release"}  # or from them: no file could be both
COMMANDS = faulty.all_commands()
OTHERS = [command for command in COMMANDS if command != "copy"]
UNMET = {  # faults of calls that a command does not make
    "rename": {"torn", "short", "ended"},
    **{
        name: {"ended"}
        for name in ("imatrix", "merge", "compute", "report", "sensitivity", "eval", "card")
    },
}


def faults_of(command):
    """Return what can befall a command: everything, of what happens at its calls."""
    return {*faulty.FAULTS} - (INPUT_FAULTS if command in CHANGING_INPUT else set())


def runs(command, faults, places, folder):
    paths = os.pathsep.join([str(PROGRAM.parent), *(path for path in sys.path if path)])
    joined = ",".join(sorted(faults))
    arguments = [sys.executable, str(PROGRAM), command, joined, places, str(folder)]
    environment = os.environ | {"PYTHONPATH": paths}
    done = subprocess.run(
        arguments, env=environment, capture_output=True, text=True, check=False, timeout=1800
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def assert_lost_nothing(row):
    assert row["inputs"], row
    assert row["output"] in ("old", "new", "absent", "both"), row
    assert row["again"] == "new", row  # and nothing besides, so leftovers are swept
    assert "Traceback" not in row["errors"], row
    if CODES.get(row["fault"]) != -9:
        journals = [name for name in row["hidden"] if name.endswith(EDIT)]
        assert row["hidden"] == (journals if row["is_in_place"] else []), row
    if row["code"] == 0:
        assert row["output"] == "new", row
    if row["code"] in (130, 143):
        assert "interrupted; every output is whole, or as it was" in row["errors"], row
    if row["fault"] in CODES:  # a signal may come when there is nothing left to do
        assert row["code"] in (CODES[row["fault"]], 0), row
        return
    if row["fault"] == "rivalled":
        assert_one_was_first(row)
        return
    assert row["code"] in (0, 1), row
    assert row["code"] == 0 or "error: " in row["errors"], row
    assert row["code"] == 0 or row["output"] != "new" or row["is_in_place"], row
    if row["call"] == "pread" and row["code"]:
        assert SOURCE.search(row["errors"]), row


def assert_one_was_first(row):
    """Of two commands with the same output, one succeeds; the other succeeds or is refused."""
    ends = [(row["code"], row["errors"]), tuple(row["rival"])]
    assert any(code == 0 for code, _ in ends), row
    assert row["output"] == "new", row
    for code, errors in ends:
        assert code == 0 or (code == 1 and "error: " in errors and REFUSED.search(errors)), row


def test_every_command_that_writes_meets_faults():
    groups = ("imatrix", "lora")
    meeting = {" ".join(words[: 1 + (words[0] in groups)]) for words in COMMANDS.values()}
    writing = {name for name, command in leaves().items() if is_writing(command)}
    assert meeting == writing | {"recover", "card"}  # which have no option that says so


def assert_loses_nothing(command, faults, places, folder):
    rows = runs(command, faults, places, folder)
    for row in rows:
        assert_lost_nothing(row | {"is_in_place": command in CHANGING_INPUT - {"rename"}})
    assert {row["fault"] for row in rows} == faults - UNMET.get(command, set())
    return rows


# Each command meets half of the faults in `make test`, and the exhaustive tests have the others.
@pytest.mark.parametrize(
    "half", [0, pytest.param(1, marks=pytest.mark.exhaustive)], ids=["one half", "other half"]
)
@pytest.mark.parametrize(("number", "command"), [*enumerate(COMMANDS)])
def test_fault_while_writing_the_output_loses_nothing(tmp_path, number, command, half):
    faults = sorted(faults_of(command))[(number + half) % 2 :: 2]
    assert_loses_nothing(command, {*faults}, "made", tmp_path)


@pytest.mark.parametrize(
    ("command", "places"),
    [
        ("copy", "every"),
        *(pytest.param(command, "some", marks=pytest.mark.matrix) for command in OTHERS),
        *(pytest.param(command, "every", marks=pytest.mark.exhaustive) for command in OTHERS),
    ],
)
def test_command_killed_at_any_call_loses_nothing(tmp_path, command, places):
    rows = assert_loses_nothing(
        command, {"killed", "torn", "failed", "interrupted"}, places, tmp_path
    )
    calls = {row["call"] for row in rows}
    writing = {"pwrite", "fsync", "replace", "flock"}
    assert ({"hard_link", "unlink"} if command == "rename" else writing) <= calls
    outputs = {row["output"] for row in rows}
    assert "new" in outputs
    assert outputs & {"old", "absent"}  # faults lie on both sides of publishing


# Each command meets half of the faults in the matrix, and all of them in the exhaustive tests.
@pytest.mark.parametrize(
    "step",
    [pytest.param(2, marks=pytest.mark.matrix), pytest.param(1, marks=pytest.mark.exhaustive)],
)
@pytest.mark.parametrize(("number", "command"), [*enumerate(COMMANDS)])
def test_fault_in_each_kind_of_call_loses_nothing(tmp_path, number, command, step):
    faults = sorted(faults_of(command) - {"killed", "torn", "failed", "interrupted"})
    assert_loses_nothing(command, {*faults[number % step :: step]}, "each", tmp_path)


def test_error_names_the_input_that_the_kernel_cannot_read(tmp_path, monkeypatch):
    source, out = tmp_path / "in.gguf", tmp_path / "out.gguf"
    library.save(source, {"a": np.ones(64, "f4")})

    def failing(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with library.open(source) as model:
        monkeypatch.setattr(descriptors, "copy_file_range", failing)
        monkeypatch.setattr(os, "pread", failing)
        with pytest.raises(OutputError, match=r"in\.gguf: Input/output error"):
            library.write(model, out)
    assert not out.exists()


@pytest.fixture
def work(tmp_path, monkeypatch):
    faulty.make(tmp_path)
    faulty.tear(tmp_path)
    monkeypatch.chdir(tmp_path)
    faulty.replace_llama_cpp(monkeypatch.setattr)
    faulty.release(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_output_in_a_missing_folder_gives_one_clear_error(work, command):
    arguments = [part.replace("out/", "gone/") for part in COMMANDS[command]]
    done = ggufkit(*arguments)
    assert done.code == 1
    assert "error: " in (done.out if command == "fix" else done.err)  # which tells what it finds
    assert "Traceback" not in done.err
    assert not (work / "gone").exists()


# The ending of a report is no model's: tests/reports has models with such an ending.
ELSEWHERE = {*INTO_FOLDERS, *CHANGING_INPUT, "report"}


@pytest.mark.parametrize("command", [n for n in COMMANDS if n not in ELSEWHERE])
def test_refuses_an_output_that_is_the_input(work, command):
    source = faulty.source_of(COMMANDS[command])
    before = faulty.content(work)
    out = source
    if command == "split":  # a set never takes the name of one file
        out = "in-00001-of-00002.gguf"
        (work / out).hardlink_to(work / source)
        before = faulty.content(work)
    arguments = [part if "out/" not in part else out for part in COMMANDS[command]]
    done = ggufkit(*arguments)
    assert done.code in (1, 2), done.out
    assert "nput" in done.err, done.err
    assert faulty.content(work) == before


@contextlib.contextmanager
def unprivileged():
    """Drop the right of root to write anywhere; other users do not have it."""
    if os.geteuid():
        yield
        return
    libc, about = ctypes.CDLL(None, use_errno=True), struct.pack("Ii", CAPABILITY_VERSION, 0)
    capabilities = ctypes.create_string_buffer(24)
    assert libc.capget(about, capabilities) == 0
    words = list(struct.unpack("6I", capabilities.raw))
    words[0] = words[3] = 0  # what is in effect, of two halves; what is permitted stays
    assert libc.capset(about, struct.pack("6I", *words)) == 0
    try:
        yield
    finally:
        assert libc.capset(about, capabilities.raw) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="root may write anywhere")
@pytest.mark.parametrize("command", COMMANDS)
def test_read_only_folder_gives_one_clear_error(work, command):
    before = faulty.content(work / "out")
    (work / "out").chmod(0o500)
    for path in (work / "out").iterdir():
        path.chmod(0o500 if path.is_dir() else 0o400)
    with unprivileged():
        done = ggufkit(*COMMANDS[command])
    (work / "out").chmod(0o700)
    assert done.code == 1, done.out
    assert "ermission" in done.err, done.err
    assert "out" in done.err
    assert "Traceback" not in done.err
    assert faulty.content(work / "out") == before
