"""A real web server: nginx, where it is installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time

import numpy as np
import pytest

import ggufkit as api
from ggufkit.errors import FormatError
from ggufkit.remote.remote_file import RemoteFile

NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
CONFIG = """
{user} daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/errors;
events {{}}
http {{
    client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
    uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
    log_format plain '$request_uri $status $body_bytes_sent $http_range';
    access_log {folder}/log plain;
    server {{
        listen 127.0.0.1:{port}; root {folder}/files;
        location /whole/ {{ alias {folder}/files/; max_ranges 0; }}
        location /moved/ {{ rewrite ^/moved/(.*)$ /$1 redirect; }}
        location /private/ {{
            alias {folder}/files/; auth_basic x; auth_basic_user_file {folder}/users;
        }}
    }}
}}
"""


@pytest.fixture
def site(tmp_path):
    """Serve a folder; return it and its address."""
    (tmp_path / "files").mkdir()
    (tmp_path / "users").write_text("me:{PLAIN}hush\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    user = "user root;" if os.geteuid() == 0 else ""
    config = tmp_path / "conf"
    config.write_text(CONFIG.format(folder=tmp_path, port=port, user=user))
    log = (tmp_path / "said").open("wb")
    with log, subprocess.Popen([NGINX, "-e", tmp_path / "errors", "-c", config], stderr=log) as run:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield tmp_path, f"http://127.0.0.1:{port}"
        run.terminate()


@pytest.fixture
def model(site):
    path = site[0] / "files" / "m.gguf"
    tensors = {f"t{n}": np.full((1 << 18,), n, "f4") for n in range(4)}
    api.save(path, tensors, {"general.architecture": "llama"})
    return path


def requests(folder, count):
    """Return the log, which nginx writes after each answer, when it has `count` lines."""
    for _ in range(100):
        lines = (folder / "log").read_text().splitlines()
        if len(lines) >= count:
            break
        time.sleep(0.02)
    return [line.split() for line in lines]


def test_reads_ranges_and_follows_redirects(site, model):
    folder, address = site
    for url in (f"{address}/m.gguf", f"{address}/moved/m.gguf"):
        with api.open(url) as far, api.open(model) as near:
            assert far.metadata == near.metadata
            assert (far.tensors["t2"].numpy() == 2).all()
            assert far.tensors["t3"][:10].numpy().tolist() == [3.0] * 10
    log = requests(folder, 7)
    assert [(status, int(size)) for _, status, size, _ in log if status != "302"] == [
        ("206", 2 << 20),
        ("206", 1 << 20),
        ("206", 40),
    ] * 2
    assert [line[0] for line in log].count("/moved/m.gguf") == 1


def test_copies_the_same_bytes(site, model, tmp_path):
    api.write(api.open(f"{site[1]}/m.gguf"), tmp_path / "out.gguf")
    assert (tmp_path / "out.gguf").read_bytes() == model.read_bytes()


def test_a_file_that_is_replaced_is_noticed(site, model):
    file = RemoteFile(f"{site[1]}/m.gguf")
    assert file.nbytes == model.stat().st_size
    data = model.read_bytes()
    model.write_bytes(data[::-1])
    os.utime(model, (1, 1))
    with pytest.raises(FormatError, match="changed while it was in use"):
        file.read((2 << 20) + 5, 10)


def test_a_server_set_to_whole_files_is_told(site, model):
    with pytest.raises(api.errors.NoRangesError):
        api.open(f"{site[1]}/whole/m.gguf")


def test_logins_in_the_url(site, model):
    with pytest.raises(api.errors.RemoteDeniedError, match="401"):
        api.open(f"{site[1]}/private/m.gguf")
    url = site[1].replace("//", "//me:hush@")
    assert len(api.open(f"{url}/private/m.gguf").tensors) == 4
