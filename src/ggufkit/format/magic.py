"""Recognise what a file is when it is not GGUF."""

from __future__ import annotations

import re
from typing import Final

from ggufkit.format.types import MAGIC
from ggufkit.rules.findings import Finding, finding

HEAD_BYTES: Final = 512  # the most that any recognition below reads
MAX_SAFETENSORS_HEADER: Final = 100_000_000  # bytes of JSON; the limit of the format's own reader

# Magic bytes of the formats before GGUF, in file order (little-endian words).
_LEGACY: Final = {
    b"lmgg": "GGML (unversioned)",
    b"fmgg": "GGMF",
    b"tjgg": "GGJT",
    b"algg": "GGLA (LoRA)",
}
_COMPRESSED: Final = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"7z\xbc\xaf": "7-zip",
}
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_MARKUP: Final = re.compile(rb"\s*<(?:!doctype|!--|html|head|body|\?xml)", re.IGNORECASE)
_LFS: Final = b"version https://git-lfs.github.com/spec/"
_LFS_SIZE: Final = re.compile(rb"\nsize (\d{1,19})\b")
_PICKLE: Final = re.compile(rb"\x80[\x02-\x05]")
_TORCH_ENTRIES: Final = (b"/data.pkl", b"/version", b"/.format_version", b"/byteorder")


def is_model(head: bytes) -> bool:
    """Whether a file that begins with `head` is one of GGUF, or of the formats before it."""
    return head.startswith((MAGIC, *_LEGACY))


def is_safetensors(head: bytes) -> bool:
    """Whether a file that begins with `head` is one of safetensors."""
    return int.from_bytes(head[:8], "little") <= MAX_SAFETENSORS_HEADER and head[8:9] == b"{"


def identify(head: bytes, size: int) -> Finding:
    """Return the finding that names the format of a file that begins with `head`, not GGUF.

    `size` is the file's size in bytes. The last resort is the plain "magic" finding.
    """
    if size == 0:
        return finding("empty", 0)
    return _by_text(head) or _by_magic(head) or finding("magic", 0, found=head[:4])


def _by_text(head: bytes) -> Finding | None:
    text = head.removeprefix(_BYTE_ORDER_MARK)
    if text.startswith(_LFS):
        match = _LFS_SIZE.search(text)
        size = f"{int(match[1])} bytes" if match else "of unknown size"
        return finding("git-lfs-pointer", 0, size=size)
    if _MARKUP.match(text):
        return finding("html", 0)
    begin = text[:40].decode("ascii", "replace")
    if begin.strip() and all(char.isprintable() or char in "\r\n\t" for char in begin):
        return None if "\ufffd" in begin else finding("text", 0, found=begin)
    return None


def _by_magic(head: bytes) -> Finding | None:
    if head.startswith(b"PK\x03\x04"):
        return finding("pytorch" if any(name in head for name in _TORCH_ENTRIES) else "zip", 0)
    for rule, names in (("legacy-ggml", _LEGACY), ("compressed", _COMPRESSED)):
        for magic, name in names.items():
            if head.startswith(magic):
                return finding(rule, 0, what=name)
    if is_safetensors(head):
        return finding("safetensors", 0)
    if _PICKLE.match(head):
        return finding("pickle", 0)
    return None if head.strip(b"\0") else finding("zeros", 0)
