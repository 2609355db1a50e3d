"""Inject a fault at each system call of a command in turn and report the state afterwards.

As a program: faulty.py COMMAND FAULTS AT FOLDER prints JSON, a list with one object for each run:
the call, the fault, exit code and message, what became of inputs and output, and what lies about
after the next run. AT is "every" call (a sample, where there are very many), "some" calls, one of
"each" kind, or where an output is "made". Each run is a process of its own, forked from one that
has no threads.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

import adapters
import derived
import ggufkit
import legacy_files
import mortal
from ggufkit.cli import errors
from ggufkit.cli.app import app
from ggufkit.cli.commands import eval as eval_command
from ggufkit.evaluation.evaluate import Evaluation, Quality
from ggufkit.evaluation.scores import Scores
from ggufkit.evaluation.statistics import Measurement
from ggufkit.imatrix import compute
from ggufkit.quantization import sensitivity
from ggufkit.quantization.losses.sensitivities import Group, Level, Sensitivity
from ggufkit.release import run as _preloaded  # noqa: F401 (each run is a fork)
from ggufkit.release import trial
from ggufkit.system import cancellation
from mortal import journals
from plain_checkpoint import ARCH, CONFIG, whole
from tensors_file import write_checkpoint

FAULTS: Final = (
    *("killed", "torn", "failed", "short", "interrupted", "terminated"),
    *("cut", "replaced"),  # the input, by somebody else
    "ended",  # a read gives nothing, as at the end of a file
    "rivalled",  # another process makes the same output meanwhile, from beginning to end
)
SIGNALS: Final = {
    "interrupted": signal.SIGINT,
    "terminated": signal.SIGTERM,
    "rivalled": signal.SIGSTOP,  # until `run` has seen the other one end
}
# Of a command with more calls, a sample meets each fault.
MOST_POINTS: Final = {"every": 120, "some": 12}
# These write one file after another; stopped, they leave whole files, and the next run goes on.
MAKES_MANY: Final = {"release", "card"}
OF_THE_RUN: Final = ("release.log",)  # tells of each run, so it is never the same
# What tells of the files that there are, and hidden files.
UNFINISHED: Final = re.compile(r"(^|/)\.|/(release\.json|README\.md|SHA256SUMS)$")
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
    "merge": ("imatrix", "merge", "matrix.gguf", "matrix.gguf", "-o", "out/matrix.dat"),
    "adapter": (
        "lora",
        "convert",
        "adapter",
        "out/model.gguf",
        "--base",
        "checkpoint",
        "--arch-path",
        "arch",
        "--threads",
        "1",
    ),
    "merged": (
        "lora",
        "merge",
        "in.gguf",
        "adapter.gguf",
        "-o",
        "out/model.gguf",
        "--threads",
        "1",
    ),
    "extracted": (
        "lora",
        "extract",
        "in.gguf",
        "tuned.gguf",
        "out/model.gguf",
        "--rank",
        "2",
        "--threads",
        "1",
    ),
    "compute": ("imatrix", "compute", "in.gguf", "text.txt", "--output", "out/matrix.dat"),
    "sensitivity": ("sensitivity", "in.gguf", "text.txt", "-o", "out/model.json"),
    "eval": ("eval", "in.gguf", "--text", "text.txt", "--context", "8", "-o", "out/model.json"),
    "release": ("release", "in.gguf", "-o", "out/set", "--rungs", "Q8_0,F16"),
    "card": ("card", "out/made"),
    "report": ("report", "in.gguf", "-o", "out/model.md"),
    "tensor": ("tensor", "in.gguf", "blk.0.ffn_up.weight", "-o", "out/values.csv"),
    "amend": ("edit", "out/odd.gguf", "--set", "general.name=new"),
    "fix": ("check", "--fix", "out/odd.gguf"),
    "recover": ("recover", "out/torn.gguf"),
}
# These have no --threads, and work in one.
UNTHREADED: Final = {"rename", "imatrix", "merge", "recover", "card"}
IN_PLACE: Final = {"amend", "fix", "recover"}  # their input is their output, and so for renaming
OVERWRITE_NOTHING: Final = {"export", "name"}
READING: Final = {"pread", "copy_file_range"}
BEFALLEN: Final = {"torn": {"pwrite"}, "short": {"pwrite"}, "ended": READING}
PATIENCE: Final = 2.0  # seconds
Struck = tuple[int, str]  # the number of a call, and the fault that befalls it
NEVER: Final[Struck] = (-1, "none")
# Calls by which an output comes to be.
MAKING: Final = ("flock", "pwrite", "replace", "rename", "hard_link")
SOURCES: Final = {
    "convert": "checkpoint/model.safetensors",
    "lora convert": "adapter/adapter_model.safetensors",
}  # else what the command names first
OTHER: Final = b"something else"
Files = dict[str, bytes]


class Run(mortal.Life):
    """A run of a command in which something happens at the `last`-th call to the system."""

    def __init__(self, last: int, end: str, pipe: int, source: Path) -> None:
        super().__init__(last, end, pipe)
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
        if self.end == "ended":
            return b"" if name == "pread" else 0
        return self.shortened(name, call) if self.end == "short" else super().struck(name, call)

    def shortened(self, name: str, call: functools.partial[Any]) -> Any:
        if name != "pwrite":
            return call()
        descriptor, data, offset = call.args
        return call.func(descriptor, data[: -(-len(data) // 2)], offset)

    def failure(self, name: str) -> int:
        number = errno.EIO if name in READS else errno.ENOSPC
        raise OSError(number, os.strerror(number))


class CallLog(mortal.Life):
    """A run without a fault that reports each call."""

    def __init__(self, pipe: int) -> None:
        super().__init__(-1, "none", pipe)

    def wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def telling(*arguments: Any, **options: Any) -> Any:
            os.write(self.pipe, f"{name} ".encode())
            return call(*arguments, **options)

        return telling


def make(folder: Path) -> None:
    """Make what the commands read, and older outputs."""
    random = np.random.default_rng(0)
    tensors = {f"blk.{i}.ffn_up.weight": random.standard_normal((4, 64), "f4") for i in range(3)}
    ggufkit.save(folder / "in.gguf", tensors, {"general.architecture": "llama"})
    write_checkpoint(folder / "checkpoint", CONFIG, model=whole())
    (folder / "arch").mkdir()
    (folder / "arch" / "plain.toml").write_text(ARCH)
    (folder / "text.txt").write_text("what a model reads")
    entry = ggufkit.imatrix.Entry(np.ones((1, 64), "f4"), np.array([3]))
    ggufkit.Imatrix({"blk.0.ffn_up.weight": entry}, ("text",), 3, 512).save(folder / "matrix.gguf")
    with ggufkit.convert(folder / "checkpoint", arch_path=[folder / "arch"]) as model:
        ggufkit.write(model, folder / "tiny.gguf")
    shapes = {name: array.shape for name, array in whole().items()}
    adapters.write_adapter(folder / "adapter", adapters.factors(shapes))
    tuned = {name: array + array.sum(axis=0) for name, array in tensors.items()}
    ggufkit.save(folder / "tuned.gguf", tuned, {"general.architecture": "llama"})
    with ggufkit.open(folder / "in.gguf") as base, ggufkit.open(folder / "tuned.gguf") as better:
        ggufkit.write(ggufkit.extract_lora(base, better, rank=2).model, folder / "adapter.gguf")
    legacy_files.write(folder / "old.bin", "GGJT", 3)
    (folder / "out").mkdir()
    (folder / "out" / "model.gguf").write_bytes(b"old")
    (folder / "out" / "matrix.dat").write_bytes(b"old")
    odd = {"general.architecture": "llama", "general.file_type": np.uint32(99)}
    embedding = {"token_embd.weight": np.ones((4, 64), "f4")}
    ggufkit.save(folder / "out" / "odd.gguf", tensors | embedding, odd)


def computed(*_: object, **__: object) -> ggufkit.Imatrix:
    """Return what llama.cpp would compute."""
    return ggufkit.Imatrix.open("matrix.gguf")


def sensed(path: str, *_: object, **__: object) -> Sensitivity:
    """Return what llama.cpp would measure."""
    with ggufkit.open(path) as model:
        level = Level("Q4_0", 4.5, 0.1, 0.1)
        groups = tuple(Group(name, (name,), (level,)) for name in model.tensors)
        return Sensitivity(groups, 512, 1, model.readers_limit)


def evaluated(models: Sequence[str], *_: object, **__: object) -> Evaluation:
    """Return what llama.cpp would measure of how well models predict."""
    figure = Measurement(2.0, 0.1)
    with ggufkit.open(models[0]) as model:
        assert model.tensors
    quality = Quality(models[0], 100, figure, None, Scores.empty(1, 8))
    return Evaluation(8, 1, 4, None, (quality,), ())


def replace_llama_cpp(set_attribute: Callable[[object, str, object], None] = setattr) -> None:
    """Let functions return what llama.cpp would compute."""
    set_attribute(compute, "compute_imatrix", computed)
    set_attribute(sensitivity, "measure_sensitivity", sensed)
    set_attribute(eval_command, "evaluate", evaluated)
    set_attribute(trial, "require_runs", lambda *_: None)


def tear(folder: Path) -> None:
    """Leave an edit in between: its journal is there, and half of what it writes."""
    path = folder / "out" / "torn.gguf"
    shutil.copy(folder / "out" / "odd.gguf", path)
    arguments = ["edit", "out/torn.gguf", "--set", "general.name=new"]
    spare = folder.with_name("spare")
    renew(folder, spare)
    calls = run(arguments, spare).calls
    last = len(calls) - 1 - calls[::-1].index("pwrite")
    assert run(arguments, folder, (last, "torn")).code == -signal.SIGKILL


def release(folder: Path) -> None:
    """Make a release without its card."""
    words = ["release", "in.gguf", "-o", "out/made", "--rungs", "Q8_0", "--threads", "1"]
    ended = run(words, folder)
    assert ended.code == 0, ended.errors
    (folder / "out" / "made" / "README.md").unlink()


class Ended(NamedTuple):
    """What a run ended with, and the calls it made up to the one that was struck."""

    calls: list[str]
    code: int
    errors: str
    rival: tuple[int, str] | None = None


class Started(NamedTuple):
    """A run that goes on: its process, where it tells its calls, and what it says."""

    process: int
    pipe: int
    errors: Path

    @classmethod
    def of(cls, arguments: list[str], errors_path: Path, folder: Path, struck: Struck) -> Started:
        """Fork a process that runs a command in `folder`."""
        hear, tell = os.pipe()
        process = os.fork()
        if process:
            os.close(tell)
            return cls(process, hear, errors_path)
        os.close(hear)
        os.chdir(folder)
        os.dup2(os.open(errors_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        os.dup2(2, 1)
        cancellation.handle_signals()
        last, fault = struck
        (CallLog(tell) if last < 0 else Run(last, fault, tell, Path(source_of(arguments)))).begin()
        code = errors.outcome(app, arguments)
        sys.stderr.flush()
        os._exit(code)

    def has_ended_within(self, seconds: float) -> bool:
        """Wait for the end, which is left for `ended` to see, but not longer than so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if os.waitid(os.P_PID, self.process, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                return True
            time.sleep(0.005)
        return False

    def ended(self) -> Ended:
        """Wait for the end, and tell of it."""
        status = os.waitpid(self.process, 0)[1]
        calls = os.read(self.pipe, 1 << 16).decode().split()
        os.close(self.pipe)
        return Ended(calls, os.waitstatus_to_exitcode(status), self.errors.read_text())


def run(arguments: list[str], folder: Path, struck: Struck = NEVER) -> Ended:
    """Run a command in a process of its own, in which a fault befalls a call."""
    started = Started.of(arguments, folder.with_name("errors"), folder, struck)
    if struck[1] != "rivalled":
        return started.ended()
    os.waitid(os.P_PID, started.process, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    rival = Started.of(arguments, folder.with_name("rival"), folder, NEVER)
    rival.has_ended_within(PATIENCE)  # it may wait for the first, which holds a lease
    os.kill(started.process, signal.SIGCONT)
    ended, other = started.ended(), rival.ended()
    return ended._replace(rival=(other.code, other.errors))


def all_commands() -> dict[str, tuple[str, ...]]:
    """Return the arguments of `COMMANDS`, and of each writing command that is not among them."""
    listed = {words[0] for words in COMMANDS.values()}
    others = (words for words, one in derived.leaves().items() if derived.is_writing(one))
    return COMMANDS | {
        command: arguments_of(command) for command in others if command.split()[0] not in listed
    }


def arguments_of(command: str) -> tuple[str, ...]:
    """Return the arguments of a command; one that is not told of gets those that it needs."""
    if command in COMMANDS:
        return COMMANDS[command]
    row = derived.leaves()[command]
    threads = ("--threads", "1") if "--threads" in derived.spellings(row) else ()
    needed = derived.words(row, "in.gguf", "out/model.gguf")
    return (*command.split(), *needed, *threads)


def source_of(arguments: list[str]) -> str:
    """Return the file that a command reads its tensors from."""
    files = (part for part in arguments[1:] if "." in part or part in SOURCES.values())
    source = next(files, arguments[1])
    source_of_verb = SOURCES.get(arguments[0], source)
    return SOURCES.get(" ".join(arguments[:2]), source_of_verb)


def content(folder: Path) -> Files:
    """Return the bytes of everything in a folder, hidden files included; of folders none.

    Journals are as they would be for files of any number.
    """
    paths = sorted(folder.rglob("*"))
    plain = {
        path: replace(journal, inodes=(0, 0)).encode() for _, path, journal in journals(folder)
    }
    return {
        str(path.relative_to(folder)): b""
        if path.is_dir()
        else plain.get(path) or path.read_bytes()
        for path in paths
        if path.name not in OF_THE_RUN
    }


def inputs(folder: Path) -> Files:
    """Return the bytes of all but the outputs."""
    return {name: data for name, data in content(folder).items() if Path(name).parts[0] != "out"}


class Trial:
    """A command, what it finds, and what it makes of that where nothing befalls it."""

    def __init__(self, command: str, folder: Path) -> None:
        self.command = command
        self.arguments = [
            *arguments_of(command),
            *(("--threads", "1") if command in COMMANDS.keys() - UNTHREADED else ()),
        ]
        self.original, self.work = folder / "kept", folder / "work"
        self.original.mkdir()
        make(self.original)
        if prepare := {"recover": tear, "card": release}.get(command):
            prepare(self.original)
        self.old = content(self.original / "out")
        renew(self.original, self.work)
        self.calls, code, errors, _ = run(self.arguments, self.work)
        assert code == 0, errors
        self.new = content(self.work / "out")
        self.next = {frozenset(self.old.items()): "new"}  # what one more run makes of a folder

    def points(self, fault: str, places: str) -> list[int]:
        """Return the calls that a fault befalls."""
        befallen = BEFALLEN.get(fault, {*self.calls})
        befallen &= {*self.calls}
        numbers = [n for n, name in enumerate(self.calls) if name in befallen]
        most = MOST_POINTS.get(places, 0)
        if most or not numbers:
            if len(numbers) <= most:
                return numbers
            kinds = map(self.calls.index, befallen)
            drawn = random.Random(fault).sample(numbers, most)
            return sorted({*kinds, *drawn, numbers[-1]})
        if places == "each":
            return sorted({*map(self.calls.index, befallen), numbers[-1]})
        if fault == "ended":  # all kinds of reads, which are few
            return sorted({*map(self.calls.index, befallen), numbers[-1]})
        making = [n for n in numbers if self.calls[n] in MAKING]
        return sorted({making[0], making[len(making) // 2], making[-1]})

    def meet(self, fault: str, last: int) -> dict[str, Any]:
        """Run the command into a fault; tell what is found."""
        renew(self.original, self.work)
        ended = run(self.arguments, self.work, (last, fault))
        row: dict[str, Any] = {"call": ended.calls[0], "fault": fault}
        row |= {"code": ended.code, "errors": ended.errors, "rival": ended.rival}
        there = content(self.work / "out")
        hidden = (name for name in there if name.startswith("."))
        row["hidden"] = [name for name in hidden if name not in self.old | self.new]
        if fault in ("cut", "replaced"):
            ignored = shutil.ignore_patterns("out")
            shutil.copytree(self.original, self.work, ignore=ignored, dirs_exist_ok=True)
        row["inputs"] = inputs(self.work) == inputs(self.original)
        if self.command in IN_PLACE and fault in ("killed", "torn"):
            ggufkit.recover(self.work / self.arguments[1 + (self.command == "fix")])
        row["output"] = self.output(content(self.work / "out"))
        return row | {"again": self.again()}

    def output(self, files: Files) -> str:
        """Tell which output is there, in the words of `state`."""
        return state(files, self.old, self.new, makes_many=self.command in MAKES_MANY)

    def again(self) -> str:
        """Run once more, without a fault; tell what there is then, or what went wrong."""
        there = content(self.work / "out")
        outcome = state(there, self.old, self.new, exact=True)
        if outcome == "new" and self.arguments[0] in OVERWRITE_NOTHING:
            return outcome
        known = frozenset(there.items())
        if known not in self.next:
            ended = run(self.arguments, self.work)
            after = state(content(self.work / "out"), self.old, self.new, exact=True)
            self.next[known] = ended.errors if ended.code else after
        return self.next[known]


def renew(original: Path, work: Path) -> None:
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(original, work)
    mortal.adopt(work, original)


def state(
    files: Files, old: Files, new: Files, *, exact: bool = False, makes_many: bool = False
) -> str:
    """Tell which output there is; with `exact`, whether there is nothing else besides."""
    if not exact:
        files, old, new = map(comparable, (files, old, new))
    changed = {name: data for name, data in new.items() if old.get(name) != data}
    if files == new:
        return "new"
    if files == old:
        return "old"
    if files == {**old, **new}:
        return "both"  # names of the file that is renamed
    first = min(changed)
    rest = {name: data for name, data in files.items() if name != first}
    if makes_many and unfinished(files).items() <= {**new, **old}.items():
        return "absent"
    if len(changed) > 1 and first not in files and rest.items() <= {**new, **old}.items():
        return "absent"  # without its first shard, a set does not open
    return f"neither: {sorted(files)}"


def comparable(files: Files) -> Files:
    """Return the files that are not hidden."""
    return {name: data for name, data in files.items() if "/." not in f"/{name}"}


def unfinished(files: Files) -> Files:
    """Return the files that a stopped release may leave, and which are whole."""
    return {name: data for name, data in files.items() if not UNFINISHED.search(name)}


def main(command: str, faults: str, places: str, folder: str) -> None:
    """Print the result of each run."""
    replace_llama_cpp()
    trial = Trial(command, Path(folder))
    names = faults.split(",")
    rows = [trial.meet(fault, last) for fault in names for last in trial.points(fault, places)]
    json.dump(rows, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
