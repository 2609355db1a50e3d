"""Recognise what people really have when a file is not GGUF."""

from __future__ import annotations

import re
from typing import Final

from ggufkit.findings import Finding, finding

HEAD_BYTES: Final = 512  # as much of the beginning as any recognition below looks at

# Magic bytes of the formats before GGUF, as they stand in the file (little-endian words).
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
_HTML: Final = re.compile(rb"\s*(?:\xef\xbb\xbf)?\s*<(?:!doctype\s+html|html|head|\?xml)", re.I)
_LFS: Final = b"version https://git-lfs.github.com/spec/"


def identify(head: bytes, size: int) -> Finding:
    """Return the finding that says what a file with the first bytes `head` is instead of GGUF.

    `size` is the file's size in bytes. The last resort is the plain "magic" finding.
    """
    if size == 0:
        return finding("empty", 0)
    if head.startswith(_LFS):
        found = re.search(rb"\nsize (\d+)", head)
        return finding("git-lfs-pointer", 0, size=f" of {int(found[1])} bytes" if found else "")
    if _HTML.match(head):
        return finding("html", 0)
    if head.startswith(b"PK\x03\x04"):
        inside = b"data.pkl" in head or b"/version" in head or b".format_version" in head
        return finding("pytorch" if inside else "zip", 0)
    return _by_magic(head, size)


def _by_magic(head: bytes, size: int) -> Finding:
    for magic, what in _LEGACY.items():
        if head.startswith(magic):
            return finding("legacy-ggml", 0, what=what)
    for magic, what in _COMPRESSED.items():
        if head.startswith(magic):
            return finding("compressed", 0, what=what)
    if _is_safetensors(head, size):
        return finding("safetensors", 0)
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return finding("pickle", 0)
    if not head.strip(b"\0"):
        return finding("zeros", 0)
    return finding("magic", 0, found=repr(head[:4])[1:])


def _is_safetensors(head: bytes, size: int) -> bool:
    """Whether the file begins with a plausible length and then a JSON object."""
    length = int.from_bytes(head[:8], "little")
    return 2 <= length <= max(size - 8, 0) and head[8:].lstrip().startswith(b"{")
