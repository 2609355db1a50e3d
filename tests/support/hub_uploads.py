"""A stand-in for the Hub's upload API on loopback, for the real client huggingface_hub.

It speaks what the client of version 2 sends: create, tree, preupload, LFS batch with one part or
several, completion, and commit. `faults` are statuses for the next requests whose path contains a
word; DROPPED closes the connection. What comes with a login that is not asked for is an error.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

TOKEN = "hf_secret0123456789"  # noqa: S105 (of nobody)
DROPPED = 0
COMMIT = "0123456789abcdef0123456789abcdef01234567"
LFS_ENDING = ".gguf"


def git_blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


@dataclass
class UploadHub:
    """Takes uploads while it is used as a context; `repos` has the files of each repository."""

    part_bytes: int = 1 << 16
    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    visibility: dict[str, str] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    faults: list[tuple[str, int]] = field(default_factory=list)
    counts: Counter = field(default_factory=Counter)  # of requests, by their kind
    commits: list[str] = field(default_factory=list)

    def __enter__(self):
        self._parts: dict[str, dict[int, bytes]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Uploads)
        self._server.daemon_threads = True
        self._server.hub = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def at_home(self, monkeypatch, folder, token=TOKEN):
        """Let the settings of the Hub be those of a user with a token, who uses this server."""
        from huggingface_hub import constants

        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HUGGING_FACE_HUB_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(folder))
        monkeypatch.setenv("HF_HOME", str(folder / "hf"))
        monkeypatch.setenv("HF_ENDPOINT", self.endpoint)
        monkeypatch.setenv("HF_TOKEN", token)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)

    # Answers: a status and what JSON says.

    def create(self, _path, body):
        name = f"{body['organization']}/{body['name']}" if body["organization"] else body["name"]
        url = {"url": f"{self.endpoint}/{name}"}
        if name in self.repos:
            return 409, url | {"error": "You already created this model repo"}
        self.repos[name] = {}
        self.visibility[name] = body.get("visibility", "public")
        return 200, url | {"name": name, "id": name}

    def tree(self, path, _body):
        name = re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/.+", path)[1]
        if name not in self.repos:
            return 404, {"error": "Repository not found"}
        return 200, [self._entry(*file) for file in self.repos[name].items()]

    @staticmethod
    def _entry(path, data):
        entry = {"type": "file", "path": path, "size": len(data), "oid": git_blob(data)}
        if path.endswith(LFS_ENDING):
            digest = hashlib.sha256(data).hexdigest()
            entry["lfs"] = {"oid": digest, "size": len(data), "pointerSize": 134}
        return entry

    def preupload(self, _path, body):
        modes = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if file["path"].endswith(LFS_ENDING) else "regular",
                "shouldIgnore": False,
            }
            for file in body["files"]
        ]
        return 200, {"files": modes}

    def batch(self, _path, body):
        return 200, {"transfer": "multipart", "objects": [self._object(o) for o in body["objects"]]}

    def _object(self, requested):
        oid, size = requested["oid"], requested["size"]
        if oid in self.objects:
            return {"oid": oid, "size": size}
        href = f"{self.endpoint}/lfs/{oid}"
        if size <= self.part_bytes:
            return {"oid": oid, "size": size, "actions": {"upload": {"href": f"{href}/1"}}}
        count = -(-size // self.part_bytes)
        header = {str(n): f"{href}/{n}" for n in range(1, count + 1)}
        header["chunk_size"] = str(self.part_bytes)
        action = {"href": f"{self.endpoint}/complete/{oid}", "header": header}
        return {"oid": oid, "size": size, "actions": {"upload": action}}

    def part(self, path, data):
        _, _, oid, number = path.split("/")
        self._parts.setdefault(oid, {})[int(number)] = data
        if hashlib.sha256(data).hexdigest() == oid:
            self.objects[oid] = data
        return 200, {}

    def complete(self, path, body):
        oid = path.rpartition("/")[2]
        data = b"".join(self._parts[oid][part["partNumber"]] for part in body["parts"])
        if hashlib.sha256(data).hexdigest() != oid:
            return 400, {"error": "the parts are not those of the object"}
        self.objects[oid] = data
        return 200, {}

    def commit(self, path, body):
        name = re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/.+", path)[1]
        repo = self.repos[name]
        for line in body:
            value = line["value"]
            if line["key"] == "file":
                repo[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                if value["oid"] not in self.objects:
                    return 400, {"error": "the object was not uploaded"}
                repo[value["path"]] = self.objects[value["oid"]]
            else:
                self.commits.append(value["summary"])
        url = f"{self.endpoint}/{name}/commit/{COMMIT}"
        return 200, {"commitUrl": url, "commitOid": COMMIT, "success": True}

    def valid(self, _path, _body):
        return 200, {"errors": [], "warnings": []}

    def fault_of(self, path):
        """Return the status of a fault for this request, None for none."""
        for number, (word, status) in enumerate(self.faults):
            if word in path:
                del self.faults[number]
                return status
        return None


ROUTES = (
    ("POST", r"/api/repos/create", "create"),
    ("POST", r"/api/validate-yaml", "valid"),
    ("GET", r"/api/models/[^/]+/[^/]+/tree/.+", "tree"),
    ("POST", r"/api/models/[^/]+/[^/]+/preupload/.+", "preupload"),
    ("POST", r"/api/models/[^/]+/[^/]+/commit/.+", "commit"),
    ("POST", r"/[^/]+/[^/]+\.git/info/lfs/objects/batch", "batch"),
    ("PUT", r"/lfs/[0-9a-f]{64}/\d+", "part"),
    ("POST", r"/complete/[0-9a-f]{64}", "complete"),
)
UNSIGNED = {"part", "complete"}  # the storage's: whoever sends a token there gives it away


class _Uploads(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Stay silent."""

    def do_GET(self):
        self._route("GET")

    def do_POST(self):
        self._route("POST")

    def do_PUT(self):
        self._route("PUT")

    def _route(self, method):
        hub, path = self.server.hub, urlsplit(self.path).path
        data = self._body()
        status = hub.fault_of(path)
        if status == DROPPED:
            self.close_connection = True
            return
        if status is not None:
            self._send(status, {"error": "a fault"})
            return
        name = next((n for m, form, n in ROUTES if m == method and re.fullmatch(form, path)), None)
        if name is None:
            self._send(404, {"error": f"no such page: {method} {path}"})
            return
        hub.counts[name] += 1
        login = self.headers.get("Authorization")
        if login != (None if name in UNSIGNED else f"Bearer {TOKEN}"):
            self._send(401, {"error": "Invalid credentials in Authorization header"})
            return
        body = data if name == "part" else _parsed(data, lines=name == "commit")
        self._send(*getattr(hub, name)(path, body))

    def _body(self):
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        data = b""
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def _send(self, status, answer):
        body = json.dumps(answer).encode()
        self.send_response(status)
        if status == 404:
            self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Type", "application/json")
        self.send_header("ETag", '"part"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _parsed(data, *, lines):
    if lines:
        return [json.loads(line) for line in data.splitlines()]
    return json.loads(data) if data else None
