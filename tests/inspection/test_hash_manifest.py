"""Manifests of digests: which lines are accepted, and that reading takes linear time."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ggufkit.inspection.hash_manifest import read_manifest


def read(tmp_path, text):
    path = tmp_path / "manifest"
    path.write_text(text, encoding="utf-8")
    return read_manifest(path)


def test_output_of_a_check_is_a_manifest(tmp_path):
    manifest = read(
        tmp_path, "  sha256  0a  m.gguf:a b  -  Ok \nsha1 1b m - x\nxxh64 2c m - Not Found\n"
    )
    assert manifest.digests == {
        ("sha256", "m.gguf:a b"): "0a", ("sha1", "m - x"): "1b", ("xxh64", "m"): "2c",
    }  # fmt: skip
    assert manifest.algorithms == ("sha256", "sha1", "xxh64")


@pytest.mark.parametrize(
    "line",
    ["a b" + " " * 400_000, "a b c" + " " * 400_000 + "d", "a b c" + " - " * 200_000 + "d"],
)
def test_long_line_is_read_quickly(tmp_path, line):
    path = tmp_path / "manifest"
    path.write_text(f"{line}\nsha256 0a m\n")
    code = (
        "import sys, pathlib, ggufkit.inspection.hash_manifest as m;"
        "m.read_manifest(pathlib.Path(sys.argv[1]))"
    )
    # Quadratic time would be half an hour.
    subprocess.run([sys.executable, "-c", code, path], timeout=120, check=True)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_reads_a_manifest_of_a_windows_shell(tmp_path, encoding):
    path = tmp_path / "manifest"
    path.write_text("xxh64     0123456789abcdef  größe.gguf\n", encoding=encoding)
    manifest = read_manifest(path)
    assert manifest.digests == {("xxh64", "größe.gguf"): "0123456789abcdef"}
