"""Remove what only some platforms have, so that tests use the fallbacks."""

from __future__ import annotations

import os

import pytest

posix = pytest.mark.skipif(os.name == "nt", reason="Windows has no such files")
CONTENT = bytes(range(256)) * 40  # of a file that is long enough to be cut, moved and changed
FALLBACKS = {
    "everything": {},
    "no kernel copy": {"copy_file_range": None},
    "no positional calls": {"positional": False},
    "neither": {"copy_file_range": None, "positional": False},
}
