"""The Hugging Face Hub: lists of a repository's files, and the files themselves.

Written from the Hub's documentation of its tree and resolve API. The server's answers are checked:
names, sizes, and the address of the next page of a list.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import quote

from ggufkit.errors import RemoteDeniedError, RemoteError, RemoteMissingError, brief
from ggufkit.remote import limits
from ggufkit.remote.get import Answer, get, require_success, with_retries
from ggufkit.remote.hub.repo_file import MAIN, RepoFile, is_inside
from ggufkit.remote.hub.settings import endpoint, login, offline_reason
from ggufkit.remote.remote_file import SHA256, FileState, RemoteFile, reopened
from ggufkit.remote.url import Url, UrlPath

MAX_PAGE_BYTES: Final = 16 << 20  # of one page of a list; a thousand files take half a megabyte
MAX_PAGES: Final = 50
MAX_FILE_BYTES: Final = (1 << 63) - 1  # as on disks
MAX_NAMES: Final = 5  # in a message
MAX_COMPARED: Final = 500  # names that are compared with a misspelled one: each takes milliseconds
_NEXT: Final = re.compile(r'<([^<>]{1,4096})>\s*;\s*rel="?next"?')


@dataclass(frozen=True)
class Repository:
    """A repository of models, and the branch, tag or commit that is meant."""

    name: str
    revision: str = MAIN

    def __str__(self) -> str:
        return self.name if self.revision == MAIN else f"{self.name}@{self.revision}"

    @property
    def page(self) -> str:
        """The address of its page, for people."""
        return f"{endpoint()}".rstrip("/") + f"/{self.name}"

    def url(self, path: str) -> Url:
        """Return where a file can be downloaded."""
        return _endpoint_url(
            f"{quote(self.name)}/resolve/{quote(self.revision, safe='')}/{quote(path)}"
        )

    def files(self) -> list[RepoFile]:
        """Return all files in the order of the Hub; one request for each thousand.

        Raises RemoteDeniedError, or RemoteMissingError for a repository or revision that does not
        exist.
        """
        require_online(str(self))
        revision = quote(self.revision, safe="")
        first = f"api/models/{quote(self.name)}/tree/{revision}?recursive=true&expand=false"
        files: list[RepoFile] = []
        url: Url | None = _endpoint_url(first)
        for _ in range(MAX_PAGES):
            if url is None:
                break
            page, url = with_retries(partial(self._page, url))
            files.extend(page)
        return files

    def _page(self, url: Url) -> tuple[list[RepoFile], Url | None]:
        with get(url, {"Accept": "application/json"}, login()) as answer:
            raise_reason(self, answer)
            require_success(answer, url)
            body = answer.read(MAX_PAGE_BYTES + 1)
            link = _NEXT.search(answer.header("Link"))
        if len(body) > MAX_PAGE_BYTES:
            raise RemoteError(f"{url}: the list of files has more than {MAX_PAGE_BYTES:,} bytes")
        return list(_entries(body, url)), _next_page(url, link[1]) if link else None

    def file(self, file: RepoFile) -> HubFile:
        """Return a file, unread; its size is -1 if no list says it."""
        require_online(f"{self}/{file.path}")
        return HubFile(self, file)


def require_online(what: str) -> None:
    """Raise RemoteError where the environment forbids requests."""
    if reason := offline_reason():
        raise RemoteError(
            f"{what} is not in the cache, and {reason} forbids to ask the Hub",
            remedy=f"Unset {reason}, or download the file on a machine that is online",
        )


def _endpoint_url(path: str) -> Url:
    base = endpoint()
    return Url.parse(f"{base.full.rstrip('/')}/{path}")


def _next_page(url: Url, location: str) -> Url:
    """Return the address of the next page, which must be on the same server."""
    page = url.joined(location)
    if page.origin != url.origin:
        raise RemoteError(f"{url}: the list of files continues on another server, {page}")
    return page


def _entries(body: bytes, url: Url) -> Iterator[RepoFile]:
    try:
        items = json.loads(body)
    except (ValueError, RecursionError):
        items = None
    if not isinstance(items, list):
        raise RemoteError(
            f"{url}: the answer is not a list of files", remedy="Check HF_ENDPOINT, if it is set"
        )
    for item in items:
        if (entry := _entry(item)) is not None:
            yield entry


def _entry(item: Any) -> RepoFile | None:  # noqa: ANN401 (as JSON is)
    """Return a file of a list; None for folders and for entries that cannot be files."""
    if not isinstance(item, dict) or item.get("type") != "file":
        return None
    path, nbytes, lfs = item.get("path"), item.get("size"), item.get("lfs")
    if not isinstance(path, str) or not is_inside(path):
        return None
    if type(nbytes) is not int or not 0 <= nbytes <= MAX_FILE_BYTES:
        return None
    oid = lfs.get("oid") if isinstance(lfs, dict) else None
    digest = SHA256.fullmatch(oid) if isinstance(oid, str) else None
    return RepoFile(path, nbytes, digest[1] if digest else "")


def raise_reason(repository: Repository, answer: Answer) -> None:
    """Raise the error that the Hub states in its header X-Error-Code."""
    code, message = answer.header("X-Error-Code"), answer.header("X-Error-Message")
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
            f"the Hub does not accept your token: {message or 'status 401'}",
            remedy="Renew HF_TOKEN or the token file, or remove it for public repositories",
        )
    if code == "RepoNotFound" or answer.status == 401:  # noqa: PLR2004
        raise RemoteMissingError(
            f"the Hub has no repository {repository.name} that you may read",
            remedy=f"Check the name at {page}"
            + ("" if login() else "; if it is private, set HF_TOKEN to your token"),
        )


def _gated(repository: Repository) -> RemoteDeniedError:
    login_hint = "" if login() else ", then set HF_TOKEN to your token"
    return RemoteDeniedError(
        f"{repository.name} is gated: its owner must give you access",
        remedy=f"Accept its conditions at {repository.page}{login_hint}",
    )


def missing_file(repository: Repository, path: str, files: list[RepoFile]) -> RemoteMissingError:
    """Return the error for a file that a repository does not have; it names similar files."""
    names = [file.path for file in files]
    last = PurePosixPath(path).name
    same = [name for name in names if PurePosixPath(name).name == last]
    near = (same or difflib.get_close_matches(path, names[:MAX_COMPARED], MAX_NAMES))[:MAX_NAMES]
    return RemoteMissingError(
        f"{repository} has no file {brief(path)}",
        remedy=f"Did you mean {', '.join(near)}" if near else f"{repository.page} lists its files",
    )


class HubFile(RemoteFile):
    """A file of a repository."""

    def __init__(
        self, repository: Repository, file: RepoFile, *, first_bytes: int = limits.FIRST_BYTES
    ) -> None:
        """Name the file; the first read sends the first request."""
        super().__init__(repository.url(file.path), login=login(), first_bytes=first_bytes)
        self.path: UrlPath = UrlPath(f"hf://{repository}/{file.path}")
        self.repository = repository
        self.file = file

    def set_beginning(self, beginning: bytes) -> None:
        """Take a beginning that another file of the repository completed."""
        self.data = beginning

    def __reduce__(self) -> tuple[Callable[..., RemoteFile], tuple[object, ...]]:
        """Pickle the names; the reading process logs in with the token of its own machine."""
        again = partial(HubFile, self.repository, self.file, first_bytes=1)
        return reopened, (again, self.state)

    @property
    def sha256(self) -> str:
        """The SHA-256 in the Hub's list, or in its answers; "" for none."""
        return self.file.sha256 or super().sha256

    def read_first(self) -> tuple[FileState, bytes]:
        """Send the first request; a refusal raises what the Hub's list says about the file."""
        try:
            return super().read_first()
        except (RemoteMissingError, RemoteDeniedError) as error:
            files = self.repository.files()  # raises the error of the repository
            if isinstance(error, RemoteDeniedError):
                raise _gated(self.repository) from error
            raise missing_file(self.repository, self.file.path, files) from error
