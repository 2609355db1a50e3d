"""What is not GGUF is recognised by its first bytes."""

from __future__ import annotations

import pytest

from ggufkit.format.magic import identify

GIB = 1 << 30


@pytest.mark.parametrize(
    ("head", "rule"),
    [
        (b"<!DOCTYPE html><html>", "html"),
        (b"  \n<HTML lang='en'>", "html"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "git-lfs-pointer"),
        (b"\x48\0\0\0\0\0\0\0" + b'{"__metadata__":{}}', "safetensors"),
        (b"PK\x03\x04" + bytes(26) + b"archive/data.pkl", "pytorch"),
        (b"PK\x03\x04" + bytes(26) + b"model/model.gguf", "zip"),
        (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "pickle"),
        (b"\x1f\x8b\x08\0", "compressed"),
        (b"tjgg\x03\0\0\0", "legacy-ggml"),
        (bytes(512), "zeros"),
        (b"Repository not found", "text"),
        (b"\x89PNG\r\n\x1a\n", "magic"),
        (b"\xff" * 16, "magic"),
    ],
)
def test_recognizes_formats_by_their_first_bytes(head, rule):
    assert identify(head, GIB).rule == rule


def test_recognizes_an_empty_file():
    assert identify(b"", 0).rule == "empty"


def test_lfs_pointer_gives_the_size_of_the_real_file():
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4368438944\n"
    assert "(4368438944 bytes)" in identify(pointer, len(pointer)).message


def test_quotes_text_and_escapes_its_control_characters():
    message = identify(b"Sorry,\tnot found\x0a", 17).message
    assert r"'Sorry,\tnot found\n'" in message


def test_safetensors_needs_a_plausible_length():
    assert identify(b"\xff" * 7 + b"\x7f{", GIB).rule == "magic"


def test_does_not_guess_a_file_of_a_future_pickle_protocol():
    assert identify(b"\x80\x63" + bytes(16), GIB).rule == "magic"
