"""Encrypted connections: whose certificates count, directly and through a proxy."""

from __future__ import annotations

import os
import select
import shutil
import socket
import subprocess
import threading

import pytest

from ggufkit.errors import RemoteError
from ggufkit.remote.connections import CA_BUNDLES, POOL
from ggufkit.remote.remote_file import RemoteFile
from ranged_server import Served

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl, which makes a certificate, is not installed"
)
DATA = bytes(range(256)) * 40


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate of this machine with its key, and one alone for readers."""
    folder = tmp_path_factory.mktemp("tls")
    key, alone = folder / "key.pem", folder / "cert.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    name = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    arguments = [*command.split(), *name, "-keyout", key, "-out", alone]
    subprocess.run(arguments, check=True, capture_output=True)
    both = folder / "both.pem"
    both.write_bytes(key.read_bytes() + alone.read_bytes())
    return both, alone


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch):
    names = [name for name in os.environ if name.lower().endswith("_proxy")]
    for name in (*CA_BUNDLES, *names):
        monkeypatch.delenv(name, raising=False)
    POOL.close()


@pytest.mark.parametrize("name", CA_BUNDLES)
def test_certificates_of_the_environment_count(certificate, name, monkeypatch):
    both, alone = certificate
    monkeypatch.setenv(name, str(alone))
    with Served({"/f": DATA}, certificate=str(both)) as server:
        file = RemoteFile(server.url("/f"), first_bytes=100)
        assert bytes(file.read(500, 9)) == DATA[500:509]
        assert server.connections == 1


def test_an_unknown_certificate_is_refused_at_once(certificate):
    with Served({"/f": DATA}, certificate=str(certificate[0])) as server:
        with pytest.raises(RemoteError, match=r"of 127\.0\.0\.1 is not valid") as caught:
            RemoteFile(server.url("/f")).load(1)
        assert "SSL_CERT_FILE" in caught.value.remedy
        assert not server.requests


def test_certificates_that_cannot_be_read_are_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(RemoteError, match=r"certificates in .*none\.pem cannot be read"):
        RemoteFile("https://127.0.0.1:9/f").load(1)


def test_a_proxy_passes_encrypted_connections_on(certificate, monkeypatch):
    both, alone = certificate
    monkeypatch.setenv("SSL_CERT_FILE", str(alone))
    with Served({"/f": DATA}, certificate=str(both)) as server, tunnel() as (address, requests):
        monkeypatch.setenv("https_proxy", address)
        file = RemoteFile(server.url("/f"), first_bytes=100)
        assert bytes(file.read(500, 9)) == DATA[500:509]
        assert requests == [f"CONNECT {server.url('').removeprefix('https://')} HTTP/1."]


class tunnel:  # noqa: N801 (used like a function)
    """A proxy for one encrypted connection; it notes what it was asked for."""

    def __enter__(self):
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._requests = []
        self._thread = threading.Thread(target=self._pass_on)
        self._thread.start()
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}", self._requests

    def __exit__(self, *_):
        POOL.close()
        self._thread.join()
        self._socket.close()

    def _pass_on(self):
        near, _ = self._socket.accept()
        line = near.recv(4096).decode().partition("\r\n")[0]
        self._requests.append(line[:-1])
        host, port = line.split()[1].split(":")
        with near, socket.create_connection((host, int(port))) as far:
            near.sendall(b"HTTP/1.1 200 ok\r\n\r\n")
            while True:
                ready, _, _ = select.select([near, far], [], [], 5)
                for socket_ready in ready:
                    data = socket_ready.recv(1 << 16)
                    if not data:
                        return
                    (far if socket_ready is near else near).sendall(data)
                if not ready:
                    return
