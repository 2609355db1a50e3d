"""A release on the machines of a cluster makes the same files, even when one of them dies."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import measured_llama
import real  # noqa: F401 (marks these tests: they run llama.cpp)
from ggufkit.release import importance, rung_steps
from shell import done, ggufkit
from workers import two_workers

pytestmark = pytest.mark.skipif(os.name == "nt", reason="kills a worker as POSIX does")
SETTINGS = """
rungs = ["Q8_0", "Q4_0", "IQ2_XS"]
calibration = "calibration.txt"
texts = ["prose.txt", "code.txt"]
context = 32
"""
COMMAND = ("release", "tiny-F32.gguf", "--config", "release.toml", "--threads", "1")


@pytest.fixture(scope="module")
def cluster():
    """A scheduler and two workers that are processes of their own, in another folder."""
    with two_workers() as cluster:
        yield cluster


@pytest.fixture
def work(tmp_path, monkeypatch, cluster):  # the workers do not follow into this folder
    monkeypatch.chdir(tmp_path)
    measured_llama.save(tmp_path / "tiny-F32.gguf")
    random = np.random.default_rng(5)
    for name, count in (("calibration", 6000), ("prose", 900), ("code", 700)):
        Path(f"{name}.txt").write_text("".join(random.choice(list("abc"), count)))
    Path("release.toml").write_text(SETTINGS)
    return tmp_path


def digests(folder):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.is_file() and path.name != "release.log"
    }


def refuse(*_arguments, **_options):
    raise AssertionError("this machine did the work of the cluster")


def test_cluster_makes_the_same_files_and_figures(cluster, work, monkeypatch):
    done(*COMMAND, "-o", "alone")
    monkeypatch.setattr(importance.compute, "compute_imatrix", refuse)
    monkeypatch.setattr(rung_steps.evaluation, "evaluate", refuse)
    done(*COMMAND, "-o", "together", "--cluster", cluster.scheduler_address)
    assert digests(work / "together") == digests(work / "alone")


def test_killed_worker_does_not_change_the_files(cluster, work):
    done(*COMMAND, "-o", "alone")
    before = set(cluster.scheduler.workers)
    victims = [worker.pid for worker in cluster.workers.values()]

    def kill_one():
        while not [*work.glob("together/.release/*-*.gguf")]:
            time.sleep(0.005)
        os.kill(victims[0], signal.SIGKILL)

    killer = threading.Thread(target=kill_one, daemon=True)
    killer.start()
    done(*COMMAND, "-o", "together", "--cluster", cluster.scheduler_address)
    killer.join()
    assert not before <= set(cluster.scheduler.workers)  # it did die
    assert digests(work / "together") == digests(work / "alone")


def test_error_on_the_cluster_is_the_problem_of_one_file(cluster, work):
    done(*COMMAND, "-o", "out", "--cluster", cluster.scheduler_address)
    journal = json.loads(Path("out/release.json").read_text())
    for step in [step for step in journal["steps"] if step.startswith("measure Q4_0")]:
        del journal["steps"][step]
    Path("out/release.json").write_text(json.dumps(journal))
    path = Path("out/tiny-Q4_0.gguf")
    content = bytearray(path.read_bytes())
    content[-200:] = b"\xff" * 200  # scales that are no numbers
    path.write_bytes(content)
    result = ggufkit(*COMMAND, "-o", "out", "--cluster", cluster.scheduler_address)
    assert result.code == 1
    assert "measure Q4_0 on prose.txt failed: " in result.err
    assert "tiny-Q8\\_0.gguf" in Path("out/README.md").read_text()


def test_cluster_that_does_not_answer_is_told_before_anything_is_made(work):
    result = ggufkit(*COMMAND, "-o", "out", "--cluster", "nonsense")
    assert result.code == 1
    assert "not the address of a scheduler" in result.err
    assert not Path("out/release.json").exists()
