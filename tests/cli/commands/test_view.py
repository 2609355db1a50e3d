from __future__ import annotations

import os
import queue
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from types import SimpleNamespace

import numpy as np
import pytest

import ggufkit as api
from ggufkit.view import server
from shell import ggufkit

URL = re.compile(r"http://127\.0\.0\.1:\d+/[\w-]{32}/\n")


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "m.gguf"
    api.save(path, {"a": np.zeros((2, 32), np.float32)}, {"general.architecture": "llama"})
    return path


@pytest.fixture
def served(monkeypatch):
    """Let the command end at once; collect what it would serve."""
    found = []

    def serve(models, address, *, opens_browser, started):
        started(address.url)
        found.append(([shown.name for shown in models], address, opens_browser))

    monkeypatch.setattr("ggufkit.cli.commands.view.serve", serve)
    return found


def test_the_address_is_printed_and_a_browser_opened(path, served):
    found = ggufkit("view", path)
    assert URL.match(found.out)
    assert "Ctrl-C" in found.out
    assert found.err == ""
    ((names, _, opens),) = served
    assert (names, opens) == ([str(path)], True)


def test_several_files_are_shown_on_one_page(path, served):
    assert ggufkit("view", path, path, "--no-browser").code == 0
    assert (served[0][0], served[0][2]) == ([str(path)] * 2, False)


def test_an_address_for_others_gets_a_warning(path, served):
    found = ggufkit("view", path, "--host", "0.0.0.0")  # noqa: S104 (closed again at once)
    assert "others on the network can reach this page" in found.err


@pytest.mark.parametrize("host", ["256.256.256.256", "no.such.host.invalid"])
def test_a_host_that_is_not_ours_is_an_error(path, host):
    found = ggufkit("view", path, "--no-browser", "--host", host)
    assert found.code == 1
    assert f"cannot listen on {host}" in found.err


def test_a_port_that_is_taken_is_an_error(path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = ggufkit("view", path, "--no-browser", "--port", port)
    assert (found.code, "another port" in found.err) == (1, True)


@pytest.mark.parametrize("words", [(), ("--port", "70000"), ("--port", "x")])
def test_wrong_usage_is_exit_code_2(path, words):
    assert ggufkit("view", *([path] if words else []), *words).code == 2


def test_a_missing_file_is_an_error(tmp_path):
    assert ggufkit("view", tmp_path / "gone.gguf").code == 1


def test_a_missing_extra_is_named(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    found = ggufkit("view", path)
    assert found.code == 1
    assert "pip install 'ggufkit[view]'" in found.err


def test_only_view_imports_the_server():
    code = (
        "import ggufkit.cli.app, sys; print('uvicorn' in sys.modules, 'starlette' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.skipif(os.name == "nt", reason="no signals to send")
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_server_without_a_traceback(path, sent, code):
    command = [sys.executable, "-m", "ggufkit", "view", str(path), "--no-browser"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        url = process.stdout.readline()
        assert URL.fullmatch(url)
        with urllib.request.urlopen(url.strip()) as page:  # noqa: S310 (our own server)
            assert b"ggufkit view" in page.read()
        process.send_signal(sent)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (code, "")


def test_a_browser_is_opened_with_the_address(monkeypatch):
    opened = queue.Queue()
    monkeypatch.setattr("webbrowser.open", opened.put)
    monkeypatch.setattr(server, "server_of", lambda *_: SimpleNamespace(run=lambda **_: None))
    address = server.bound()
    server.serve([], address)
    assert opened.get(timeout=60) == address.url
    address.socket.close()
