from __future__ import annotations

import hashlib
import shutil
import subprocess

import pytest

from ggufkit.errors import FormatError
from ggufkit.inspection.file_digest import digest_line, file_digest, read_digests

A, B = "a" * 64, "b" * 64
NAMES = ("model.gguf", "two words.gguf", "back\\slash", "new\nline", "ret\rurn", "*star", " space")


def listed(folder, text, encoding="utf-8"):
    path = folder / "SHA256SUMS"
    path.write_bytes(text.encode(encoding))
    return read_digests(path)


@pytest.mark.skipif(not shutil.which("sha256sum"), reason="sha256sum is not installed")
def test_lines_are_those_of_sha256sum(tmp_path):
    for name in NAMES:
        (tmp_path / name).write_bytes(name.encode())
    arguments = ["sha256sum", "--", *NAMES]
    printed = subprocess.run(arguments, cwd=tmp_path, capture_output=True, check=True).stdout
    ours = [digest_line(file_digest(tmp_path / name), name) for name in NAMES]
    assert printed.decode() == "".join(f"{line}\n" for line in ours)


def test_names_come_back_from_a_list(tmp_path):
    text = "".join(f"{digest_line(A, name)}\n" for name in NAMES)
    assert [digest.name for digest in listed(tmp_path, text).digests] == list(NAMES)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_list_may_come_from_windows(tmp_path, encoding, end):
    manifest = listed(tmp_path, f"{A} *größe.gguf{end}{B.upper()}  m.gguf{end}", encoding)
    assert manifest.digests == ((A, "größe.gguf"), (B, "m.gguf"))


@pytest.mark.parametrize(
    "text",
    [
        f"{A}\n",
        f"sha256:{A}\n",
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{A}\nsize 12\n",
    ],
)
def test_a_digest_alone_is_of_any_file(tmp_path, text):
    manifest = listed(tmp_path, text)
    assert (manifest.of("m.gguf"), manifest.misformed) == (A, 0)


def test_tagged_lines_are_read(tmp_path):
    assert listed(tmp_path, f"SHA256 (a (1).gguf) = {A}\n").of("a (1).gguf") == A


def test_a_file_is_found_by_its_last_name_where_that_is_clear(tmp_path):
    manifest = listed(tmp_path, f"{A}  x/one.gguf\n{A}  x/two.gguf\n{B}  y/two.gguf\n")
    assert manifest.of("/models/one.gguf") == A
    assert manifest.of("two.gguf") is None
    assert manifest.of("y/two.gguf") == B
    assert manifest.of("three.gguf") is None


def test_lines_without_a_digest_are_counted(tmp_path):
    manifest = listed(tmp_path, f"# made by hand\n\n{A}  m.gguf\n{A[1:]}  n.gguf\nhello\n")
    assert (len(manifest.digests), manifest.misformed) == (1, 2)


def test_a_manifest_of_tensors_is_refused_with_the_remedy(tmp_path):
    with pytest.raises(FormatError, match="checks a manifest of tensors"):
        listed(tmp_path, f"sha256    {A}  m.gguf:x\n")


def test_large_files_are_hashed_in_chunks(tmp_path):
    data = bytes(range(256)) * 10_000
    (tmp_path / "m").write_bytes(data)
    steps = []
    assert file_digest(tmp_path / "m", steps.append) == hashlib.sha256(data).hexdigest()
    assert sum(steps) == len(data)
    assert len(steps) > 1
