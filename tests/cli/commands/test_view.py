from __future__ import annotations

import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from types import SimpleNamespace
from urllib.parse import urlsplit

import numpy as np
import pytest

import ggufkit as api
from ggufkit.view.serving import server
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
    calls = []

    def serve(models, address, *, edits, opens_browser, started):
        started(address.url)
        calls.append(([model.name for model in models], edits, opens_browser))

    monkeypatch.setattr("ggufkit.cli.commands.view.serve", serve)
    return calls


def test_the_address_is_printed_and_a_browser_opened(path, served):
    result = ggufkit("view", path)
    assert URL.match(result.out)
    assert "Ctrl-C" in result.out
    assert result.err == ""
    assert served == [([str(path)], False, True)]


def test_several_files_are_shown_on_one_page(path, served):
    assert ggufkit("view", path, path, "--no-browser").code == 0
    assert (served[0][0], served[0][2]) == ([str(path)] * 2, False)


@pytest.fixture
def folder(path, tmp_path):
    """A folder with a file, a set of shards, what is no model, and links."""
    folder = tmp_path / "quants"
    folder.mkdir()
    rows = np.zeros((2, 32), np.float32)
    api.save(folder / "b.gguf", {"a": rows}, {"general.architecture": "llama"})
    api.model({"a": rows, "c": rows}).write(folder / "a.gguf", shard_tensors=1)
    (folder / "latest.gguf").symlink_to("b.gguf")
    (folder / "gone.gguf").symlink_to("nowhere.gguf")
    (folder / "loop.gguf").symlink_to("loop.gguf")
    (folder / "folder.gguf").mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def shown(served):
    """Return the names of the models that the command would serve."""
    return [name.rsplit("/", 1)[-1] for name in served[0][0]]


@pytest.mark.skipif(os.name == "nt", reason="links need a right")
def test_a_folder_opens_each_of_its_models_once(folder, served):
    result = ggufkit("view", folder, "--no-browser")
    assert (result.code, result.err) == (0, "")
    assert shown(served) == ["a-00001-of-00002.gguf", "b.gguf"]


@pytest.mark.skipif(os.name == "nt", reason="links need a right")
def test_a_broken_file_of_a_folder_is_left_out_with_a_note(folder, served):
    (folder / "z.gguf").write_bytes(b"GGUF\3\0\0\0")
    result = ggufkit("view", folder)
    assert shown(served) == ["a-00001-of-00002.gguf", "b.gguf"]
    assert re.search("note: not shown: .*z.gguf", result.err)


def test_a_folder_without_a_model_that_opens_is_an_error(tmp_path):
    assert "holds no GGUF model" in ggufkit("view", tmp_path).err
    (tmp_path / "z.gguf").write_bytes(b"GGUF")
    result = ggufkit("view", tmp_path)
    assert result.code == 1
    assert "no model in the folder" in result.err


def test_a_folder_of_very_many_models_is_refused(path, tmp_path):
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(101):
        os.link(path, folder / f"{number}.gguf")
    result = ggufkit("view", folder)
    assert result.code == 1
    assert "holds 101 models, more than 100\n  Name the files" in result.err


def test_a_folder_that_is_a_checkpoint_is_converted(tmp_path, served):
    (tmp_path / "config.json").write_text('{"architectures": ["NoSuchModel"]}')
    result = ggufkit("view", tmp_path)
    assert (result.code, "safetensors" in result.err) == (1, True)


def quality(name, nbytes, divergence):
    kld = {"mean": {"value": divergence, "error": divergence / 10}}
    return {
        "name": f"/home/me/{name}",
        "nbytes": nbytes,
        "perplexity": {"value": 8.5, "error": None},
        "divergence": {"kld": kld},
    }


@pytest.fixture
def qualities(monkeypatch):
    """Collect what the page would know of the quality of each model."""
    known = []
    monkeypatch.setattr(
        "ggufkit.cli.commands.view.serve",
        lambda models, _address, **_: known.extend(model.quality for model in models),
    )
    return known


@pytest.mark.skipif(os.name == "nt", reason="links need a right")
def test_results_of_eval_in_a_folder_belong_to_models_of_their_name_and_size(folder, qualities):
    size = (folder / "b.gguf").stat().st_size
    rows = [quality("a-00001-of-00002.gguf", 1, 0.5), quality("b.gguf", size, 0.25)]
    (folder / "wiki.json").write_text(json.dumps({"base": None, "models": rows}))
    os.utime(folder / "wiki.json", (1, 1))
    (folder / "huge.json").write_bytes(b" " * (2 << 20))
    (folder / "broken.json").symlink_to("nowhere.json")
    assert ggufkit("view", folder).err == ""
    other, of_file = qualities
    assert other is None  # measured before the file was made again
    assert (of_file["divergence"], of_file["divergence_error"]) == (0.25, 0.025)
    assert of_file["file"] == "wiki.json"
    rows[1]["divergence"] = None
    (folder / "code.json").write_text(json.dumps({"base": rows[1], "models": []}))
    qualities.clear()
    ggufkit("view", folder)
    assert (qualities[1]["file"], qualities[1]["divergence"]) == ("code.json", 0.0)  # the newest


def test_a_result_of_eval_is_named_by_an_option(path, tmp_path, qualities):
    result = tmp_path / "quality.txt"
    result.write_text(json.dumps({"base": None, "models": [quality("m.gguf", 1, 0.5)]}))
    assert "is about other models" in ggufkit("view", path, "--eval", result).err
    assert qualities == [None]
    rows = [quality("m.gguf", path.stat().st_size, 0.5)]
    result.write_text(json.dumps({"base": None, "models": rows}))
    assert ggufkit("view", path, "--eval", result).err == ""
    assert qualities[1]["divergence"] == 0.5
    result.write_text("{}")
    wrong = ggufkit("view", path, "--eval", result)
    assert (wrong.code, "not a result of" in wrong.err) == (1, True)


def test_an_address_for_others_gets_a_warning(path, served):
    result = ggufkit("view", path, "--host", "0.0.0.0")  # noqa: S104 (closed again at once)
    assert "others on the network can reach this page" in result.err


def test_files_are_edited_only_with_the_option_and_only_from_this_machine(path, served):
    assert ggufkit("view", path, "--edit").code == 0
    assert served == [([str(path)], True, True)]
    for host in ("0.0.0.0", "::", "127.0.0.2"):  # noqa: S104 (refused)
        result = ggufkit("view", path, "--edit", "--host", host)
        assert result.code == 2
        assert "this machine only" in result.err
    assert len(served) == 1


@pytest.mark.parametrize("host", ["256.256.256.256", "no.such.host.invalid"])
def test_a_host_that_is_not_ours_is_an_error(path, host):
    result = ggufkit("view", path, "--no-browser", "--host", host)
    assert result.code == 1
    assert f"cannot listen on {host}" in result.err


def test_a_port_that_is_taken_is_an_error(path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = ggufkit("view", path, "--no-browser", "--port", port)
    assert (result.code, "another port" in result.err) == (1, True)


@pytest.mark.parametrize("words", [(), ("--port", "70000"), ("--port", "x")])
def test_wrong_usage_is_exit_code_2(path, words):
    assert ggufkit("view", *([path] if words else []), *words).code == 2


def test_a_missing_file_is_an_error(tmp_path):
    assert ggufkit("view", tmp_path / "gone.gguf").code == 1


def test_a_missing_extra_is_named(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    result = ggufkit("view", path)
    assert result.code == 1
    assert "pip install 'ggufkit[view]'" in result.err


def test_only_view_imports_the_server():
    code = (
        "import ggufkit.cli.app, sys; print('uvicorn' in sys.modules, 'starlette' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def serving(*words, **options):
    """Start the command; return it, and the address of its page."""
    command = [sys.executable, *words, "--no-browser"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )
    url = process.stdout.readline()
    assert URL.fullmatch(url)
    return process, url.strip()


@pytest.mark.skipif(os.name == "nt", reason="no signals to send")
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_server_without_a_traceback(path, sent, code):
    process, url = serving("-m", "ggufkit", "view", path)
    with process:
        with urllib.request.urlopen(url) as page:  # noqa: S310 (our own server)
            assert b"ggufkit view" in page.read()
        process.send_signal(sent)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in errors


# Work that takes an hour, in a servant or in a thread of the server; `view` says when it has begun.
SLOW = """
import signal, time
from ggufkit.system.sandbox import Servant
from ggufkit.view import page_model, tensor_page

def stop_servant(servant):
    process = start_servant(servant)
    process.send_signal(signal.SIGSTOP)
    print("works", flush=True)
    return process

def sleep(*_):
    print("works", flush=True)
    time.sleep(3600)

page_model.MAX_SECONDS = 3600
start_servant, Servant._running = Servant._running, stop_servant
tensor_page.statistics = sleep
from ggufkit.cli import main
main()
"""


@pytest.mark.skipif(os.name == "nt", reason="no signals to send")
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("work", ["split", "statistics?tensor=0"])
def test_a_signal_stops_the_server_while_it_works(path, tmp_path, work, sent, code):
    (tmp_path / "temporary").mkdir()
    environment = os.environ | {"TMPDIR": str(tmp_path / "temporary")}
    process, url = serving("-c", SLOW, "view", path, env=environment)
    place = urlsplit(url)
    with process, socket.create_connection((place.hostname, place.port)) as client:
        body = b'{"text": "a"}' if work == "split" else b""
        head = (
            f"{'POST' if body else 'GET'} {place.path}api/{work} HTTP/1.1\r\nHost: {place.netloc}"
        )
        length = f"Content-Type: application/json\r\nContent-Length: {len(body)}"
        client.sendall(f"{head}\r\n{length}\r\n\r\n".encode() + body)
        assert [process.stdout.readline() for _ in range(2)][1] == "works\n"
        process.send_signal(sent)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in errors
    assert not list((tmp_path / "temporary").iterdir())


def test_a_browser_is_opened_without_the_token(monkeypatch):
    opened = queue.Queue()
    monkeypatch.setattr("webbrowser.open", opened.put)
    monkeypatch.setattr(
        server, "server_of", lambda *_: SimpleNamespace(run=lambda **_: None, is_working=False)
    )
    address = server.bound()
    server.serve([], address)
    assert opened.get(timeout=60) == address.opening_url
    address.socket.close()
