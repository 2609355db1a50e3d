"""Fixtures for all tests; those in `REAL` come from outside this repository."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

import real

if TYPE_CHECKING:
    import ctypes
    from pathlib import Path

# `make test` names a build of the native core that has one more instruction set, sixteen emulated
# lanes, which nobody is to install. Tests in this process use that build.
if "GGUFKIT_WIDE" in os.environ:
    spec = importlib.util.spec_from_file_location("ggufkit._native", os.environ["GGUFKIT_WIDE"])
    sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[spec.name])

# A shell has what it runs in the background ignore Ctrl-C, and so would all that tests run.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests never judge time: a busy machine makes any example slow. CI tries the same examples each
# time, so that it fails for what changed; everywhere else they are new ones.
settings.register_profile(
    "ggufkit",
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ggufkit")

REAL = {
    *("smollm2", "gemma3", "vocabularies", "ggml", "ggml_source"),
    *("llama_cpp", "llama_cpp_loader"),
}
# Tests in modules that import these compare with what they load.
ORACLES = {
    *("llama_loads", "llama_memory", "llama_prune", "llama_quantize", "llama_split"),
    *("oracle", "real", "speaking"),
}


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Mark the tests that need something real, so that `-m "not real"` runs anywhere."""
    for item in items:
        asks = REAL.intersection(getattr(item, "fixturenames", ()))
        if asks or ORACLES & vars(item.module).keys():
            item.add_marker(pytest.mark.real)


class FailuresAtOnce:
    """Shows each failure when it happens: a run that is cut off prints no summary."""

    def __init__(self, config: pytest.Config) -> None:
        self._plugins = config.pluginmanager

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            terminal = self._plugins.get_plugin("terminalreporter")
            terminal.write_line(f"\nFAILED {report.nodeid}\n{report.longreprtext[-2000:]}")


def pytest_configure(config: pytest.Config) -> None:
    """Show failures at once in CI, from the process that all workers report to."""
    if "CI" in os.environ and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailuresAtOnce(config))


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct as Q4_1."""
    return real.smollm2()


@pytest.fixture(scope="session")
def gemma3() -> Path:
    """Gemma 3 270M as Q4_K_M."""
    return real.gemma3()


@pytest.fixture(scope="session")
def vocabularies() -> list[Path]:
    """llama.cpp's own files of a vocabulary and no tensors."""
    return real.vocabularies()


@pytest.fixture(scope="session")
def ggml() -> ctypes.CDLL:
    """ggml's base library."""
    return real.ggml()


@pytest.fixture(scope="session")
def ggml_source() -> Path:
    """The source of ggml's blocks and their decoders."""
    return real.ggml_source()


@pytest.fixture(scope="session")
def llama_cpp_loader() -> Path:
    """The source with which llama.cpp loads models."""
    return real.llama_cpp_source() / "src"


@pytest.fixture(scope="session")
def llama_cpp() -> ctypes.CDLL:
    """The whole of llama.cpp."""
    return real.llama_cpp()
