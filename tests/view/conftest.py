"""Models as the page shows them, and a server that runs in this process."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import threading
import time
from dataclasses import dataclass

import pytest

import ggufkit
from browser_tab import DESK, Tab
from ggufkit.view.edit_page import Editor
from ggufkit.view.page_model import PageModel
from ggufkit.view.serving.server import Address, bound, server_of


def page_of(path, name=None):
    return PageModel(str(name or path), ggufkit.open(path))


@pytest.fixture(scope="session")
def smollm2_page(smollm2):
    """SmolLM2 as the page shows it."""
    return page_of(smollm2)


@pytest.fixture(scope="session")
def gemma3_page(gemma3):
    """Gemma 3 as the page shows it."""
    return page_of(gemma3)


@pytest.fixture
def model_page(tmp_path):
    """Make a function that writes a small model and shows it."""

    def make(tensors, metadata=None, name="small.gguf"):
        path = tmp_path / name
        ggufkit.model(tensors, metadata).write(path)
        return page_of(path)

    return make


@dataclass
class Answer:
    """What the server answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


@dataclass
class Running:
    """A server that runs, and how to ask it."""

    address: Address

    def ask(self, path, *, method="GET", headers=None, body=None, raw=False):
        """Ask for a path below the token, or with `raw` for the path as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.address.port, timeout=60)
        with contextlib.closing(connection):
            place = path if raw else f"/{self.address.token}/{path}"
            connection.request(method, place, body, headers or {})
            response = connection.getresponse()
            headers_by_name = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, headers_by_name, response.read())

    def post(self, path, document, headers=None):
        """Send JSON to a path below the token."""
        body = json.dumps(document).encode()
        headers = {"Content-Type": "application/json"} | (headers or {})
        return self.ask(path, method="POST", headers=headers, body=body)


@contextlib.contextmanager
def running(*models, edits=False):
    """Run a server for models on loopback, which with `edits` may change their files."""
    address, pages = bound(), list(models)
    server = server_of(pages, address, Editor(pages) if edits else None)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [address.socket]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.005)
        yield Running(address)
    finally:
        server.should_exit = True
        thread.join()
        address.socket.close()


@pytest.fixture(scope="session")
def run_server():
    """The context manager that runs a server."""
    return running


@pytest.fixture(scope="session")
def browser():
    """Chromium: Debian's if it is there, else Playwright's own."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="make test-browser installs it")
    with sync_api.sync_playwright() as playwright:
        program = shutil.which("chromium") or shutil.which("chromium-browser")
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def tab(browser, server):
    """A tab on a desk; nothing may go wrong in it."""
    context = browser.new_context(viewport=DESK)
    new_tab = Tab(context, server)
    yield new_tab
    context.close()
    assert new_tab.wrong == []
