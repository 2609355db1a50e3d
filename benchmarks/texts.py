"""Texts of three domains for training, calibration and measuring, with no document in two parts.

The prose is Django's manual, the code is its Python modules, and the other languages are the
translations of its messages. A document is a file, or a message. Its name decides its part.
"""

from __future__ import annotations

import gettext
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import real

LANGUAGES: Final = ("cs", "da", "de", "es", "fr", "it", "nl", "pl", "pt", "pt_BR", "ro", "sv")
HELD_OUT, CALIBRATION, TRAINING = "held-out", "calibration", "training"
SHARES: Final = {HELD_OUT: range(8), CALIBRATION: range(8, 16), TRAINING: range(16, 100)}

Document = tuple[str, str]  # a name and a text


def files(folder: Path, pattern: str) -> Iterator[Document]:
    """Yield the files of a folder by their names, without translations and notes of releases."""
    for path in sorted(folder.rglob(pattern)):
        name = path.relative_to(folder).as_posix()
        text = path.read_text(errors="ignore")
        if text.strip() and "locale/" not in name and not name.startswith("releases/"):
            yield name, text


def _messages(folder: Path) -> Iterator[Document]:
    """Yield each message once; all its translations belong to one part."""
    for language in LANGUAGES:
        for path in sorted(folder.rglob(f"locale/{language}/LC_MESSAGES/*.mo")):
            with path.open("rb") as file:
                known = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined] # noqa: SLF001
            for source, text in known.items():
                name = source if isinstance(source, str) else source[0]
                if name and len(text.split()) > 2:
                    yield name, text


DOMAINS: Final[dict[str, Callable[[], Iterator[Document]]]] = {
    "prose": lambda: files(real.django() / "docs", "*.txt"),
    "code": lambda: files(real.django() / "django", "*.py"),
    "translations": lambda: _messages(real.django() / "django"),
}


def documents(domain: str, part: str) -> list[str]:
    """Return the documents of one part of a domain, in an order that has no topics in it."""
    return shuffled(
        (name, text)
        for name, text in DOMAINS[domain]()
        if zlib.crc32(name.encode()) % 100 in SHARES[part]
    )


def shuffled(documents: Iterable[Document]) -> list[str]:
    """Return the texts of documents in an order that has no topics in it."""
    return sorted((text for _, text in documents), key=lambda text: zlib.crc32(text.encode()))
