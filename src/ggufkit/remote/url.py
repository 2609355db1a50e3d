"""URLs: their parts, and how to show them without secrets."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, unquote, urljoin, urlsplit

from ggufkit.errors import RemoteError

STORES: Final = {  # of each scheme, how its keys are given
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, GOOGLE_BEARER_TOKEN or GOOGLE_SKIP_SIGNATURE=true",
    "az": "AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY or AZURE_SKIP_SIGNATURE=true",
}

PORTS: Final = {"http": 80, "https": 443}
_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_SLASHES: Final = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):[/\\]+")
_HOST: Final = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:%[A-Za-z0-9._-]+)?")
_SAFE: Final = "%/:=&?~+!$,;'@()*[]"  # characters that a URL's path and query may contain unescaped

if TYPE_CHECKING:
    _Path = Path
else:  # subclassing Path itself fails before Python 3.12
    _Path = type(Path())


class UrlPath(_Path):
    """The name of a remote file, for messages: a URL without user, query and fragment.

    Its methods that look at the disk find nothing.
    """

    def __str__(self) -> str:
        """Return the URL, whose two slashes a Path would merge."""
        return _SLASHES.sub(r"\1://", self.as_posix())

    def as_posix(self) -> str:
        """Return the path with slashes, on any system."""
        return str(super().__str__()).replace("\\", "/")

    __fspath__ = __str__


def scheme_of(name: object) -> str:
    """Return the scheme of a URL in lower case, "" for anything else."""
    match = _SCHEME.match(name) if isinstance(name, str) else None
    return match[1].lower() if match else ""


class Url(NamedTuple):
    """The parts of an http(s) URL; `user` is the part before the host's name."""

    scheme: str
    host: str
    port: int
    target: str
    user: str = ""

    @classmethod
    def parse(cls, text: str) -> Url:
        """Return the parts; RemoteError for a URL that cannot be requested."""
        try:
            parts = urlsplit(text)
            scheme, host = parts.scheme.lower(), (parts.hostname or "").rstrip(".")
            ascii_host = host if ":" in host else host.encode("idna").decode()
            port = parts.port or PORTS.get(scheme, 0)
        except (ValueError, UnicodeError) as error:
            raise RemoteError(f"{redacted(text)} is not a URL: {error}") from None
        if scheme not in PORTS or not _HOST.fullmatch(ascii_host):
            raise RemoteError(
                f"{redacted(text)} is not an http(s) URL",
                remedy="Write https://host/path/model.gguf",
            )
        target = quote(parts.path or "/", safe=_SAFE)
        if parts.query:
            target += "?" + quote(parts.query, safe=_SAFE)
        user = parts.netloc.rpartition("@")[0]
        return cls(scheme, ascii_host, port, target, user)

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port: to whom credentials belong."""
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """The host and, where it is not the usual one, the port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def authorization(self) -> str:
        """The header for the user and password in the URL, "" without them."""
        text = unquote(self.user)
        return "Basic " + base64.b64encode(text.encode()).decode() if text else ""

    @property
    def name(self) -> str:
        """The file's name: the last part of the path."""
        return unquote(self.target.partition("?")[0].rpartition("/")[2])

    def with_name(self, name: str) -> Url:
        """Return the URL of another file in the same folder, with the same query."""
        path, mark, query = self.target.partition("?")
        return self._replace(target=f"{path.rpartition('/')[0]}/{quote(name)}{mark}{query}")

    def joined(self, location: str) -> Url:
        """Return the URL to which a redirect from here leads."""
        return Url.parse(urljoin(self.full, location))

    @property
    def full(self) -> str:
        """The whole URL, without the user."""
        return f"{self.scheme}://{self.authority}{self.target}"

    def __str__(self) -> str:
        """Return the URL without secrets: the query may hold a signature."""
        return f"{self.scheme}://{self.authority}{unquote(self.target.partition('?')[0])}"

    def __repr__(self) -> str:
        """Return the same: an error's traceback may show it."""
        return str(self)


def redacted(text: str) -> str:
    """Return any text that should be a URL, without user, query and fragment."""
    scheme, slashes, rest = re.split(r"[?#]", text, maxsplit=1)[0].partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{slashes}{host.rpartition('@')[2]}{slash}{path}"


@dataclass(frozen=True)
class Login:
    """The Authorization header for one server, which no other server gets."""

    origin: tuple[str, str, int]
    header: str = field(repr=False)
