"""Downloads of whole files from servers without ranges."""

from __future__ import annotations

import errno

import pytest

import ggufkit
from ggufkit.errors import DiskSpaceError, NotGGUFError
from ggufkit.output import download
from ranged_server import Served
from small_llama import keys, tensors


@pytest.fixture
def model(tmp_path):
    """A small model, as bytes."""
    return ggufkit.save(tmp_path / "m.gguf", tensors(), keys())[0].read_bytes()


def test_downloads_the_whole_file(model, tmp_path):
    counts = []
    with Served({"/f": model}, ranges=False) as server:
        path = download.download(
            server.url("/f"), tmp_path / "f", progress=lambda *args: counts.append(args)
        )
    assert path.read_bytes() == model
    assert counts[-1] == (len(model), len(model))


def test_a_full_disk_is_told_at_once_with_the_file(model, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(download, "write_at", full)
    with Served({"/f": model}, ranges=False) as server:
        with pytest.raises(DiskSpaceError, match=r"writing .*out: No space left"):
            download.download(server.url("/f"), tmp_path / "out")
        assert len(server.requests) == 1
    assert not (tmp_path / "out").exists()


def test_what_is_no_model_is_not_downloaded(tmp_path):
    with (
        Served({"/f": b"<html>" + bytes(64 << 20)}, ranges=False) as server,
        pytest.raises(NotGGUFError),
    ):
        download.download(server.url("/f"), tmp_path / "out")
    assert server.sent < 32 << 20
