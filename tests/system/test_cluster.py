"""The machines of a cluster write the same file, even when one of them dies."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time

import numpy as np
import pytest

import ggufkit
from ggufkit.errors import ClusterError, MissingExtraError
from ggufkit.models.sources import retyped
from ggufkit.output import execute
from ggufkit.output.chunks import Sizes
from ggufkit.system import cluster as clusters
from ggufkit.system.cluster import cluster as executor_of
from plain_checkpoint import ARCH, CONFIG
from plain_checkpoint import whole as checkpoint_tensors
from shell import ggufkit as run_ggufkit
from tensors_file import write_checkpoint
from workers import two_workers

pytestmark = pytest.mark.skipif(os.name == "nt", reason="kills a worker as POSIX does")


@pytest.fixture(scope="module")
def cluster():
    """A scheduler and two workers that are processes of their own."""
    with two_workers() as cluster:
        yield cluster


@pytest.fixture
def source(tmp_path):
    random = np.random.default_rng(3)
    tensors = {
        f"blk.{n}.weight": random.standard_normal((1000, 512), np.float32).astype("f2")
        for n in range(4)
    }
    return ggufkit.save(tmp_path / "in.gguf", tensors)[0]


def quantized(model):
    return model.replace(tensors=[retyped(t, "Q6_K") for t in model.tensors.values()])


@pytest.fixture
def expected(source, tmp_path):
    with ggufkit.open(source) as model:
        return ggufkit.write(quantized(model), tmp_path / "expected.gguf")[0].read_bytes()


def test_killed_worker_does_not_change_the_file(cluster, source, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(execute, "AWAY", Sizes(1 << 16, 1 << 16))
    before = set(cluster.scheduler.workers)
    victim = cluster.workers[0].pid
    seen = []

    def killing(done, total):
        seen.append(done / total)
        if len(seen) == 5:
            os.kill(victim, signal.SIGKILL)

    with ggufkit.open(source) as model, executor_of(cluster.scheduler_address) as executor:
        ggufkit.write(quantized(model), tmp_path / "out.gguf", executor=executor, progress=killing)
    assert len(seen) > 40
    assert not before <= set(cluster.scheduler.workers)  # it did die
    assert (tmp_path / "out.gguf").read_bytes() == expected


def test_result_counts_even_if_its_worker_is_lost_right_after(cluster, monkeypatch):
    from distributed import Client

    gather = Client._gather

    async def lost_afterwards(self, futures, *arguments, **options):
        results = await gather(self, futures, *arguments, **options)
        for future in futures:
            future._state.lose()
        return results

    monkeypatch.setattr(Client, "_gather", lost_afterwards)
    with executor_of(cluster.scheduler_address) as executor:
        assert executor.submit(pow, 2, 5).result(20) == 32


def test_error_of_a_task_is_raised_and_a_task_can_be_cancelled(cluster):
    with executor_of(cluster.scheduler_address) as executor:
        with pytest.raises(ZeroDivisionError):
            executor.submit(divmod, 1, 0).result(20)
        assert executor.submit(time.sleep, 1).cancel()
        assert executor.submit(pow, 2, 3).result(60) == 8


def test_copy_command_can_use_a_cluster(cluster, source, tmp_path):
    address = cluster.scheduler_address
    done = run_ggufkit("copy", source, tmp_path / "out.gguf", "--cluster", address)
    assert done.code == 0, done.err
    assert (tmp_path / "out.gguf").read_bytes() == source.read_bytes()


def test_convert_command_can_use_a_cluster(cluster, tmp_path):
    (tmp_path / "arch").mkdir()
    (tmp_path / "arch" / "plain.toml").write_text(ARCH)
    folder = write_checkpoint(tmp_path / "Tiny-Plain", CONFIG, model=checkpoint_tensors())
    common = ("--arch-path", tmp_path / "arch", "--quantize", "Q8_0")
    alone, together = tmp_path / "alone.gguf", tmp_path / "together.gguf"
    assert run_ggufkit("convert", folder, alone, *common).code == 0
    address = cluster.scheduler_address
    done = run_ggufkit("convert", folder, together, *common, "--cluster", address)
    assert done.code == 0, done.err
    assert together.read_bytes() == alone.read_bytes()


def test_refuses_a_worker_of_another_version(cluster, monkeypatch):
    monkeypatch.setattr(clusters, "__version__", "999")
    with (
        pytest.raises(ClusterError, match="but this machine has 999"),
        executor_of(cluster.scheduler_address),
    ):
        pass


def test_refuses_an_invalid_address(tmp_path):
    for address in ("nonsense", "http://host:1", ""):
        with pytest.raises(ClusterError, match="not the address"), executor_of(address):
            pass
    failed = run_ggufkit("copy", tmp_path / "in.gguf", tmp_path / "out.gguf", "--cluster", "x")
    assert failed.code == 1


def test_reports_a_cluster_that_does_not_answer(monkeypatch):
    monkeypatch.setattr(clusters, "TIMEOUT", 0.5)
    with pytest.raises(ClusterError, match="no Dask scheduler"), executor_of("tcp://127.0.0.1:9"):
        pass


def _greet_once(server, greeting):
    with server.accept()[0] as client:
        client.sendall(greeting)
        client.recv(1)  # until the other side closes


@pytest.mark.parametrize("greeting", [b"", b"HTTP/1.1 400 Bad Request", bytes(16), b"short"])
def test_a_server_that_is_no_scheduler_is_said(greeting, monkeypatch):
    monkeypatch.setattr(clusters, "TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        executor = executor_of(address)
        thread = threading.Thread(target=_greet_once, args=(server, greeting))
        thread.start()
        with pytest.raises(ClusterError, match="no Dask scheduler"), executor:
            pass
        thread.join()


def test_an_encrypted_cluster_needs_certificates():
    pytest.importorskip("distributed")
    with pytest.raises(ClusterError, match="needs certificates"), executor_of("tls://h:1"):
        pass


def test_reports_a_missing_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError, match="needs Dask") as caught, executor_of("host:8786"):
        pass
    assert "ggufkit[cluster]" in caught.value.remedy
