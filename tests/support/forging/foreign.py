"""Files that users often mistake for GGUF."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import struct
import zipfile
from collections.abc import Iterator

from forging.case import Case, refuse

LFS_POINTER = b"""version https://git-lfs.github.com/spec/v1
oid sha256:4665fc9a1bbc5df8a1bd2e8b25e4b6a4f4b5b4a2ad7ed0e5f2f3d2f6d9e3c1b0
size 4368438944
"""


def cases() -> Iterator[Case]:
    yield from _texts()
    yield from _checkpoints()
    yield from _archives()
    yield from _legacy()
    yield refuse("empty", "empty", "not a byte was written", b"")
    yield refuse("zeros", "zeros", "room was made for a download that never came", bytes(4096))
    yield refuse("one-zero", "zeros", "the shortest file of zeros", b"\0")
    noise = bytes((i * 73 + 41) % 256 for i in range(256))
    yield refuse("noise", "magic", "nothing known begins like this", noise)
    yield refuse("program", "magic", "an ELF program", b"\x7fELF\2\1\1" + bytes(64))


def _texts() -> Iterator[Case]:
    pages = {
        "html": b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>",
        "html-lower-case": b"<html><body>404</body></html>",
        "html-after-space": b"\r\n\t <!doctype HTML><p>gone",
        "html-after-mark": b"\xef\xbb\xbf<html></html>",
        "html-after-comment": b"<!-- cached --><html></html>",
        "xml-of-a-store": b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>',
    }
    for name, page in pages.items():
        yield refuse(name, "html", "the download was answered with a page", page)
    why = "the repository was cloned without Git LFS"
    yield refuse("lfs-pointer", "git-lfs-pointer", why, LFS_POINTER)
    unsized = LFS_POINTER.split(b"size")[0]
    yield refuse("lfs-pointer-without-size", "git-lfs-pointer", why, unsized)
    huge = LFS_POINTER.replace(b"4368438944", b"9" * 400)
    yield refuse("lfs-pointer-of-absurd-size", "git-lfs-pointer", why, huge)
    why = "the download was answered with a message"
    yield refuse("text", "text", why, b"Entry not found")
    yield refuse("text-in-json", "text", why, b'{"error":"Invalid credentials"}\n')
    yield refuse("text-gguf-in-words", "text", why, b"gguf")


def _checkpoints() -> Iterator[Case]:
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    file = struct.pack("<Q", len(header)) + header + bytes(4)
    why = "a Hugging Face checkpoint that was not converted"
    yield refuse("safetensors", "safetensors", why, file)
    yield refuse("safetensors-cut", "safetensors", "and cut short too", file[:20])
    why = "PyTorch saves a zip archive with a pickle inside"
    torch = _zip({"archive/data.pkl": b"\x80\x02.", "archive/data/0": bytes(8)})
    yield refuse("pytorch", "pytorch", why, torch)
    newer = _zip({"archive/.format_version": b"1", "archive/data.pkl": b"\x80\x02."})
    yield refuse("pytorch-format-version-first", "pytorch", why, newer)
    for protocol in (2, 3, 4, 5):
        why = "an old PyTorch checkpoint is a bare pickle, which must never be run"
        data = pickle.dumps({"w": [1.0]}, protocol)
        yield refuse(f"pickle-protocol-{protocol}", "pickle", why, data)


def _zip(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return out.getvalue()


def _archives() -> Iterator[Case]:
    data = bytes(100)
    why = "the model was packed"
    yield refuse("zip", "zip", why, _zip({"model.gguf": data}))
    packed = {
        "gzip": gzip.compress(data, mtime=0),
        "bzip2": bz2.compress(data),
        "xz": lzma.compress(data),
        "zstd": b"\x28\xb5\x2f\xfd\x04\x00" + data,
        "7-zip": b"7z\xbc\xaf\x27\x1c\0\4" + data,
    }
    for name, content in packed.items():
        yield refuse(name, "compressed", why, content)


def _legacy() -> Iterator[Case]:
    for name, magic in {
        "ggml": 0x67676D6C,
        "ggmf": 0x67676D66,
        "ggjt": 0x67676A74,
        "ggla": 0x67676C61,
    }.items():
        why = "a format of llama.cpp before GGUF"
        content = struct.pack("<II", magic, 1) + bytes(28)
        yield refuse(f"legacy-{name}", "legacy-ggml", why, content)
