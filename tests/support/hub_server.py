"""A stand-in for the Hugging Face Hub: its tree and resolve API, and its CDN on another port.

Written from the Hub's documentation: files of LFS redirect to the CDN with X-Linked-Size and
X-Linked-ETag, small files are answered at once, lists come in pages with a Link header, refusals
have X-Error-Code.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from dataclasses import dataclass, field
from urllib.parse import parse_qs, quote, unquote, urlsplit

from ranged_server import Served

COMMIT = "0123456789abcdef0123456789abcdef01234567"
RIGHT = "hf_right"
LFS_ENDINGS = (".gguf", ".safetensors", ".bin")


SETTINGS = (
    *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HOME", "HF_HUB_CACHE"),
    *("HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "LLAMA_CACHE"),
)


def at_home(monkeypatch, folder, endpoint):
    """Let the settings of the Hub be those of a new user whose home is `folder`."""
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    monkeypatch.chdir(folder)


_DIGESTS: dict[int, tuple[bytes, str]] = {}  # of large files, which a benchmark asks for often


def sha256(data: bytes) -> str:
    if id(data) not in _DIGESTS:
        _DIGESTS[id(data)] = data, hashlib.sha256(data).hexdigest()
    return _DIGESTS[id(data)][1]


def git_oid(data: bytes) -> str:
    return sha256(data)[:40]


@dataclass
class Repo:
    """A repository: its files by path, the revisions that it has, and who may read it."""

    files: dict[str, bytes]
    revisions: tuple[str, ...] = ("main", COMMIT)
    is_gated: bool = False
    is_private: bool = False


@dataclass
class HubServer:
    """Serves `repos` while it is used as a context; `token` opens what is gated or private."""

    repos: dict[str, Repo]
    token: str = RIGHT
    page: int = 1000  # files in one page of a list
    latency: float = 0.0
    rate: float = 0.0
    busy: int = 0  # requests that are answered 429 first
    lfs: tuple[str, ...] = LFS_ENDINGS  # of the files that LFS holds
    digest: str = ""  # told in the place of the right one
    hub: Served = field(init=False)
    cdn: Served = field(init=False)

    def __enter__(self):
        self._stack = contextlib.ExitStack()
        self.cdn = self._stack.enter_context(
            Served({}, latency=self.latency, rate=self.rate, fault=self._is_unsigned)
        )
        self.hub = self._stack.enter_context(Served({}, latency=self.latency, fault=self._answer))
        self.store()
        return self

    def store(self) -> None:
        """Give the CDN the large files of all repositories."""
        for repo in self.repos.values():
            for path, data in repo.files.items():
                if path.endswith(self.lfs):
                    self.cdn.files[f"/lfs/{sha256(data)}"] = data

    def __exit__(self, *_):
        self._stack.close()

    @property
    def endpoint(self) -> str:
        return self.hub.url("")

    @property
    def requests(self) -> list:
        return [*self.hub.requests, *self.cdn.requests]

    def forget(self) -> None:
        self.hub.forget()
        self.cdn.forget()

    @staticmethod
    def _is_unsigned(handler, _number) -> bool:
        """Refuse what no redirect led to, and logins that are the Hub's alone."""
        if "authorization" in handler.request_seen.headers or "X-Signature=" not in handler.path:
            handler.send(403, b"no signature")
            return True
        return False

    def _answer(self, handler, number) -> bool:
        if number <= self.busy:
            handler.send(429, b"slow down", {"Retry-After": "0"})
            return True
        parts = urlsplit(handler.path)
        if parts.path.startswith("/api/resolve-cache/"):
            return False
        listing = re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/([^/]+)", parts.path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", parts.path)
        match = listing or file
        if not match:
            handler.send(404, b"no such page")
            return True
        repo = self._allowed(handler, match[1], unquote(match[2]), is_file=bool(file))
        if repo is None:
            return True
        if listing:
            self._list(handler, repo, parse_qs(parts.query))
        else:
            self._resolve(handler, repo, unquote(file[3]))
        return True

    def _allowed(self, handler, name, revision, *, is_file):
        """Return the repository if this request may read it; else refuse as the Hub does."""
        repo = self.repos.get(name)
        token = handler.headers.get("Authorization")
        if token not in (None, f"Bearer {self.token}"):
            self._refuse(handler, 401, "", "Invalid credentials in Authorization header")
        elif repo is None or (repo.is_private and not token):
            status = 404 if token else 401
            self._refuse(handler, status, "RepoNotFound", "Repository not found")
        elif repo.is_gated and is_file and not token:
            self._refuse(handler, 401, "GatedRepo", "Access to this model is restricted")
        elif revision not in repo.revisions:
            self._refuse(handler, 404, "RevisionNotFound", "Revision not found")
        else:
            return repo
        return None

    def _refuse(self, handler, status, code, message):
        headers = {"X-Error-Message": message}
        if code:
            headers["X-Error-Code"] = code
        handler.send(status, json.dumps({"error": message}).encode(), headers)

    def _list(self, handler, repo, query):
        entries = [self._entry(path, data) for path, data in repo.files.items()]
        folders = sorted({p.rpartition("/")[0] for p in repo.files if "/" in p})
        oid = "0" * 40
        entries = [
            {"type": "directory", "oid": oid, "size": 0, "path": p} for p in folders
        ] + entries
        start = int(query.get("cursor", ["0"])[0])
        headers = {"Content-Type": "application/json"}
        if start + self.page < len(entries):
            path = urlsplit(handler.path).path
            url = self.hub.url(f"{path}?recursive=true&cursor={start + self.page}")
            headers["Link"] = f'<{url}>; rel="next"'
        body = json.dumps(entries[start : start + self.page]).encode()
        handler.send(200, body, headers)

    def _entry(self, path, data):
        entry = {"type": "file", "oid": git_oid(data), "size": len(data)}
        entry["path"] = path
        if path.endswith(self.lfs):
            oid = self.digest or sha256(data)
            entry["lfs"] = {"oid": oid, "size": len(data), "pointerSize": 134}
        return entry

    def _resolve(self, handler, repo, path):
        data = repo.files.get(path)
        if data is None:
            self._refuse(handler, 404, "EntryNotFound", "Entry not found")
            return
        digest = sha256(data)
        headers = {"X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        if not path.endswith(self.lfs):
            self.hub.files[f"/api/resolve-cache/{git_oid(data)}"] = data
            headers["Location"] = f"/api/resolve-cache/{git_oid(data)}"
            handler.send(307, b"Temporary Redirect", headers)
            return
        headers["X-Linked-Size"] = str(len(data))
        headers["X-Linked-ETag"] = f'"{self.digest or digest}"'
        headers["ETag"] = f'"{self.digest or digest}"'
        headers["Location"] = self.cdn.url(f"/lfs/{digest}?name={quote(path)}&X-Signature=s3cret")
        handler.send(302, b"Found. Redirecting", headers)
