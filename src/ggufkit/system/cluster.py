"""A cluster as an executor: the machines of a Dask scheduler.

Why Dask and not Ray: its client already is an executor of `concurrent.futures`, it is small and
pure Python, runs over SSH, batch systems and Kubernetes, and gives the work of a lost machine to
another machine.
"""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future
from typing import Any, Final

from ggufkit._version import __version__
from ggufkit.errors import ClusterError, MissingExtraError

TIMEOUT: Final = 10  # seconds to reach a scheduler; a running one answers immediately
RETRIES: Final = 3  # of a chunk that failed: the fault may be one machine's
MAX_GREETING: Final = 1 << 20  # bytes of a scheduler's first message, which has a few hundred
_ADDRESS: Final = re.compile(
    r"(?:(?P<scheme>tcp|tls|wss?)://)?(?P<host>[^\s:/]+):(?P<port>\d{1,5})/?"
)


@contextlib.contextmanager
def cluster(address: str) -> Iterator[Executor]:
    """Provide the executor of the Dask scheduler at `address`, such as "tcp://host:8786".

    Its workers need this version of ggufkit, and inputs and output under the same paths as here.
    Raises MissingExtraError without Dask, and ClusterError if no scheduler answers, if it has no
    workers, or if it lost too many.
    """
    try:
        from distributed import Client, KilledWorker, Security  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise MissingExtraError(
            "a cluster needs Dask", remedy="pip install 'ggufkit[cluster]'"
        ) from error
    match = _ADDRESS.fullmatch(address)
    if not match:
        raise ClusterError(
            f"{address!r} is not the address of a scheduler", remedy="Write it as tcp://host:8786"
        )
    if match["scheme"] in (None, "tcp"):
        _require_greeting(match["host"], int(match["port"]))
    elif match["scheme"] == "tls" and not Security().get_connection_args("client")["ssl_context"]:
        raise ClusterError(
            f"{address} needs certificates",
            remedy="Set them in Dask's configuration: distributed.comm.tls",
        )
    with contextlib.ExitStack() as opened:
        try:
            client = opened.enter_context(Client(address, timeout=TIMEOUT, set_as_default=False))
            client.wait_for_workers(1, timeout=TIMEOUT)
        except (OSError, TimeoutError) as error:
            raise _no_scheduler(address) from error
        _require_same(client.run(_version))
        try:
            yield _DaskExecutor(client)
        except KilledWorker as error:
            raise ClusterError(
                f"several workers died on the same chunk: {error}",
                remedy="Read the workers' logs; a chunk needs a few MiB per thread",
            ) from error


def _require_greeting(host: str, port: int) -> None:
    """Raise ClusterError unless a scheduler speaks first: Dask waits for one without a limit."""
    try:
        with socket.create_connection((host, port), TIMEOUT) as sock:
            greeting = sock.makefile("rb").read(8)
    except (OSError, OverflowError) as error:  # a port beyond 65,535
        raise _no_scheduler(f"{host}:{port}") from error
    if not 0 < int.from_bytes(greeting, "little") <= MAX_GREETING:
        raise _no_scheduler(f"{host}:{port}")


def _no_scheduler(address: str) -> ClusterError:
    return ClusterError(
        f"no Dask scheduler with workers answers at {address}",
        remedy="Start `dask scheduler`, and `dask worker ADDRESS` on every machine",
    )


class _DaskExecutor(Executor):
    """Submits tasks to a Dask client.

    Dask's own executor reads the state of a task after it has fetched the result. If the worker
    dies in between, the state is "lost", and the executor takes the result for an exception.
    """

    def __init__(self, client: Any) -> None:  # noqa: ANN401 (an extra)
        self._client = client

    def submit(self, task: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a task; a lost worker's tasks run again on another."""
        task_future = self._client.submit(task, *args, retries=RETRIES, pure=False, **kwargs)
        future: Future[Any] = Future()

        def cancel(future: Future[Any]) -> None:  # it keeps `task_future`: Dask drops unused tasks
            if future.cancelled():
                task_future.cancel()

        future.add_done_callback(cancel)
        task_future.add_done_callback(lambda finished: _pass_on(finished, future))
        return future


def _pass_on(task_future: Any, future: Future[Any]) -> None:  # noqa: ANN401 (Dask's future)
    """Give the outcome of Dask's future to one of `concurrent.futures`."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(task_future.result())
    except CancelledError as error:
        future.set_exception(ClusterError(f"the cluster cancelled a chunk: {error}"))
    except BaseException as error:  # noqa: BLE001 (the waiting thread raises it)
        future.set_exception(error)


def _version() -> str:
    return __version__


def _require_same(versions: dict[str, str]) -> None:
    others = {where: version for where, version in versions.items() if version != __version__}
    if others:
        where, version = next(iter(others.items()))
        raise ClusterError(
            f"the worker at {where} has ggufkit {version}, but this machine has {__version__}",
            remedy="Install the same version everywhere, so that all write the same bytes",
        )
