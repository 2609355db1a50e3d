"""Publishes files: on the Hugging Face Hub, in an object store, or in a folder."""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ggufkit.errors import MISFORMED, RemoteDeniedError, RemoteError, RemoteMissingError
from ggufkit.frameworks.extras import library
from ggufkit.inspection.file_digest import file_digest
from ggufkit.models.hub.names import is_hub_name, parse_hub_name
from ggufkit.remote.hub.settings import endpoint, token
from ggufkit.remote.limits import TRIES
from ggufkit.remote.url import STORES, redacted, scheme_of
from ggufkit.system.cancellation import pause
from ggufkit.system.descriptors import copy_at
from ggufkit.system.staging import Staging, staged
from ggufkit.system.text_file import Most, read_small

REPOSITORY: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
MAX_TEXT: Final = 300  # characters of a message, which may hold the whole answer of a server
_DENIED: Final = (401, 403)
_FOR_GOOD: Final = range(400, 429)  # statuses that another try does not change


class Publisher:
    """A place where files are published: this one is a folder on a disk."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def digests(self, names: Sequence[str]) -> dict[str, str]:
        """Return a digest of those files that are there; `is_same` compares it with a file."""
        paths = (self._folder / name for name in names)
        return {path.name: file_digest(path) for path in paths if path.exists()}

    def put(self, paths: Sequence[Path], message: str) -> dict[str, str]:  # noqa: ARG002 (the Hub's has it)
        """Publish files, together where the place can do that; return what `digests` returns."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in paths:
            staged(self._folder / path.name, functools.partial(_copy, path))
        return {path.name: file_digest(path) for path in paths}


def is_same(digest: str, path: Path, sha256: str) -> bool:
    """Whether a digest from `digests` belongs to a file on this disk, whose SHA-256 is `sha256`.

    The Hub tells the SHA-1 that Git has of the small files, which are not in its large storage.
    """
    if len(digest) == len(sha256):
        return digest == sha256
    if path.stat().st_size > Most.VALUES:
        return False
    data = read_small(path, Most.VALUES)
    head = b"blob %d\0" % len(data)
    return digest == hashlib.sha1(head + data, usedforsecurity=False).hexdigest()


def publisher(target: str, *, public: bool) -> Publisher:
    """Return the place that `target` names: user/name, hf://user/name, s3://..., or a folder.

    Raises MissingExtraError, and RemoteDeniedError without a token.
    """
    if scheme_of(target) in STORES:
        return _Store(target.rstrip("/"))
    if repository := repository_of(target):
        return _Hub(repository, public=public)
    return Publisher(target)


def repository_of(target: str) -> str:
    """Return the repository on the Hub that a place is, "" for other places."""
    is_folder = target.startswith((".", os.sep)) or Path(target).is_dir()
    if is_hub_name(target) or (REPOSITORY.fullmatch(target) and not is_folder):
        return parse_hub_name(target).repository
    return ""


def _copy(path: Path, stage: Staging) -> None:
    with path.open("rb") as source:
        copy_at(source.fileno(), 0, stage.descriptor, 0, path.stat().st_size)


class _Store(Publisher):
    """A folder in an object store."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._obstore = library("obstore", "remote")

    def digests(self, names: Sequence[str]) -> dict[str, str]:
        from ggufkit.remote.object_file import ObjectFile  # noqa: PLC0415 (an extra)

        digests = {}
        for name in names:
            try:
                digests[name] = file_digest(ObjectFile(f"{self._url}/{name}"))
            except RemoteMissingError:  # noqa: PERF203 (each file)
                continue
        return digests

    def put(self, paths: Sequence[Path], message: str) -> dict[str, str]:  # noqa: ARG002
        # The address is the user's own; it may be without encryption, as for tests of one's own.
        options = {"allow_http": True}
        store = library("obstore.store", "remote").from_url(self._url, client_options=options)
        for path in paths:
            try:
                self._obstore.put(store, path.name, path)
            except Exception as error:  # noqa: PERF203 (obstore's; each file)
                text = str(error).partition("\n")[0][:MAX_TEXT]
                raise RemoteError(
                    f"{redacted(self._url)}/{path.name} cannot be written: {text}",
                    remedy=f"Set {STORES[scheme_of(self._url)]}, and run again to continue",
                ) from error
        return {path.name: file_digest(path) for path in paths}


class _Hub(Publisher):
    """A repository on the Hub, through huggingface_hub."""

    def __init__(self, repository: str, *, public: bool) -> None:
        hub = library("huggingface_hub", "hub")
        self._token = token()
        if not self._token:
            raise RemoteDeniedError(
                f"to upload to {repository}, the Hub needs your token",
                remedy="Set HF_TOKEN, or run `hf auth login`",
            )
        self._hub, self._repository, self._public = hub, repository, public
        library("huggingface_hub.utils", "hub").disable_progress_bars()
        self._api = hub.HfApi(endpoint=str(endpoint()).rstrip("/"), token=self._token)

    def digests(self, names: Sequence[str]) -> dict[str, str]:
        try:
            tree = list(self._api.list_repo_tree(self._repository, recursive=True))
        except library("huggingface_hub.errors", "hub").RepositoryNotFoundError:
            return {}
        except Exception as error:  # noqa: BLE001 (the library raises those of its libraries)
            raise self._failure(error) from None
        files = {entry.path: entry for entry in tree if hasattr(entry, "blob_id")}
        return {
            name: files[name].lfs.sha256 if files[name].lfs else files[name].blob_id
            for name in names
            if name in files
        }

    def put(self, paths: Sequence[Path], message: str) -> dict[str, str]:
        for attempt in range(TRIES):
            try:
                self._api.create_repo(self._repository, private=not self._public, exist_ok=True)
                operations = [self._hub.CommitOperationAdd(path.name, str(path)) for path in paths]
                self._api.create_commit(self._repository, operations, commit_message=message)
            except Exception as error:  # noqa: BLE001, PERF203 (see above; each try)
                is_final = _reason(error)[1] in _FOR_GOOD or isinstance(error, MISFORMED)
                if is_final or attempt + 1 == TRIES:
                    raise self._failure(error) from None
                pause(min(2.0**attempt, 30.0))
            else:
                break
        return self.digests([path.name for path in paths])

    def _failure(self, error: Exception) -> RemoteError:
        """Return an error that says what the Hub said, without addresses and the token."""
        text, status = _reason(error)
        safe = re.sub(r"https?://\S+", "...", text).replace(self._token, "...")
        kind = RemoteDeniedError if status in _DENIED else RemoteError
        remedy = "Check that your token may write" if status in _DENIED else "Run again to continue"
        return kind(f"uploading to {self._repository} failed: {safe}", remedy=remedy)


def _reason(error: BaseException) -> tuple[str, int | None]:
    """Return what went wrong in the end, in one line, and the status of the Hub's answer."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = (line.strip() for line in str(error).splitlines())
    text = next(filter(None, lines), type(error).__name__)
    return text, getattr(getattr(error, "response", None), "status_code", None)
