"""A file in an object store: S3, Google Cloud Storage or Azure, read through obstore.

Keys, regions and endpoints come from the environment and the files that each store's own tools
read. obstore was chosen by measurement: its ranged reads were the fastest of all clients tried. For
http(s) it is not used, because it hides redirects and statuses.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable
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
from ggufkit.remote.server_file import FileState, ServerFile, reopened
from ggufkit.remote.sinks import Sink
from ggufkit.remote.url import STORES, UrlPath, shown

ENDPOINTS: Final = (
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT",
    "AZURE_STORAGE_ENDPOINT",
    "AZURE_ENDPOINT",
)
_TIMES: Final[Any] = {"connect_timeout": f"{limits.CONNECT_SECONDS:.0f}s", "timeout": "300s"}


class ObjectFile(ServerFile):
    """A file in an object store, named as `s3://bucket/path`."""

    def __init__(self, url: str, *, first_bytes: int = limits.FIRST_BYTES) -> None:
        """Name the file; MissingExtraError without obstore, RemoteError for a wrong name."""
        self.url = url
        super().__init__(UrlPath(shown(url)), first_bytes)
        folder, slash, self._name = url.rpartition("/")
        if not slash or folder.endswith("/") or not self._name:
            raise RemoteError(f"{url} names no file", remedy="Write BUCKET/PATH after the scheme")
        self._store = _store(folder)

    def __reduce__(self) -> tuple[Callable[..., ServerFile], tuple[object, ...]]:
        """Pickle the URL, and the state that the file must still have."""
        return _reopened, (self.url, self.state)

    def begin(self) -> tuple[FileState, bytes]:
        """Return the state and the beginning of the file."""
        found = self._get((0, self.first_bytes))
        if found is None:  # a range of an empty file does not exist
            found = self._get(None)
        return _state_of(found.meta), bytes(found.bytes())

    def read_to(self, wanted: ByteRange, sink: Sink) -> None:
        """Give a range to `sink`; the store tries again by itself."""
        found = self._get((wanted.offset, sum(wanted)), self.state.etag or None)
        if found is None or _state_of(found.meta) != self.state:
            raise self.changed()
        at = wanted.offset
        for piece in found.stream(min_chunk_size=limits.BUFFER_BYTES):
            data = memoryview(piece)
            while data:
                room = sink.room(at, min(len(data), limits.BUFFER_BYTES))
                count = len(room)
                room[:] = data[:count]
                sink.keep(at, room)
                at, data = at + count, data[count:]
        if at != sum(wanted):
            raise RemoteError(f"{self.path}: the store sent too little", remedy="Try again")

    def _get(self, span: tuple[int, int] | None, etag: str | None = None) -> Any:  # noqa: ANN401
        """Return obstore's answer to a request; None if the range does not exist."""
        import obstore  # noqa: PLC0415 (an extra)
        from obstore import exceptions  # noqa: PLC0415 (an extra)

        options = {"range": span, "if_match": etag}
        given = {key: value for key, value in options.items() if value is not None}
        try:
            return obstore.get(self._store, self._name, options=given)
        except exceptions.PreconditionError:
            raise self.changed() from None
        except (FileNotFoundError, exceptions.NotFoundError) as error:
            raise RemoteMissingError(
                f"{self.path} does not exist", remedy="Check bucket and path for typing errors"
            ) from error
        except exceptions.BaseError as error:
            if span and ("416" in str(error) or "InvalidRange" in str(error)):
                return None
            self._refuse(error)

    def _refuse(self, error: Exception) -> NoReturn:
        text = str(error).partition("\n")[0]
        is_denied = any(word in str(error) for word in ("401", "403", "Unauth", "Permission"))
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
        raise RemoteError(f"{shown(folder)} cannot be opened: {text}") from error


def _client() -> Any:  # noqa: ANN401 (obstore's)
    """Return the time limits; without encryption only where the user's endpoint has none."""
    is_plain = any(os.environ.get(name, "").startswith("http://") for name in ENDPOINTS)
    return {**_TIMES, "allow_http": True} if is_plain else _TIMES


def _state_of(meta: Any) -> FileState:  # noqa: ANN401 (obstore's)
    return FileState(meta["size"], meta["e_tag"] or "", str(meta["last_modified"]))


def _reopened(url: str, state: FileState) -> ServerFile:
    return reopened(partial(ObjectFile, url, first_bytes=1), state)
