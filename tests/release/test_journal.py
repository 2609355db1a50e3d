"""The journal of a release is read as carefully as any file: another may have written it."""

from __future__ import annotations

import copy
import json

import pytest

from ggufkit.errors import FormatError
from ggufkit.release.journal import JOURNAL, read_journal

FILE = {"nbytes": 5, "sha256": "ab"}
STEP = {"inputs": "ab", "files": {"m.gguf": FILE}, "facts": {}}
WHOLE = {"steps": {"base": STEP}, "published": {"m.gguf": "ab"}}


def test_what_a_run_wrote_is_read(tmp_path):
    (tmp_path / JOURNAL).write_text(json.dumps({"ggufkit": "1", **WHOLE}))
    assert read_journal(tmp_path) == WHOLE


@pytest.mark.parametrize("name", ["../m.gguf", "/etc/passwd", "a/b", "a\\b", "c:x", "", ".", ".."])
@pytest.mark.parametrize("place", [("steps", "base", "files"), ("published",)])
def test_a_path_in_a_journal_is_refused(name, place, tmp_path):
    journal = copy.deepcopy(WHOLE)
    files = journal
    for key in place:
        files = files[key]
    files[name] = files.pop("m.gguf")
    (tmp_path / JOURNAL).write_text(json.dumps(journal))
    with pytest.raises(FormatError, match="not the journal of a release"):
        read_journal(tmp_path)


@pytest.mark.parametrize("odd", [None, 1, -1, True, 10**400, "x", [], {}, {"": None}, ["x"]])
@pytest.mark.parametrize(
    "path",
    [
        ("steps",), ("published",), ("steps", "base"), ("steps", "base", "inputs"),
        ("steps", "base", "files"), ("steps", "base", "facts"),
        ("steps", "base", "files", "m.gguf"), ("steps", "base", "files", "m.gguf", "nbytes"),
        ("published", "m.gguf"),
    ],
)  # fmt: skip
def test_odd_values_are_read_or_refused(odd, path, tmp_path):
    journal = copy.deepcopy(WHOLE)
    inner = journal
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = odd
    (tmp_path / JOURNAL).write_text(json.dumps(journal))
    try:
        steps = read_journal(tmp_path)["steps"]
    except FormatError:
        return
    for step in steps.values():
        assert all(file["nbytes"] >= 0 for file in step["files"].values())
