"""docs/troubleshooting.md quotes messages that ggufkit still prints."""

from __future__ import annotations

import re
from pathlib import Path

import ggufkit

PACKAGE = Path(ggufkit.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "troubleshooting.md"
QUOTED = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text("utf-8"), re.MULTILINE)
BREAK = re.compile(r'"\s*\n\s*f?"')  # between the parts of a long string


def test_every_quoted_message_is_in_the_source():
    files = [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.toml")]
    text = "".join(BREAK.sub("", path.read_text("utf-8")) for path in files)
    assert QUOTED
    assert [message for message in QUOTED if message not in text] == []
