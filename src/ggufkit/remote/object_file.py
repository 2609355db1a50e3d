"""A file in an object store: S3, Google Cloud Storage or Azure, read at a URL that obstore signs.

Keys, regions and endpoints come from the environment and the files that each store's own tools
read. Requests are those for any server: obstore's own client follows redirects to any host, and
reads the body of a refusal whole.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from ggufkit.errors import MissingExtraError, RemoteDeniedError, RemoteError
from ggufkit.remote import limits
from ggufkit.remote.range_file import ByteRange
from ggufkit.remote.remote_file import FileState, RemoteFile, Write, reopened
from ggufkit.remote.trust import Zone
from ggufkit.remote.url import STORES, Login, Url, UrlPath, redacted

VALID: Final = dt.timedelta(days=7)  # the longest time that S3 and Google allow
_CLIENT: Final[Any] = {"connect_timeout": f"{limits.CONNECT_SECONDS:.0f}s", "timeout": "30s"}
_RETRY: Final[Any] = {"max_retries": 1, "retry_timeout": dt.timedelta(seconds=30)}
# For each scheme: the settings for public files, and query keys that hold a signature.
_PUBLIC: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "s3": ("AWS_SKIP_SIGNATURE", {"access_key_id": "-", "secret_access_key": "-"}),
    "gs": ("GOOGLE_SKIP_SIGNATURE", {}),
    "az": ("AZURE_SKIP_SIGNATURE", {"account_key": "LQ==", "skip_signature": False}),
}
_GOOGLE: Final = "https://storage.googleapis.com"  # whose signatures need a private key


class ObjectFile(RemoteFile):
    """A file in an object store, named as `s3://bucket/path`."""

    def __init__(self, name: str, *, first_bytes: int = limits.FIRST_BYTES) -> None:
        """Name the file; MissingExtraError without obstore, RemoteError for a wrong name."""
        self._name = name
        super().__init__(signed_url(name), login=_google_login(name), first_bytes=first_bytes)
        self.path: UrlPath = UrlPath(redacted(name))

    def __reduce__(self) -> tuple[Callable[..., RemoteFile], tuple[object, ...]]:
        """Pickle the name, and the state that the file must still have."""
        return reopened, (partial(ObjectFile, self._name, first_bytes=1), self.state)

    def read_first(self) -> tuple[FileState, bytes]:
        """Return the state and the beginning of the file."""
        try:
            return super().read_first()
        except RemoteDeniedError as error:
            raise RemoteDeniedError(error.message, remedy=_remedy(self._name)) from error

    def read_to(self, requested: ByteRange, write: Write) -> None:
        """Give one range to `write`; the URL is signed again when its time is up."""
        try:
            super().read_to(requested, write)
        except RemoteDeniedError:
            self.url: Url = signed_url(self._name)
            self._target = (self.url, Zone.MACHINE)
            super().read_to(requested, write)


def signed_url(name: str) -> Url:
    """Return the URL of an object: signed, unless the user says that it is public.

    Raises MissingExtraError without obstore, RemoteError for a wrong name and without keys.
    """
    folder, slash, file = name.rpartition("/")
    if not slash or folder.endswith("/") or not file:
        raise RemoteError(f"{name} names no file", remedy="Write BUCKET/PATH after the scheme")
    scheme = name.partition(":")[0].lower()
    setting, keys = _PUBLIC[scheme]
    is_public = os.environ.get(setting, "").lower() in ("1", "true")
    if scheme == "gs" and (is_public or _google_login(name)):
        return Url.parse(f"{_GOOGLE}/{name.partition('://')[2]}")
    try:
        import obstore  # noqa: PLC0415 (an extra)
        from obstore import exceptions, store  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise MissingExtraError(
            "object stores need obstore", remedy="pip install 'ggufkit[remote]'"
        ) from error
    options = keys if is_public else {}
    try:
        opened: Any = store.from_url(folder, client_options=_CLIENT, retry_config=_RETRY, **options)
        url = obstore.sign(opened, "GET", file, VALID)
    except (exceptions.BaseError, ValueError) as error:
        text = str(error).partition("\n")[0]
        raise RemoteError(f"{redacted(name)}: {text}", remedy=_remedy(name)) from error
    return Url.parse(url.partition("?")[0] if is_public else url)


def _google_login(name: str) -> Login | None:
    """Return the login for a user of Google without a service account, None without a token."""
    token = os.environ.get("GOOGLE_BEARER_TOKEN", "")
    is_google = name[:5].lower() == "gs://"
    return Login(Url.parse(_GOOGLE).origin, f"Bearer {token}") if token and is_google else None


def _remedy(name: str) -> str:
    return f"Set {STORES[name.partition(':')[0].lower()]}"
