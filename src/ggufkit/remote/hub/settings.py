"""The settings that programs for the Hugging Face Hub share: endpoint, token, cache, offline mode.

They are read as huggingface_hub reads them, without importing it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from ggufkit.errors import RemoteDeniedError
from ggufkit.remote.url import Login, Url
from ggufkit.system.text_file import Most, read_small

ENDPOINT: Final = "https://huggingface.co"
SHORT_HOSTS: Final = ("huggingface.co", "hf.co")  # in names that people write and paste
OFFLINE: Final = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_TOKENS: Final = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_TRUE: Final = {"1", "ON", "YES", "TRUE"}


def endpoint() -> Url:
    """Return the address of the Hub, or of the mirror in HF_ENDPOINT."""
    return Url.parse((os.environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/"))


def offline_reason() -> str:
    """Return the environment variable that forbids requests, "" if none does."""
    return next((name for name in OFFLINE if is_on(name)), "")


def is_on(name: str) -> bool:
    """Whether an environment variable is set to one of the words for true."""
    return os.environ.get(name, "").upper() in _TRUE


def cache_home() -> Path:
    """Return the folder of the caches of all programs."""
    return folder_of("XDG_CACHE_HOME") or Path.home() / ".cache"


def home() -> Path:
    """Return the folder of all settings and caches of the Hub."""
    return folder_of("HF_HOME") or cache_home() / "huggingface"


def cache_folder() -> Path:
    """Return the folder of downloaded repositories."""
    return folder_of("HF_HUB_CACHE") or folder_of("HUGGINGFACE_HUB_CACHE") or home() / "hub"


def folder_of(name: str) -> Path | None:
    """Return the folder that an environment variable names."""
    value = os.environ.get(name)
    return Path(os.path.expandvars(value)).expanduser() if value else None


def login() -> Login | None:
    """Return the login for the endpoint alone, None without a token.

    Raises RemoteDeniedError for a token that no header can hold; it is not shown.
    """
    secret = token()
    if not secret:
        return None
    if not (secret.isascii() and secret.isprintable() and " " not in secret):
        raise RemoteDeniedError(
            "the token of the Hugging Face Hub has characters that no token has",
            remedy=f"Correct {_TOKENS[0]} or the file {_token_path()}",
        )
    return Login(endpoint().origin, f"Bearer {secret}")


def token() -> str:
    """Return the user's token, "" if there is none."""
    for name in _TOKENS:
        if value := os.environ.get(name, "").strip():
            return value
    if is_on("HF_HUB_DISABLE_IMPLICIT_TOKEN"):
        return ""
    with contextlib.suppress(OSError, ValueError):
        return read_small(_token_path(), Most.POINTER).decode().strip()
    return ""


def _token_path() -> Path:
    return folder_of("HF_TOKEN_PATH") or home() / "token"
