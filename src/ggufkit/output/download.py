"""Download a whole file from a server that sends no ranges, so that it can be opened here."""

from __future__ import annotations

from pathlib import Path

from ggufkit.errors import GGUFError
from ggufkit.format.magic import HEAD_BYTES, identify, is_model
from ggufkit.output.execute import output_error
from ggufkit.remote.get import ReadDeadline, RetryableError, get, require_success, with_retries
from ggufkit.remote.remote_file import ended_early, unknown_size
from ggufkit.remote.url import Url, UrlPath
from ggufkit.system.cancellation import check_cancelled
from ggufkit.system.descriptors import AnyPath, as_path, write_at
from ggufkit.system.staging import Staging, require_space, staged
from ggufkit.system.threads import Progress, pool_of, result_of


def download(url: str, path: AnyPath, *, progress: Progress | None = None) -> Path:
    """Download the model at `url` to `path` in one piece, and return its path.

    The file appears whole or not at all. Raises NotGGUFError early if it is not a model;
    RemoteError and OutputError as `open` and `write`.
    """
    target = as_path(path)

    def fill(stage: Staging) -> None:
        with pool_of(1) as pool:  # so that a signal need not wait for the server
            result_of(pool.submit(with_retries, lambda: _download(Url.parse(url), stage, progress)))

    try:
        staged(target, fill)
    except GGUFError:
        raise
    except OSError as error:
        raise output_error(error, target, resume=False) from error
    return target


def _download(url: Url, stage: Staging, progress: Progress | None) -> None:
    with get(url) as answer:
        require_success(answer, url)
        nbytes = answer.content_length
        if nbytes is None or answer.header("Content-Encoding") not in ("", "identity"):
            raise unknown_size(url)
        remedy = "Free some space, or write to another disk; nothing was written"
        require_space(stage.path.parent, nbytes, remedy)
        head = answer.read(HEAD_BYTES)
        if not is_model(head):
            raise identify(head, nbytes).at(UrlPath(str(url))).exception()
        write_at(stage.descriptor, head, 0)
        position = len(head)
        for chunk in answer.chunks(nbytes - position, ReadDeadline()):
            check_cancelled()
            write_at(stage.descriptor, chunk, position)
            position += len(chunk)
            if progress:
                progress(position, nbytes)
        if position < nbytes:
            raise RetryableError(ended_early(url))
