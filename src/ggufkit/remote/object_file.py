"""A file in an object store: S3, Google Cloud Storage or Azure, read through obstore.

Keys, regions and endpoints come from the environment and the files that each store's own tools
read. obstore was chosen by measurement: its ranged reads were the fastest of all clients tried. For
http(s) it is not used, because it hides redirects and statuses.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NoReturn

from ggufkit.errors import (
    MissingExtraError,
    RemoteDeniedError,
    RemoteError,
    RemoteMissingError,
)
from ggufkit.remote import limits
from ggufkit.remote.range_file import ByteRange
from ggufkit.remote.remote_file import wrong_range
from ggufkit.remote.server_file import FileState, ServerFile, Write, reopened
from ggufkit.remote.url import STORES, UrlPath, redacted
from ggufkit.system.cancellation import check_cancelled

ENDPOINTS: Final = (
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT",
    "AZURE_STORAGE_ENDPOINT",
    "AZURE_ENDPOINT",
)
MAX_MESSAGE: Final = 2000  # characters of an error of obstore, which holds what the store sent
_TIMES: Final[Any] = {"connect_timeout": f"{limits.CONNECT_SECONDS:.0f}s", "timeout": "300s"}


class ObjectFile(ServerFile):
    """A file in an object store, named as `s3://bucket/path`."""

    def __init__(self, url: str, *, first_bytes: int = limits.FIRST_BYTES) -> None:
        """Name the file; MissingExtraError without obstore, RemoteError for a wrong name."""
        self.url = url
        super().__init__(UrlPath(redacted(url)), first_bytes)
        folder, slash, self._name = url.rpartition("/")
        if not slash or folder.endswith("/") or not self._name:
            raise RemoteError(f"{url} names no file", remedy="Write BUCKET/PATH after the scheme")
        self._store = _store(folder)

    def __reduce__(self) -> tuple[Callable[..., ServerFile], tuple[object, ...]]:
        """Pickle the URL, and the state that the file must still have."""
        return _reopened, (self.url, self.state)

    def read_first(self) -> tuple[FileState, bytes]:
        """Return the state and the beginning of the file."""
        answer = self._get((0, self.first_bytes))
        if answer is None:  # an empty file has no ranges
            state = _state_of(self._request("head"))
            if state.nbytes:
                raise wrong_range(self.path)
            return state, b""
        state = _state_of(answer.meta)
        chunks = self._chunks(answer, min(self.first_bytes, state.nbytes))
        return state, b"".join(map(bytes, chunks))

    def read_to(self, requested: ByteRange, write: Write) -> None:
        """Give a range to `write`; the store tries again by itself."""
        answer = self._get((requested.offset, sum(requested)), self.state.etag or None)
        if answer is None or _state_of(answer.meta) != self.state:
            raise self.changed()
        position = requested.offset
        for chunk in self._chunks(answer, requested.nbytes):
            check_cancelled()
            write(position, chunk)
            position += len(chunk)

    def _chunks(self, answer: Any, nbytes: int) -> Iterator[memoryview]:  # noqa: ANN401 (obstore's)
        """Yield the body of an answer; RemoteError if it does not have exactly `nbytes` bytes."""
        from obstore import exceptions  # noqa: PLC0415 (an extra)

        chunks = iter(answer.stream(min_chunk_size=limits.BUFFER_BYTES))
        while True:
            try:
                chunk = memoryview(next(chunks, b""))
            except exceptions.BaseError as error:
                self._refuse(error)
            if len(chunk) > nbytes:
                raise wrong_range(self.path)
            if not chunk:
                break
            yield chunk
            nbytes -= len(chunk)
        if nbytes:
            raise RemoteError(f"{self.path}: the store sent too little", remedy="Try again")

    def _get(self, span: tuple[int, int], etag: str | None = None) -> Any:  # noqa: ANN401
        """Return obstore's answer to a request; None if the range does not exist."""
        return self._request(
            "get", options={"range": span, "if_match": etag} if etag else {"range": span}
        )

    def _request(self, verb: str, **options: Any) -> Any:  # noqa: ANN401
        """Call a function of obstore; None if a range does not exist."""
        import obstore  # noqa: PLC0415 (an extra)
        from obstore import exceptions  # noqa: PLC0415 (an extra)

        try:
            return getattr(obstore, verb)(self._store, self._name, **options)
        except exceptions.PreconditionError:
            raise self.changed() from None
        except (FileNotFoundError, exceptions.NotFoundError) as error:
            raise RemoteMissingError(
                f"{self.path} does not exist", remedy="Check bucket and path for typing errors"
            ) from error
        except exceptions.BaseError as error:
            message = str(error)[:MAX_MESSAGE]
            if options and ("416" in message or "InvalidRange" in message):
                return None
            self._refuse(error)

    def _refuse(self, error: Exception) -> NoReturn:
        message = str(error)[:MAX_MESSAGE]
        text = message.partition("\n")[0]
        is_denied = any(word in message for word in ("401", "403", "Unauth", "Permission"))
        remedy = f"Set {STORES[self.url.partition(':')[0].lower()]}"
        kind = RemoteDeniedError if is_denied else RemoteError
        raise kind(f"{self.path} cannot be read: {text}", remedy=remedy) from error


def _store(folder: str) -> Any:  # noqa: ANN401 (obstore's)
    try:
        from obstore import exceptions, store  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise MissingExtraError(
            "object stores need obstore", remedy="pip install 'ggufkit[remote]'"
        ) from error
    retry: Any = {
        "max_retries": limits.TRIES - 1,
        "retry_timeout": dt.timedelta(seconds=limits.LONGEST_RETRY_AFTER),
    }
    try:
        return store.from_url(folder, client_options=_client(), retry_config=retry)
    except (exceptions.BaseError, ValueError) as error:
        text = str(error).partition("\n")[0]
        raise RemoteError(f"{redacted(folder)} cannot be opened: {text}") from error


def _client() -> Any:  # noqa: ANN401 (obstore's)
    """Return the time limits; without encryption only where the user's endpoint has none."""
    is_plain = any(os.environ.get(name, "").startswith("http://") for name in ENDPOINTS)
    return {**_TIMES, "allow_http": True} if is_plain else _TIMES


def _state_of(meta: Any) -> FileState:  # noqa: ANN401 (obstore's)
    return FileState(meta["size"], meta["e_tag"] or "", str(meta["last_modified"]))


def _reopened(url: str, state: FileState) -> ServerFile:
    return reopened(partial(ObjectFile, url, first_bytes=1), state)
