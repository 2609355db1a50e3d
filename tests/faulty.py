"""Commands that meet a fault at each call to the system in turn, and what is found afterwards.

As a program: faulty.py COMMAND FAULTS FOLDER prints JSON, a list with one object for each run: the
call, the fault, exit code and message, what became of inputs and output, and what lies about after
the next run. Each run is a process of its own, forked from one that has no threads.
"""

from __future__ import annotations

import errno
import functools
import itertools
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

import ggufkit
import legacy_files
import mortal
from ggufkit.cli import failing
from ggufkit.cli.app import app
from tensors_file import write_checkpoint
from test_converting_conversion import ARCH, CONFIG, whole

FAULTS: Final = (
    *("killed", "torn", "failed", "short", "interrupted", "terminated"),
    *("cut", "replaced"),  # the input, by somebody else
)
SIGNALS: Final = {"interrupted": signal.SIGINT, "terminated": signal.SIGTERM}
READS: Final = {"pread", "fstat", "open", "dup"}
COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "copy": ("copy", "in.gguf", "out/model.gguf"),
    "split": ("copy", "in.gguf", "out/model.gguf", "--shard-tensors", "2"),
    "quantize": ("quantize", "in.gguf", "out/model.gguf", "Q8_0"),
    "convert": ("convert", "checkpoint", "out/model.gguf", "--arch-path", "arch"),
    "select": ("select", "in.gguf", "out/model.gguf", "--drop", "blk.1.*"),
    "edit": ("edit", "in.gguf", "--set", "general.name=new", "--output", "out/model.gguf"),
    "export": ("export", "tiny.gguf", "out/tiny", "--arch-path", "arch"),
    "convert-legacy": ("convert-legacy", "old.bin", "out/model.gguf"),
    "rename": ("name", "out/odd.gguf", "--rename", "--basename", "Fine", "--encoding", "F32"),
    "imatrix": ("imatrix", "convert", "matrix.gguf", "out/matrix.dat"),
    "merge": ("imatrix", "merge", "matrix.gguf", "matrix.gguf", "out/matrix.dat"),
}
# These have no --threads, and work in one.
UNTHREADED: Final = {"rename", "imatrix", "merge"}
SOURCES: Final = {"convert": "checkpoint/model.safetensors"}  # else what the command names first
OTHER: Final = b"something else"
Files = dict[str, bytes]


class Run(mortal.Life):
    """A run of a command in which something happens at the `last`-th call to the system."""

    def __init__(self, last: int, end: str, told: int, source: Path) -> None:
        super().__init__(last, end, told)
        self.source = source

    def struck(self, name: str, call: functools.partial[Any]) -> Any:
        if self.end == "cut":
            os.truncate(self.source, self.source.stat().st_size // 2)
            return call()
        if self.end == "replaced":
            self.source.with_suffix(".other").write_bytes(OTHER)
            os.rename(self.source.with_suffix(".other"), self.source)  # noqa: PTH104 (as it was)
            return call()
        if self.end in SIGNALS:
            os.kill(os.getpid(), SIGNALS[self.end])
            return call()
        if self.end == "short" and name == "pwrite":
            descriptor, data, offset = call.args
            return call.func(descriptor, data[: -(-len(data) // 2)], offset)
        if self.end == "short":
            return call()
        return super().struck(name, call)

    def failure(self, name: str) -> int:
        number = errno.EIO if name in READS else errno.ENOSPC
        raise OSError(number, os.strerror(number))


def make(folder: Path) -> None:
    """Make what the commands read, and an older output."""
    random = np.random.default_rng(0)
    tensors = {f"blk.{i}.ffn_up.weight": random.standard_normal((4, 64), "f4") for i in range(3)}
    ggufkit.save(folder / "in.gguf", tensors, {"general.architecture": "llama"})
    write_checkpoint(folder / "checkpoint", CONFIG, model=whole())
    (folder / "arch").mkdir()
    (folder / "arch" / "plain.toml").write_text(ARCH)
    entry = ggufkit.imatrix.Entry(np.ones((1, 64), "f4"), np.array([3]))
    ggufkit.Imatrix({"blk.0.ffn_up.weight": entry}, ("text",), 3, 512).save(folder / "matrix.gguf")
    with ggufkit.convert(folder / "checkpoint", arch_path=[folder / "arch"]) as model:
        ggufkit.write(model, folder / "tiny.gguf")
    legacy_files.write(folder / "old.bin", "GGJT", 3)
    (folder / "out").mkdir()
    (folder / "out" / "model.gguf").write_bytes(b"old")
    shutil.copy(folder / "in.gguf", folder / "out" / "odd.gguf")


def run(arguments: list[str], folder: Path, last: int, fault: str) -> tuple[str, int, str]:
    """Run a command in a process of its own; return the call, the exit code and the message."""
    hear, tell = os.pipe()
    said = folder.with_name("said")
    child = os.fork()
    if child == 0:
        os.close(hear)
        os.chdir(folder)
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        os.dup2(2, 1)
        signal.signal(signal.SIGTERM, failing._terminate)
        Run(last, fault, tell, Path(source_of(arguments))).begin()
        try:
            code = failing.outcome(app, arguments)
        except SystemExit as end:
            code = int(end.code or 0)
        sys.stderr.flush()
        os._exit(code)
    os.close(tell)
    status = os.waitpid(child, 0)[1]
    call = os.read(hear, 100).decode()
    os.close(hear)
    return call, os.waitstatus_to_exitcode(status), said.read_text()


def source_of(arguments: list[str]) -> str:
    """Return the file that a command reads its tensors from."""
    given = next(part for part in arguments[1:] if "." in part or part in SOURCES.values())
    return SOURCES.get(arguments[0], given)


def content(folder: Path) -> Files:
    """Return the bytes of everything in a folder, hidden files included; of folders none."""
    paths = sorted(folder.rglob("*"))
    return {str(p.relative_to(folder)): b"" if p.is_dir() else p.read_bytes() for p in paths}


def inputs(folder: Path) -> Files:
    """Return the bytes of all but the outputs."""
    return {name: data for name, data in content(folder).items() if Path(name).parts[0] != "out"}


def runs(command: str, faults: tuple[str, ...], folder: Path) -> Iterator[dict[str, Any]]:
    """Yield what each run ended with."""
    arguments = [*COMMANDS[command], *(() if command in UNTHREADED else ("--threads", "1"))]
    kept, work = folder / "kept", folder / "work"
    kept.mkdir()
    make(kept)
    renew(kept, work)
    _, code, said = run(arguments, work, -1, "none")
    assert code == 0, said
    old, new = content(kept / "out"), content(work / "out")
    for fault in faults:
        yield from faults_of(fault, arguments, (kept, work), (old, new))


def faults_of(
    fault: str, arguments: list[str], folders: tuple[Path, Path], known: tuple[Files, Files]
) -> Iterator[dict[str, Any]]:
    kept, work = folders
    for last in itertools.count():
        renew(kept, work)
        call, code, said = run(arguments, work, last, fault)
        if not call:
            return
        if fault in ("torn", "short") and call != "pwrite":
            continue
        found = {"call": call, "fault": fault, "code": code, "said": said}
        found["output"] = state(content(work / "out"), *known)
        found["hidden"] = [name for name in content(work / "out") if name.startswith(".")]
        if fault in ("cut", "replaced"):
            shutil.copytree(kept, work, ignore=shutil.ignore_patterns("out"), dirs_exist_ok=True)
        found["inputs"] = inputs(work) == inputs(kept)
        found["again"] = run_again(arguments, work, known)
        yield found


def run_again(arguments: list[str], work: Path, known: tuple[Files, Files]) -> str:
    """Run once more, without a fault; tell what there is then, or what went wrong."""
    found = state(content(work / "out"), *known, exact=True)
    if found == "new" and arguments[0] in ("export", "name"):  # which overwrite nothing
        return found
    _, code, said = run(arguments, work, -1, "none")
    return said if code else state(content(work / "out"), *known, exact=True)


def renew(kept: Path, work: Path) -> None:
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(kept, work)


def state(found: Files, old: Files, new: Files, *, exact: bool = False) -> str:
    """Tell which output there is; with `exact`, whether there is nothing else besides."""
    shown = found if exact else {k: v for k, v in found.items() if not k.startswith(".")}
    made = {name: data for name, data in new.items() if old.get(name) != data}
    if shown == new:
        return "new"
    if shown == old:
        return "old"
    if shown == {**old, **new}:
        return "both"  # names of the file that is renamed
    first = min(made)
    rest = {name: data for name, data in shown.items() if name != first}
    if len(made) > 1 and first not in shown and rest.items() <= {**new, **old}.items():
        return "absent"  # without its first shard, a set does not open
    return f"neither: {sorted(found)}"


if __name__ == "__main__":
    names, place = sys.argv[2].split(","), Path(sys.argv[3])
    json.dump(list(runs(sys.argv[1], tuple(names), place)), sys.stdout)
