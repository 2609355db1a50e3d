"""End an edit at each system call in turn and report the state afterwards.

As a program: mortal.py WAY FOLDER prints JSON, a list with one object for each life: the call at
which it ended, how, and what the file was when it was opened next. Each life is a process of its
own, forked from one that has no threads.
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
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

import ggufkit
from ggufkit.edits import in_place, undo
from ggufkit.errors import GGUFError, InterruptedEditWarning
from ggufkit.system import descriptors, disk_blocks, edit_journal, rename_files
from ggufkit.system.hidden_files import EDIT, UNDO

# Everything by which an edit reaches the system, reading included.
CALLS: Final = (
    (os, "open"),
    (os, "close"),
    (os, "pread"),
    (os, "pwrite"),
    (os, "fsync"),
    (os, "ftruncate"),
    (os, "fstat"),
    (os, "replace"),
    (os, "unlink"),
    (os, "fchmod"),
    (os, "fchown"),
    (os, "mkdir"),
    (os, "rmdir"),
    (os, "rename"),
    (rename_files, "hard_link"),
    (descriptors, "copy_file_range"),
    (disk_blocks, "fallocate"),
    (disk_blocks.fcntl, "ioctl"),
    (disk_blocks.fcntl, "fcntl"),
    (disk_blocks.fcntl, "flock"),
)
ENDS: Final = ("killed", "torn", "failed")
FINISHED, REFUSED, BROKEN = 0, 7, 8


class Life:
    """A run in which the `last`-th call to the system ends it, or fails."""

    def __init__(self, last: int, end: str, pipe: int) -> None:
        self.count = -1
        self.last = last
        self.end = end
        self.pipe = pipe

    def begin(self) -> None:
        for home, name in CALLS:
            if getattr(home, name, None) is not None:
                setattr(home, name, self.wrapped(name, getattr(home, name)))

    def wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def counted(*arguments: Any, **options: Any) -> Any:
            self.count += 1
            if self.count != self.last:
                return call(*arguments, **options)
            os.write(self.pipe, name.encode())
            return self.struck(name, functools.partial(call, *arguments, **options))

        return counted

    def struck(self, name: str, call: functools.partial[Any]) -> Any:
        """End this run at its last call, as requested."""
        if self.end == "failed":
            return self.failure(name)
        if self.end == "torn" and name == "pwrite":
            descriptor, data, offset = call.args
            call.func(descriptor, data[: len(data) // 2], offset)
        os.kill(os.getpid(), signal.SIGKILL)
        return None

    def failure(self, name: str) -> int:
        if name == "fallocate":
            return -1
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def live(act: Callable[[], object], last: int, end: str) -> tuple[str, int]:
    """Run `act` in a process of its own until call `last`; return that call and the status."""
    hear, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(hear)
        os._exit(lived(act, Life(last, end, tell)))
    os.close(tell)
    status = os.waitpid(child, 0)[1]
    name = os.read(hear, 100).decode()
    os.close(hear)
    return name, status


def lived(act: Callable[[], object], life: Life) -> int:
    life.begin()
    try:
        act()
    except (GGUFError, OSError):
        return REFUSED
    except BaseException:  # noqa: BLE001 (no other error may come of a system that fails)
        return BROKEN
    return FINISHED


# What is edited.


def make(path: Path) -> None:
    random = np.random.default_rng(0)
    tensors = {f"blk.{i}.weight": random.standard_normal((16, 128), "f4") for i in range(9)}
    metadata = {"general.architecture": "llama", "llama.block_count": 9, "text": "before " * 300}
    ggufkit.save(path, tensors, metadata)


def plainly(path: Path, text: str) -> None:
    way = in_place.edit_in_place(path, set={"text": text}).way
    assert way in ("patched", "moved", "copied", "cloned")


SAME: Final = "after! " * 300
LONGER: Final = "after! " * 900


def without_blocks() -> None:
    disk_blocks.fallocate = None


WAYS: Final[dict[str, tuple[str, Callable[[], None], Callable[[Path], object], str]]] = {
    # name: the way it takes, what comes first, the edit, what is done before it
    "patched": ("patched", lambda: None, lambda path: plainly(path, SAME), ""),
    "moved": ("moved", lambda: None, lambda path: plainly(path, LONGER), ""),
    "moved back": ("moved", lambda: None, ggufkit.undo, LONGER),
    "patched back": ("patched", lambda: None, ggufkit.undo, SAME),
    "copied": ("copied", without_blocks, lambda path: plainly(path, LONGER), ""),
    "copied back": ("copied", without_blocks, ggufkit.undo, LONGER),
    "cloned": ("cloned", without_blocks, lambda path: plainly(path, LONGER), ""),
}


def fresh(folder: Path, original: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(original, folder)
    adopt(folder, original)
    return folder / "model.gguf"


def journals(folder: Path) -> Iterator[tuple[Path, Path, edit_journal.EditJournal]]:
    """Yield each model in a folder that has a journal, that journal's path, and the journal."""
    for path in folder.rglob(".*.ggufkit-*"):
        for suffix in (EDIT, UNDO):
            model = path.with_name(path.name[1 : -len(suffix)])
            if not path.name.endswith(suffix) or not model.exists():
                continue
            journal = edit_journal.EditJournal.decode(path.read_bytes())
            if journal:
                yield model, path, journal


def adopt(folder: Path, original: Path) -> None:
    """Have the journals in a copied folder name the copies, and not the files they are made of."""
    for model, path, journal in journals(folder):
        before = (original / model.relative_to(folder)).stat().st_ino
        after = model.stat().st_ino
        inodes = tuple(after if inode == before else inode for inode in journal.inodes)
        path.write_bytes(replace(journal, inodes=inodes).encode())


def lives(way: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the result of each run."""
    original, work = folder / "kept", folder / "work"
    original.mkdir()
    make(original / "model.gguf")
    taken, prepare, act, first = WAYS[way]
    prepare()
    if first:
        plainly(original / "model.gguf", first)
    before = (original / "model.gguf").read_bytes()
    path = fresh(work, original)
    assert in_place.apply(planned(act, path)).way == taken, way
    after = path.read_bytes()
    assert after != before
    known = {before: "before", after: "after"}
    for end in ENDS:
        yield from deaths(end, lambda: fresh(work, original), act, known)


def planned(act: Callable[[Path], object], path: Path) -> in_place.EditPlan:
    """Return the plan of an edit."""
    if act is ggufkit.undo:
        return undo.plan_undo(path)
    plans: list[in_place.EditPlan] = []
    apply = in_place.apply

    def caught(plan: in_place.EditPlan, **options: Any) -> in_place.Edited:
        plans.append(plan)
        return in_place.Edited(path, "patched", 0, ())

    in_place.apply = caught
    try:
        act(path)
    finally:
        in_place.apply = apply
    return plans[0]


def deaths(
    end: str, renew: Callable[[], Path], act: Callable[[Path], object], known: dict[bytes, str]
) -> Iterator[dict[str, Any]]:
    for last in itertools.count():
        path = renew()
        name, status = live(lambda: act(path), last, end)  # noqa: B023 (called at once)
        if not name:
            return
        if end == "torn" and name != "pwrite":  # only a write can be torn
            continue
        row: dict[str, Any] = {"call": name, "end": end}
        row["broken"] = os.WIFEXITED(status) and os.WEXITSTATUS(status) == BROKEN
        row["content"] = known.get(path.read_bytes(), "between")
        if row["content"] == "between":
            yield from relapses(path, row, known)
        yield row | seen(path, known)


def relapses(path: Path, row: dict[str, Any], known: dict[bytes, str]) -> Iterator[dict[str, Any]]:
    """Also kill the recovery of an interrupted file at each call."""
    torn = path.parent.with_name("torn")
    shutil.rmtree(torn, ignore_errors=True)
    shutil.copytree(path.parent, torn)
    adopt(torn, path.parent)
    for last in itertools.count():
        again = fresh(path.parent.with_name("again"), torn)
        name, _ = live(lambda: ggufkit.recover(again), last, "torn")  # noqa: B023
        if not name:
            return
        yield {**row, "call": f"{name} in recovery"} | seen(again, known)


def seen(path: Path, known: dict[bytes, str]) -> dict[str, Any]:
    """Open, which changes nothing, then recover; return what was read and the state of the file."""
    content = path.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InterruptedEditWarning)
        with ggufkit.open(path) as model:
            text = str(model.metadata["text"])
    is_unchanged = path.read_bytes() == content
    ggufkit.recover(path)
    with ggufkit.open(path) as model:
        is_shown = str(model.metadata["text"]) == text and is_unchanged
    remains = [file.name for file in path.parent.iterdir() if file.name.endswith(EDIT)]
    outcome = known.get(path.read_bytes(), "between")
    return {"outcome": outcome, "is_shown": is_shown, "remains": remains}


if __name__ == "__main__":
    json.dump(list(lives(sys.argv[1], Path(sys.argv[2]))), sys.stdout)
