"""Names of models on the Hugging Face Hub, as people write and paste them.

hf://org/repo                        the model that llama.cpp would take
hf://org/repo@revision/a/file.gguf   a file, any shard of a set, or a folder with one model
hf://org/repo:Q4_K_M                 the file or set of this quant
hf.co/org/repo:Q4_K_M                as Ollama writes it
org/repo:Q4_K_M                      as llama.cpp's -hf takes it, unless a file has this name
https://huggingface.co/org/repo/blob/main/file.gguf   as browsers show it
"""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple
from urllib.parse import unquote

from ggufkit.errors import RemoteError, brief
from ggufkit.remote.hub.repo_file import MAIN, is_inside
from ggufkit.remote.hub.settings import SHORT_HOSTS, endpoint
from ggufkit.remote.url import scheme_of

SCHEME: Final = "hf"
_PART: Final = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
_TAG: Final = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?"
_REVISION: Final = r"(?:refs/(?:pr|convert)/[A-Za-z0-9._-]{1,64}|[A-Za-z0-9][A-Za-z0-9._%-]{0,127})"
_NAME: Final = re.compile(
    rf"(?P<repo>{_PART}/{_PART})(?:@(?P<revision>{_REVISION}))?"
    rf"(?::(?P<tag>{_TAG})|/(?P<path>.*))?/?",
    re.ASCII | re.DOTALL,
)
_TAGGED: Final = re.compile(rf"{_PART}/{_PART}:{_TAG}", re.ASCII)
_PAGE: Final = re.compile(
    rf"(?P<repo>{_PART}/{_PART})"
    rf"(?:/(?:blob|resolve|raw|tree)/(?P<revision>{_REVISION})(?:/(?P<path>[^?#]*))?)?/?(?:[?#].*)?",
    re.ASCII | re.DOTALL,
)
_NO_MODELS: Final = ("datasets", "spaces", "models", "api")
LATEST: Final = "latest"  # Ollama's tag for no particular quant


class HubName(NamedTuple):
    """The parts of a name; `path` and `tag` are empty where the name has none."""

    repository: str
    revision: str = MAIN
    path: str = ""
    tag: str = ""

    def __str__(self) -> str:
        revision = "" if self.revision == MAIN else f"@{self.revision}"
        rest = f":{self.tag}" if self.tag else f"/{self.path}" if self.path else ""
        return f"{SCHEME}://{self.repository}{revision}{rest}"


def is_hub_name(name: str) -> bool:
    """Whether `name` is a model on the Hub; a file with this name comes first."""
    if scheme_of(name) == SCHEME:
        return True
    if scheme_of(name):
        return _page_of(name) is not None
    return bool(_TAGGED.fullmatch(name) or _short(name)) and not os.path.lexists(name)


def parse_hub_name(name: str) -> HubName:
    """Return the parts of a name; RemoteError for a text that no name can be."""
    scheme = scheme_of(name)
    if scheme == SCHEME:
        return _parsed(name[len("hf://") :], name)
    if scheme:
        page = _page_of(name)
        return page if page is not None else _refuse(name)
    return _parsed(_short(name) or name, name)


def _parsed(text: str, name: str) -> HubName:
    match = _NAME.fullmatch(text)
    if not match or text.split("/", 1)[0] in _NO_MODELS:
        return _refuse(name)
    path, tag = (match["path"] or "").rstrip("/"), match["tag"] or ""
    if path and not is_inside(path):
        return _refuse(name)
    revision = unquote(match["revision"] or MAIN)
    return HubName(match["repo"], revision, path, "" if tag.lower() == LATEST else tag)


def _refuse(name: str) -> HubName:
    raise RemoteError(
        f"{brief(name)} is not the name of a model on the Hub",
        remedy="Write hf://org/repo:Q4_K_M, or hf://org/repo/file.gguf",
    )


def _short(name: str) -> str:
    """Return what follows the Hub's host in a name without a scheme, "" for any other name."""
    host, slash, rest = name.partition("/")
    return rest if slash and host.lower() in SHORT_HOSTS else ""


def _page_of(name: str) -> HubName | None:
    scheme, _, rest = name.partition("://")
    authority, _, path = rest.partition("/")
    base = endpoint()
    is_hub = authority.lower() in (base.authority, *SHORT_HOSTS)
    match = _PAGE.fullmatch(path) if is_hub and scheme.lower() in ("http", "https") else None
    if not match or path.split("/", 1)[0] in _NO_MODELS:
        return None
    file = unquote(match["path"] or "").rstrip("/")
    if file and not is_inside(file):
        return None
    return HubName(match["repo"], unquote(match["revision"] or MAIN), file)
