"""A stopped `imatrix compute` continues, and its sums are the bytes of a run in one go."""

from __future__ import annotations

import os
import random
import signal
import time

import numpy as np
import pytest

import ggufkit
import measured_llama
import real  # noqa: F401 (marks these tests: they run llama.cpp)
from ggufkit.errors import OutputError
from ggufkit.imatrix import compute
from ggufkit.imatrix.checkpoint import SumsCheckpoint
from ggufkit.imatrix.compute import compute_imatrix
from shell import done
from shell import ggufkit as run

CHUNKS = 60
COMMON = ("--context", 16, "--batch", 32, "--threads", 1)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    text = measured_llama.text(folder / "text.txt", 3000)
    return measured_llama.save(folder / "m.gguf"), text


@pytest.fixture(autouse=True)
def frequent(monkeypatch):
    monkeypatch.setattr(compute, "EVERY_CHUNKS", 2)


class StopError(Exception):
    pass


def options(folder, *, hessian, memory, **others):
    hessian_path = folder / "h.gguf" if hessian else None
    reading = {"context": 16, "batch": 32, "chunks": CHUNKS, "threads": 1}
    return {**reading, "hessian": hessian_path, "memory": memory, **others}


def stopped(inputs, folder, count, **chosen):
    """Compute until `count` chunks are read."""

    def stopping(passed, _total):
        if passed >= count:
            raise StopError

    resume = folder / "imatrix.gguf"
    with pytest.raises(StopError):
        compute_imatrix(*inputs, **options(folder, progress=stopping, resume=resume, **chosen))


def same(inputs, folder, one, **chosen):
    """Finish in `folder`, compare with a run in one go in `one`; return the first progress."""
    seen = []
    finish = options(folder, resume=folder / "imatrix.gguf", **chosen)
    compute_imatrix(*inputs, **finish, progress=lambda *both: seen.append(both)).save(
        folder / "imatrix.gguf"
    )
    one.mkdir()
    compute_imatrix(*inputs, **options(one, **chosen)).save(one / "imatrix.gguf")
    names = sorted(path.name for path in folder.iterdir())
    assert names == sorted(path.name for path in one.iterdir())
    for name in names:
        assert (folder / name).read_bytes() == (one / name).read_bytes(), name
    return seen[0]


@pytest.mark.parametrize("passes", [0, 1, 2])  # none: without a Hessian
def test_stopped_run_continues_with_the_same_bytes(inputs, tmp_path, passes):
    folder, memory = tmp_path / "work", 1 if passes > 1 else 1 << 30
    folder.mkdir()
    chosen = {"hessian": passes > 0, "memory": memory}
    for count in (9, 33):
        stopped(inputs, folder, count, **chosen)
    first, total = same(inputs, folder, tmp_path / "one", **chosen)
    assert 30 < first <= 36  # not from the beginning
    assert (total > 2 * CHUNKS) == (passes > 1)  # a pass also reads 16 chunks of random tokens


def test_stop_in_a_later_pass_keeps_the_passes_before(inputs, tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    chosen = {"hessian": True, "memory": 1}
    stopped(inputs, folder, 3 * CHUNKS + 11, **chosen)
    first, _ = same(inputs, folder, tmp_path / "one", **chosen)
    assert 3 * CHUNKS + 8 < first <= 3 * CHUNKS + 14


def test_checkpoint_of_other_choices_or_a_damaged_one_is_not_used(inputs, tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    stopped(inputs, folder, 40, hessian=False, memory=1)
    checkpoint = next(folder.iterdir())
    assert checkpoint.name == ".imatrix.gguf-0.ggufkit-resume"
    content = checkpoint.read_bytes()
    for damaged in (b"", content[:100], content[:-3000]):
        checkpoint.write_bytes(damaged)
        first, _ = same(inputs, folder, tmp_path / f"one{len(damaged)}", hessian=False, memory=1)
        assert first == 2
        (folder / "imatrix.gguf").unlink()
    checkpoint.write_bytes(content)
    other = compute_imatrix(
        *inputs, context=16, batch=64, chunks=CHUNKS, threads=1, resume=folder / "imatrix.gguf"
    )
    plain = compute_imatrix(*inputs, context=16, batch=64, chunks=CHUNKS, threads=1)
    for name, entry in plain.entries.items():
        assert np.array_equal(other.entries[name].sums, entry.sums)


def test_foreign_file_under_the_hidden_name_is_refused(inputs, tmp_path):
    other = tmp_path / "other"
    other.write_bytes(b"mine")
    (tmp_path / ".out.gguf-0.ggufkit-resume").symlink_to(other)
    result = run("imatrix", "compute", *inputs, "-o", tmp_path / "out.gguf", *COMMON, "--resume")
    assert result.code == 1
    assert ".out.gguf-0.ggufkit-resume" in result.err
    assert other.read_bytes() == b"mine"


def save(checkpoint, value, done):
    tensors = ggufkit.model({"a": np.full(8, value, np.float32)}).tensors.values()
    checkpoint.save(0, tensors, done)


@pytest.mark.parametrize(
    ("stays", "key", "done"), [(True, "other", 5), (True, "own", 3), (False, "other", 5)]
)
def test_sums_of_another_run_with_the_same_target_are_not_taken(tmp_path, stays, key, done):
    target = tmp_path / "h.gguf"
    with SumsCheckpoint(target, "own", stays=stays) as one:
        save(one, 1, 5)
        with SumsCheckpoint(target, key, stays=stays) as two:
            save(two, 2, done)
            with pytest.raises(OutputError, match="another run replaced"):
                one.stored(0)
            assert two.stored(0)["a"].numpy()[0] == 2
            two.finish()
        with pytest.raises(OutputError, match="another run replaced"):
            one.stored(0)


def test_a_run_without_a_checkpoint_removes_no_file(tmp_path):
    target = tmp_path / "text.txt"
    with SumsCheckpoint(target, "key", stays=True) as stopped_run:
        save(stopped_run, 1, 5)
    before = [(path, path.read_bytes()) for path in tmp_path.iterdir()]
    with SumsCheckpoint(target, "key", stays=False) as run_in_one_go:
        assert run_in_one_go.restored(0) == (None, 0)
        run_in_one_go.finish()
    assert [(path, path.read_bytes()) for path in tmp_path.iterdir()] == before


@pytest.mark.skipif(os.name == "nt", reason="kills as POSIX does")
@pytest.mark.parametrize("kills", [4, pytest.param(30, marks=pytest.mark.exhaustive)])
def test_command_killed_at_random_moments_writes_the_same_files(inputs, tmp_path, kills):
    def command(folder, *more):
        where = ("-o", folder / "out.gguf", "--hessian", folder / "h.gguf", "--memory", "100k")
        return ("imatrix", "compute", *inputs, *where, *COMMON, *more)

    alone, killed = tmp_path / "alone", tmp_path / "killed"
    alone.mkdir()
    killed.mkdir()
    began = time.monotonic()
    done(*command(alone))
    seconds = time.monotonic() - began
    moments = random.Random(kills)
    ends = [
        killed_after(moments.uniform(0, 0.7) * seconds, command(killed, "--resume"))
        for _ in range(kills)
    ]
    assert signal.SIGKILL in ends
    done(*command(killed, "--resume"))
    for name in ("out.gguf", "h.gguf"):
        assert (killed / name).read_bytes() == (alone / name).read_bytes()
    assert sorted(path.name for path in killed.iterdir()) == ["h.gguf", "out.gguf"]


def killed_after(seconds, arguments):
    """Run a command in a child that is killed; return the signal that ended it, 0 if it ended."""
    child = os.fork()
    if child == 0:
        os._exit(run(*arguments).code)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return os.WTERMSIG(os.waitpid(child, 0)[1])


def test_gguf_of_a_checkpoint_is_sound(inputs, tmp_path):
    stopped(inputs, tmp_path, 20, hessian=True, memory=1 << 30)
    path = tmp_path / ".imatrix.gguf-0.ggufkit-resume"
    assert not [f for f in ggufkit.check(path) if f.severity == "error"]
