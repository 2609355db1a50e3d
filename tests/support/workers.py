"""A Dask cluster on this machine."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any


def two_workers() -> AbstractContextManager[Any]:
    """Return a scheduler and two workers that are processes of their own.

    All talk over the loopback alone; port 0 is any, so that two clusters can run at once.
    """
    from distributed import LocalCluster

    return LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=50
    )
