"""Say in each translation which text it translates: `tools/stamp_translations.py`.

Run it after you brought the translations up to date. With --check, as in `make lint`, it only
prints a warning for each translation that is older than its original: a stale translation is no
reason to refuse a correction of the original.
"""

from __future__ import annotations

import hashlib
import re
import sys
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


def is_current(original: Path, translation: Path) -> bool:
    """Whether a translation was made from its original as it is now."""
    return translation.read_text("utf-8").startswith(stamp(original))


def main(arguments: list[str]) -> None:
    """Stamp the translations, or warn of those that are stale."""
    pairs = [(original, path) for original in ORIGINALS for path in translations(original)]
    for original, path in pairs:
        if arguments == ["--check"]:
            if not is_current(original, path):
                print(f"warning: {path.name} is older than {original.name}", file=sys.stderr)
        else:
            text = _STAMP.sub("", path.read_text("utf-8"))
            path.write_text(stamp(original) + text, "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
