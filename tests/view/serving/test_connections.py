"""Slow and silent clients do not keep the page from others, over real sockets."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from ggufkit.view.serving import connections, routes

CONNECTIONS = 12
WAIT = 0.2  # seconds
SLOW = {
    "silent": "",
    "in the first line": "GET /{token}/api/mod",
    "in the headers": "GET /{token}/api/models HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n",
    "in the body": "POST /{token}/api/split HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
    "Content-Type: application/json\r\nContent-Length: 99\r\n\r\n{{",
}


@pytest.fixture
def small_limits(monkeypatch):
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", CONNECTIONS)
    monkeypatch.setattr(connections, "WAIT_SECONDS", WAIT)
    monkeypatch.setattr(routes, "BODY_SECONDS", WAIT)


@pytest.fixture
def server(small_limits, run_server, model_page):
    with run_server(model_page({"a": np.zeros((4096, 512), np.float32)})) as running:
        yield running


@contextlib.contextmanager
def clients(server, count, text):
    """Open connections that have sent `text`."""
    address = server.address
    data = text.format(token=address.token, port=address.port).encode()
    with contextlib.ExitStack() as opened:
        sockets = []
        for _ in range(count):
            client = socket.create_connection(("127.0.0.1", address.port), timeout=60)
            sockets.append(opened.enter_context(client))
            client.sendall(data)
        yield sockets


def received(client):
    """Return all that the server sends until it closes the connection."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := client.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize("text", SLOW.values(), ids=SLOW)
def test_many_slow_clients_leave_room_for_others(server, text):
    with clients(server, 10 * CONNECTIONS, text):
        for path in ("", "api/models", "api/overview"):
            assert server.ask(path).status == 200


@pytest.mark.parametrize("text", SLOW.values(), ids=SLOW)
def test_a_client_that_sends_no_whole_request_is_closed(server, text):
    with clients(server, 1, text) as (client,):
        answer = received(client)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 408")


def test_a_client_that_sends_a_byte_at_a_time_is_closed(server):
    with clients(server, 1, "GET /") as (client,), pytest.raises(ConnectionError):
        drip(client)


def drip(client):
    """Send single bytes for much longer than the server waits."""
    for _ in range(200):
        client.sendall(b"a")
        time.sleep(WAIT / 10)


def test_a_client_that_does_not_take_its_answers_is_closed(server):
    line = "GET /{token}/api/tile?level=0&tensor=0 HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"
    with clients(server, 1, line * 200) as (client,):
        time.sleep(10 * WAIT)
        answer = received(client)
    assert len(answer) < 200 * 4 * 512 * 512


def test_a_request_may_take_longer_than_a_client(server, monkeypatch):
    monkeypatch.setitem(routes.GETS, "models", lambda _: time.sleep(5 * WAIT))
    assert server.ask("api/models").status == 200


FLOOD = """
import socket, sys, time
opened, port = [], int(sys.argv[1])
head = f"GET /token/api/models HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\n".encode()
sent = [b"", b"GET /", head, (head + b"\\r\\n") * 50]
while True:
    for _ in range(200):
        try:
            opened.append(socket.create_connection(("127.0.0.1", port), timeout=1))
            opened[-1].sendall(sent[len(opened) % 4])
        except OSError:
            time.sleep(0.01)
    print(flush=True)
    while len(opened) > 1000:
        opened.pop(0).close()
"""


def status_as_browsers_ask(server, attempts=5):
    """Ask again where the connection was closed before the answer, as browsers do."""
    for _ in range(attempts - 1):
        with contextlib.suppress(ConnectionError):  # RemoteDisconnected too
            return server.ask("api/overview").status
    return server.ask("api/overview").status


def test_a_flood_of_connections_leaves_room_for_others(run_server, model_page):
    with run_server(model_page({"a": np.zeros((64, 64), np.float32)})) as server:
        command = [sys.executable, "-c", FLOOD, str(server.address.port)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as flood:
            try:
                flood.stdout.readline()
                answers = [status_as_browsers_ask(server) for _ in range(30)]
            finally:
                flood.kill()
    assert answers == [200] * 30
