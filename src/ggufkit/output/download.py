"""Download a whole file from a server that sends no ranges, so that it can be opened here."""

from __future__ import annotations

import shutil
from pathlib import Path

from ggufkit.errors import DiskSpaceError, RemoteError
from ggufkit.format.magic import HEAD_BYTES, identify, is_model
from ggufkit.remote.connections import pour
from ggufkit.remote.get import AgainError, Answer, get, patiently, require_success
from ggufkit.remote.sinks import DescriptorSink
from ggufkit.remote.url import Url
from ggufkit.system.descriptors import AnyPath, as_path, write_at
from ggufkit.system.staging import Staging, staged
from ggufkit.system.threads import Progress


def download(url: str, path: AnyPath, *, progress: Progress | None = None) -> Path:
    """Download the model at `url` to `path` in one piece, and return its path.

    The file appears whole or not at all. Raises NotGGUFError for what is not a model, before most
    of it came; RemoteError and OutputError as `open` and `write`.
    """
    target = as_path(path)
    staged(target, lambda stage: patiently(lambda: _download(Url.parse(url), stage, progress)))
    return target


def _download(url: Url, stage: Staging, progress: Progress | None) -> None:
    with get(url) as answer:
        require_success(answer, url)
        nbytes = _length(answer, url)
        free = shutil.disk_usage(stage.path.parent).free
        if free < nbytes:
            raise DiskSpaceError(
                f"{stage.path.parent} has {free:,} bytes free, and {nbytes:,} are needed",
                remedy="Free some space, or write elsewhere; nothing was written",
            )
        head = answer.response.read(HEAD_BYTES)
        if not is_model(head):
            raise identify(head, nbytes).at(str(url)).exception()
        write_at(stage.descriptor, head, 0)
        done = len(head)
        sink = DescriptorSink(stage.descriptor, 0)
        for count in pour(answer.response, sink, done, nbytes - done):
            done += count
            if progress:
                progress(done, nbytes)
        if done < nbytes:
            raise AgainError(
                RemoteError(f"{url}: the connection ended early", remedy="Check the network")
            )


def _length(answer: Answer, url: Url) -> int:
    length = answer.header("Content-Length")
    if not length.isdigit() or answer.header("Content-Encoding") not in ("", "identity"):
        raise RemoteError(
            f"{url}: the server does not tell the size of the file",
            remedy="Download the file with another program",
        )
    return int(length)
