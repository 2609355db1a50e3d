"""The Hugging Face Hub: lists of a repository's files, and the files; nothing of GGUF.

Written from the Hub's documentation of its tree and resolve API. What the server sends is checked:
names, sizes, and where the next page of a list lies.
"""

from __future__ import annotations

import difflib
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import quote

from ggufkit.errors import (
    RemoteDeniedError,
    RemoteError,
    RemoteMissingError,
    brief,
)
from ggufkit.remote.get import Answer, get, patiently, require_success
from ggufkit.remote.hub.beginnings import keep, recall
from ggufkit.remote.hub.repo_file import MAIN, RepoFile, is_inside
from ggufkit.remote.hub.settings import endpoint, login, offline_reason
from ggufkit.remote.range_file import ByteRange
from ggufkit.remote.remote_file import RemoteFile
from ggufkit.remote.server_file import FileState, ServerFile, reopened
from ggufkit.remote.sinks import Sink
from ggufkit.remote.url import Url, UrlPath

MAX_PAGE_BYTES: Final = 16 << 20  # of one page of a list; a thousand files take half a megabyte
MAX_PAGES: Final = 50
SHOWN: Final = 5  # names in a message
_NEXT: Final = re.compile(r'<([^<>]{1,4096})>\s*;\s*rel="?next"?')
_SHA256: Final = re.compile(r'"?([0-9a-f]{64})"?')


@dataclass(frozen=True)
class Repository:
    """A repository of models, and the branch, tag or commit that is meant."""

    name: str
    revision: str = MAIN

    def __str__(self) -> str:
        """Return the name for messages, with any revision but the usual."""
        return self.name if self.revision == MAIN else f"{self.name}@{self.revision}"

    @property
    def page(self) -> str:
        """The address of its page, for people."""
        return f"{endpoint()}".rstrip("/") + f"/{self.name}"

    def url(self, path: str) -> Url:
        """Return where a file can be downloaded."""
        return _at(f"{quote(self.name)}/resolve/{quote(self.revision, safe='')}/{quote(path)}")

    def files(self) -> list[RepoFile]:
        """Return all files in the order of the Hub; one request for each thousand.

        Raises RemoteDeniedError, or RemoteMissingError for a repository or revision that does not
        exist.
        """
        require_online(str(self))
        revision = quote(self.revision, safe="")
        first = f"api/models/{quote(self.name)}/tree/{revision}?recursive=true&expand=false"
        found: list[RepoFile] = []
        url: Url | None = _at(first)
        for _ in range(MAX_PAGES):
            if url is None:
                break
            page, url = patiently(lambda at=url: self._page(at))  # type: ignore[misc]
            found.extend(page)
        return found

    def _page(self, url: Url) -> tuple[list[RepoFile], Url | None]:
        with get(url, {"Accept": "application/json"}, login()) as answer:
            self.require_success(answer, url)
            body = answer.response.read(MAX_PAGE_BYTES + 1)
            following = _NEXT.search(answer.header("Link"))
        if len(body) > MAX_PAGE_BYTES:
            raise RemoteError(f"{url}: the list of files has more than {MAX_PAGE_BYTES:,} bytes")
        return list(_entries(body, url)), _next_page(url, following[1]) if following else None

    def require_success(self, answer: Answer, url: Url) -> None:
        """Raise the error that the Hub's answer means."""
        raise_reason(self, answer)
        require_success(answer, url)

    def file(self, path: str, known: RepoFile | None = None) -> HubFile:
        """Return a file, unread; `known` is what a list said of it."""
        require_online(f"{self}/{path}")
        return HubFile(self, known or RepoFile(path, -1))


def require_online(what: str) -> None:
    """Raise RemoteError where the environment forbids requests."""
    if reason := offline_reason():
        raise RemoteError(
            f"{what} is not in the cache, and {reason} forbids to ask the Hub",
            remedy=f"Unset {reason}, or download the file on a machine that is online",
        )


def _at(path: str) -> Url:
    base = endpoint()
    return Url.parse(f"{base.full.rstrip('/')}/{path}")


def _next_page(url: Url, location: str) -> Url:
    """Return the address of the next page, which must be on the same server."""
    following = url.joined(location)
    if following.origin != url.origin:
        raise RemoteError(f"{url}: the list of files goes on at another server, {following}")
    return following


def _entries(body: bytes, url: Url) -> Iterator[RepoFile]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list):
        raise RemoteError(
            f"{url}: the answer is not a list of files", remedy="Check HF_ENDPOINT, if it is set"
        )
    for each in found:
        if (entry := _entry(each)) is not None:
            yield entry


def _entry(found: Any) -> RepoFile | None:  # noqa: ANN401 (as JSON is)
    """Return a file of a list; None for folders, and for what no file can be."""
    if not isinstance(found, dict) or found.get("type") != "file":
        return None
    path, nbytes, lfs = found.get("path"), found.get("size"), found.get("lfs")
    if not isinstance(path, str) or not is_inside(path):
        return None
    if type(nbytes) is not int or nbytes < 0:
        return None
    oid = lfs.get("oid") if isinstance(lfs, dict) else None
    digest = _SHA256.fullmatch(oid) if isinstance(oid, str) else None
    return RepoFile(path, nbytes, digest[1] if digest else "")


# Errors.


def raise_reason(repository: Repository, answer: Answer) -> None:
    """Raise what the Hub says is wrong with a repository, in its header X-Error-Code."""
    code, said = answer.header("X-Error-Code"), answer.header("X-Error-Message")
    page = repository.page
    if code == "GatedRepo" or (answer.status == 403 and not code):  # noqa: PLR2004 (forbidden)
        raise _gated(repository)
    if code == "RevisionNotFound":
        raise RemoteMissingError(
            f"{repository.name} has no revision {repository.revision!r}",
            remedy=f"{page} lists its branches and tags",
        )
    if answer.status == 401 and login() and code != "RepoNotFound":  # noqa: PLR2004 (not logged in)
        raise RemoteDeniedError(
            f"the Hub does not accept your token: {said or 'status 401'}",
            remedy="Renew HF_TOKEN or the token file, or remove it for public repositories",
        )
    if code == "RepoNotFound" or answer.status == 401:  # noqa: PLR2004
        raise RemoteMissingError(
            f"the Hub has no repository {repository.name} that you may read",
            remedy=f"Check the name at {page}"
            + ("" if login() else "; if it is private, set HF_TOKEN to your token"),
        )


def _gated(repository: Repository) -> RemoteDeniedError:
    told = "" if login() else ", then set HF_TOKEN to your token"
    return RemoteDeniedError(
        f"{repository.name} is gated: its owner must give you access",
        remedy=f"Accept its conditions at {repository.page}{told}",
    )


def missing_file(repository: Repository, path: str, files: list[RepoFile]) -> RemoteMissingError:
    """Return the error of a file that a repository lacks; it names those that are like it."""
    names = [each.path for each in files]
    last = PurePosixPath(path).name
    same = [name for name in names if PurePosixPath(name).name == last]
    near = (same or difflib.get_close_matches(path, names, SHOWN))[:SHOWN]
    return RemoteMissingError(
        f"{repository} has no file {brief(path)}",
        remedy=f"Did you mean {', '.join(near)}" if near else f"{repository.page} lists its files",
    )


class HubFile(RemoteFile):
    """A file of a repository. If its digest is known, its beginning may come from this disk."""

    data: bytes
    first_bytes: int

    def __init__(self, repository: Repository, file: RepoFile) -> None:
        """Name the file; the first read sends the first request."""
        super().__init__(repository.url(file.path), login=login())
        self.path: UrlPath = UrlPath(f"hf://{repository}/{file.path}")
        self.repository = repository
        self.file = file
        self._is_recalled = False
        self._asking = threading.Lock()

    def __reduce__(self) -> tuple[Callable[..., ServerFile], tuple[object, ...]]:
        """Pickle the names; whoever reads it logs in with the token of their own machine."""
        self._require_listed()
        return _reopened, (self.repository, self.file, self.state)

    def read_beginning(self, nbytes: int) -> None:
        """Read the beginning, in a first request for `nbytes` bytes."""
        self.first_bytes = nbytes
        self.load(1)

    def take(self, data: bytes) -> None:
        """Take the beginning from elsewhere; the caller knows that it is that of this file."""
        self.data = data

    def recall(self) -> bool:
        """Take the beginning from this disk if it is kept there; return whether it was."""
        data = recall(self.file.sha256) if self.file.sha256 else b""
        if data and len(data) <= self.file.nbytes and self._state is None:
            self.data, self._is_recalled = data, True
            self._state = FileState(self.file.nbytes)
        return self._is_recalled

    def remember(self, nbytes: int) -> None:
        """Keep the first `nbytes` bytes on this disk for the next command."""
        if self.file.sha256 and not self._is_recalled:
            keep(self.file.sha256, self.data[:nbytes])

    def read_to(self, wanted: ByteRange, sink: Sink) -> None:
        """Read one range to `sink`; a broken connection goes on where it stopped."""
        self._require_listed()
        super().read_to(wanted, sink)

    @property
    def identity(self) -> tuple[object, ...]:
        """The URL, and the state of the file on the server."""
        self._require_listed()
        return super().identity

    def _require_listed(self) -> None:
        """Ask the server about a recalled file; FormatError if it is not the listed one."""
        with self._asking:
            if not self._is_recalled:
                return
            before, self.first_bytes = self.first_bytes, 1
            try:
                self._state, _ = self.begin()
            finally:
                self.first_bytes = before
            if self.nbytes != self.file.nbytes or linked_sha256(self) != self.file.sha256:
                raise self.changed()
            self._is_recalled = False

    def begin(self) -> tuple[FileState, bytes]:
        """Send the first request; a refusal tells what the Hub's list says of the file."""
        try:
            return super().begin()
        except (RemoteMissingError, RemoteDeniedError) as error:
            files = self.repository.files()  # raises what is wrong with the repository
            if isinstance(error, RemoteDeniedError):
                raise _gated(self.repository) from error
            raise missing_file(self.repository, self.file.path, files) from error


def _reopened(repository: Repository, file: RepoFile, state: FileState) -> ServerFile:
    """Open a file that another process has open; it must still be in the same state."""
    made = HubFile(repository, file)
    made.first_bytes = 1
    return reopened(lambda: made, state)


def sha256_of(file: ServerFile) -> str:
    """Return the SHA-256 that a server tells of a file, "" if it tells none.

    It is that of a Hub's list, of the Hub's redirect, or the ETag where that is one.
    """
    if isinstance(file, HubFile) and file.file.sha256:
        return file.file.sha256
    return linked_sha256(file) if isinstance(file, RemoteFile) else ""


def linked_sha256(file: RemoteFile) -> str:
    """Return the SHA-256 that the answers to requests told, "" for none."""
    told = [value for hop in file.redirects for name, value in hop.items() if _is_linked(name)]
    for text in (*told, file.etag):
        if found := _SHA256.fullmatch(text.strip()):
            return found[1]
    return ""


def _is_linked(name: str) -> bool:
    return name.lower() == "x-linked-etag"
