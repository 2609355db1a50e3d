"""Say in each translation which text it translates: `tools/stamp_translations.py`.

Run it after you brought the translations up to date; a test fails while one is older than its
original. `stamped()` returns the translations as they should begin.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
LANGUAGES: Final = ("ja", "ko", "zh")
ORIGINALS: Final = (ROOT / "README.md", ROOT / "docs" / "first-steps.md")
_STAMP: Final = re.compile(r"\A<!-- Translation of .*-->\n\n")


def translations(original: Path) -> list[Path]:
    """Return the paths of the translations of a page."""
    return [original.with_suffix(f".{language}.md") for language in LANGUAGES]


def stamp(original: Path) -> str:
    """Return the first lines of a translation of a page as it is now."""
    digest = hashlib.sha256(original.read_bytes()).hexdigest()[:16]
    return f"<!-- Translation of {original.name}, SHA-256 {digest} -->\n\n"


def stamped() -> dict[Path, str]:
    """Return the text of each translation, with the stamp of its original."""
    return {
        path: stamp(original) + _STAMP.sub("", path.read_text("utf-8"))
        for original in ORIGINALS
        for path in translations(original)
    }


if __name__ == "__main__":
    for page, text in stamped().items():
        page.write_text(text, "utf-8")
