"""The browser's command line opens the page once, for nobody else, and holds no token."""

from __future__ import annotations

import os
import sys

import pytest

from ggufkit.view.serving import guard
from ggufkit.view.serving.guard import OPENING_PATH, OpeningCode, owner_of

SCOPE = {"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2)}


@pytest.fixture
def server(run_server, model_page):
    with run_server(model_page({})) as running:
        yield running


def test_the_code_leads_to_the_page_once(server):
    path = f"{OPENING_PATH}{server.address.code.text}"
    assert server.address.opening_url.endswith(path)
    first, second = (server.ask(path, raw=True) for _ in range(2))
    assert (first.status, first.headers["location"]) == (303, f"/{server.address.token}/")
    assert second.status == 403
    assert b"another user" in second.body


def test_the_command_line_of_a_browser_holds_no_token(server):
    assert server.address.token not in server.address.opening_url


@pytest.mark.parametrize("method", ["HEAD", "POST"])
def test_only_opening_takes_the_code(server, method):
    path = f"{OPENING_PATH}{server.address.code.text}"
    assert server.ask(path, raw=True, method=method).status == 403
    assert server.ask(path, raw=True).status == 303


def test_a_wrong_code_opens_nothing(server):
    assert server.ask(f"{OPENING_PATH}x", raw=True).status == 403
    assert server.ask(OPENING_PATH, raw=True).status == 403


def test_another_page_cannot_take_the_code(server):
    path = f"{OPENING_PATH}{server.address.code.text}"
    headers = {"Sec-Fetch-Site": "cross-site"}
    assert server.ask(path, raw=True, headers=headers).status == 403
    assert server.ask(path, raw=True).status == 303


def test_the_code_expires(monkeypatch):
    monkeypatch.setattr(guard, "VALID_SECONDS", -1)
    assert not OpeningCode("a").take("a", SCOPE)


@pytest.mark.skipif(os.name == "nt", reason="no user ids")
def test_another_user_cannot_take_the_code(monkeypatch):
    code = OpeningCode("a")
    monkeypatch.setattr(guard, "owner_of", lambda _: os.getuid() + 1)
    assert not code.take("a", SCOPE)
    monkeypatch.setattr(guard, "owner_of", lambda _: os.getuid())
    assert code.take("a", SCOPE)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the table of Linux")
def test_the_owner_of_a_connection_is_known(server, monkeypatch):
    owners = []
    monkeypatch.setattr(guard, "owner_of", lambda scope: owners.append(owner_of(scope)))
    server.ask(f"{OPENING_PATH}{server.address.code.text}", raw=True)
    assert owners == [os.getuid()]
    assert owner_of(SCOPE) is None
