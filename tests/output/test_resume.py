"""A killed job resumes where it stopped and gives the same bytes as an uninterrupted one."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import ggufkit
from ggufkit.errors import DiskSpaceError, OutputError
from ggufkit.models.sources import retyped
from ggufkit.output import execute
from ggufkit.output.chunks import Chunk, Sizes
from shell import ggufkit as run_ggufkit

KEPT, JOURNAL = ".out.gguf.ggufkit-resume", ".out.gguf.ggufkit-journal"
SIZES = "Sizes(1 << 14, 1 << 14)"
posix = pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")

# Writes a model, and kills itself after so many chunks.
DYING = f"""
import os, signal, sys
import ggufkit
from ggufkit.output import execute
from ggufkit.output.chunks import Sizes
from ggufkit.models.sources import retyped

execute.HERE = {SIZES}
source, target, limit, how = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
seen = []

def progress(done, total):
    seen.append(done)
    if len(seen) > limit:
        os.kill(os.getpid(), getattr(signal, how))

with ggufkit.open(source) as model:
    changed = [retyped(t, "Q8_0") if len(t.shape) > 1 else t for t in model.tensors.values()]
    ggufkit.write(
        model.replace(tensors=changed), target, threads=2, progress=progress, resume=True,
        alignment=4096,
    )
"""

# A command that gets a signal as soon as it would write.
INTERRUPTED = """
import signal
import ggufkit
from ggufkit.cli import main

ggufkit.write = lambda *_, **__: signal.raise_signal(signal.SIGINT)
main()
"""


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def source(tmp_path):
    random = np.random.default_rng(5)
    tensors = {
        "first": random.standard_normal((200, 512), np.float32).astype("f2"),
        "copied": random.standard_normal(50000, np.float32),
        "last": random.standard_normal((33, 1024), np.float32),
    }
    (tmp_path / "in").mkdir()
    return ggufkit.save(tmp_path / "in" / "model.gguf", tensors)[0]


@pytest.fixture
def model(source, monkeypatch):
    monkeypatch.setattr(execute, "HERE", Sizes(1 << 14, 1 << 14))
    with ggufkit.open(source) as model:
        yield quantized(model)


def quantized(model, kind="Q8_0"):
    tensors = model.tensors.values()
    return model.replace(tensors=[retyped(t, kind) if len(t.shape) > 1 else t for t in tensors])


@pytest.fixture
def out(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "out.gguf"


@pytest.fixture
def expected(model, tmp_path):
    ggufkit.write(model, tmp_path / "expected.gguf", alignment=4096)
    return (tmp_path / "expected.gguf").read_bytes()


def killed(source, out, after, how="SIGKILL"):
    """Have a process write that dies after some chunks."""
    command = [sys.executable, "-c", DYING, str(source), str(out), str(after), how]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode != 0, "the job ended before it died"
    return done


@pytest.fixture
def made_chunks(monkeypatch):
    """The names of the tensors that are split into chunks."""
    chunks = []
    real = Chunk.contents

    def contents(chunk, *scratch):
        chunks.extend(part.extent.name for part in chunk.parts)
        return real(chunk, *scratch)

    monkeypatch.setattr(Chunk, "contents", contents)
    return chunks


def resume(model, out):
    ggufkit.write(model, out, threads=2, resume=True, alignment=4096)


@posix
@pytest.mark.parametrize("after", [0, 1, 7, 20])
def test_resumed_job_gives_the_same_bytes(source, model, out, expected, after):
    out.write_bytes(b"old")
    killed(source, out, after)
    assert out.read_bytes() == b"old"
    assert names(out.parent) == sorted([KEPT, JOURNAL, "out.gguf"])
    resume(model, out)
    assert out.read_bytes() == expected
    assert names(out.parent) == ["out.gguf"]


@posix
def test_job_that_is_killed_repeatedly_finishes(source, model, out, expected):
    for after in range(4, 7):
        killed(source, out, after)
    resume(model, out)
    assert out.read_bytes() == expected


@posix
def test_resume_does_not_repeat_finished_work(source, model, out, made_chunks):
    resume(model, out.with_name("fresh.gguf"))
    in_all = len(made_chunks)
    killed(source, out, 20)
    done = (out.parent / JOURNAL).read_text().count("\n") - 1
    assert done >= 20
    made_chunks.clear()
    resume(model, out)
    assert len(made_chunks) == in_all - done


@posix
@pytest.mark.parametrize("seed", range(2))
def test_resume_rewrites_changed_bytes(source, model, out, expected, seed):
    killed(source, out, 25)
    staged = out.with_name(KEPT)
    random = np.random.default_rng(seed)
    content = np.frombuffer(staged.read_bytes(), np.uint8).copy()
    content[random.integers(0, len(content), 200)] ^= 0x55
    staged.write_bytes(content)
    resume(model, out)
    assert out.read_bytes() == expected


def append(path, data):
    path.write_bytes(path.read_bytes() + data)


DAMAGES = {
    "torn": lambda journal, _: os.truncate(journal, journal.stat().st_size - 5),
    "gone": lambda journal, _: journal.unlink(),
    "empty": lambda journal, _: os.truncate(journal, 0),
    "binary": lambda journal, _: append(journal, bytes(range(256)) * 9),
    "lying": lambda journal, _: append(journal, b"0 0 99999999999 12345678\n" * 5),
    "without its file": lambda _, staged: staged.unlink(),
    "file cut": lambda _, staged: os.truncate(staged, 5000),
    "file grown": lambda _, staged: os.truncate(staged, 1 << 22),
}


@posix
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_journal_costs_work_but_no_bytes(source, model, out, expected, damage):
    killed(source, out, 20)
    DAMAGES[damage](out.with_name(JOURNAL), out.with_name(KEPT))
    resume(model, out)
    assert out.read_bytes() == expected
    assert names(out.parent) == ["out.gguf"]


@posix
def test_refuses_another_plan_and_keeps_finished_work(source, model, out, expected):
    killed(source, out, 20)
    with ggufkit.open(source) as plain:
        for other in (quantized(plain, "Q4_0"), plain):
            with pytest.raises(OutputError, match="another input or with other options") as caught:
                resume(other, out)
            assert "Repeat the command" in caught.value.remedy
    with pytest.raises(OutputError, match="other options"):
        ggufkit.write(model, out, resume=True, alignment=64)
    assert names(out.parent) == sorted([KEPT, JOURNAL])
    resume(model, out)
    assert out.read_bytes() == expected


@posix
def test_refuses_a_changed_input(source, model, out):
    killed(source, out, 20)
    content = bytearray(source.read_bytes())
    content[-1] ^= 1
    source.write_bytes(content)
    with ggufkit.open(source) as changed, pytest.raises(OutputError, match="another input"):
        resume(quantized(changed), out)


@posix
def test_writing_from_the_start_discards_kept_work(source, model, out, expected):
    killed(source, out, 20)
    ggufkit.write(model, out, alignment=4096)
    assert out.read_bytes() == expected
    assert names(out.parent) == ["out.gguf"]


@posix
def test_other_writers_do_not_remove_kept_work(source, model, out, expected):
    killed(source, out, 20)
    ggufkit.write(model, out.with_name("other.gguf"))
    assert names(out.parent) == sorted([KEPT, JOURNAL, "other.gguf"])
    resume(model, out)
    assert out.read_bytes() == expected


def test_full_disk_keeps_finished_work_on_request(model, out, monkeypatch, expected):
    real, calls = os.pwrite, []

    def failing(*arguments):
        calls.append(arguments)
        if len(calls) > 10:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments)

    for options in ({}, {"resume": True}):
        calls.clear()
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", failing)
            patched.setattr("ggufkit.system.descriptors.copy_file_range", None)
            with pytest.raises(DiskSpaceError) as caught:
                ggufkit.write(model, out, threads=1, alignment=4096, **options)
        assert names(out.parent) == (sorted([KEPT, JOURNAL]) if options else [])
        assert ("is kept" in caught.value.remedy) == bool(options)
    resume(model, out)
    assert out.read_bytes() == expected


@posix
def test_terminated_job_can_be_resumed(source, model, out, expected):
    killed(source, out, 10, "SIGINT")
    assert names(out.parent) == sorted([KEPT, JOURNAL])
    resume(model, out)
    assert out.read_bytes() == expected


def test_running_job_cannot_be_resumed_by_another(model, out):
    reached, opened = threading.Event(), threading.Event()

    def waiting(_done, _total):
        reached.set()
        assert opened.wait(60)

    options = {"resume": True, "progress": waiting}
    running = threading.Thread(target=ggufkit.write, args=(model, out), kwargs=options)
    running.start()
    assert reached.wait(60)
    for again in ({"resume": True}, {}):
        with pytest.raises(OutputError, match="being written by another process"):
            ggufkit.write(model, out, **again)
    opened.set()
    running.join()
    assert names(out.parent) == ["out.gguf"]


@posix
def test_resumes_shards_and_several_outputs(model, source, out, tmp_path):
    def write(folder, **options):
        with ggufkit.open(source) as plain:
            pairs = [(quantized(plain, kind), folder / kind) for kind in ("Q8_0", "Q4_0")]
            paths = ggufkit.write_many(pairs, shard_tensors=1, **options)
        return [path.read_bytes() for group in paths for path in group]

    def stopping(done, total):
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(out.parent, resume=True, progress=stopping)
    assert len(names(out.parent)) == 8
    (tmp_path / "whole").mkdir()
    assert write(out.parent, resume=True) == write(tmp_path / "whole")
    assert len(names(out.parent)) == 6


def test_worker_processes_can_resume(model, out, expected):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        with pytest.raises(RuntimeError):
            ggufkit.write(model, out, resume=True, executor=pool, alignment=4096, progress=_failing)
        ggufkit.write(model, out, resume=True, executor=pool, alignment=4096)
    assert out.read_bytes() == expected


def _failing(_done, _total):
    raise RuntimeError


class Nameless:
    """A source that does not declare what it reads."""

    byte_order, span = "little", None

    def __reduce__(self):
        raise TypeError("stays")

    def read(self, start, stop):
        return np.zeros((stop - start, 4), np.uint8)


def test_refuses_to_resume_a_source_that_cannot_be_identified(out):
    tensor = ggufkit.Tensor.over("t", ggufkit.quants.encodable("I8"), (9, 4), Nameless())
    with pytest.raises(OutputError, match="does not identify its data"):
        ggufkit.save(out, {"t": tensor}, resume=True)


def test_stream_cannot_be_resumed(model):
    import io

    with pytest.raises(OutputError, match="cannot be resumed"):
        ggufkit.write(model, io.BytesIO(), resume=True)
    result = run_ggufkit("copy", model.inputs[0].path, "-", "--resume")
    assert result.code == 2
    assert "cannot write to stdout" in result.err


@posix
def test_interrupted_command_says_how_to_resume(source, out):
    def refusal(*options):
        command = [sys.executable, "-c", INTERRUPTED, "copy", source, out, *options]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 128 + signal.SIGINT
        return done.stderr

    assert refusal() == "interrupted; every output is whole, or as it was\n"
    assert refusal("--resume") == "interrupted; run the command again to continue from here\n"
