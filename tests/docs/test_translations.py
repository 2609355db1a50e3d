"""Translations are as new as their originals, and show the same code and links."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import stamp_translations  # noqa: E402 (a tool, not a package)

PAIRS = [
    (original, path)
    for original in stamp_translations.ORIGINALS
    for path in stamp_translations.translations(original)
]
by_page = pytest.mark.parametrize(("original", "page"), PAIRS, ids=lambda path: path.name)


@by_page
def test_translation_is_not_older_than_its_original(original, page):
    begins = page.read_text("utf-8").startswith(stamp_translations.stamp(original))
    assert begins, f"{original.name} changed: translate that in {page.name}, and stamp it"


@by_page
def test_translation_shows_the_code_of_its_original(original, page):
    assert _code(page) == _code(original)


@by_page
def test_translation_links_to_the_pages_of_its_original(original, page):
    assert _links(original) <= _links(page)


def _code(page):
    return re.findall(r"^```\w+\n.*?^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def _links(page):
    """Return the pages that a page links to; a translation may link to another one."""
    found = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text("utf-8"))
    return {re.sub(r"\.(ja|ko|zh)\.md$", ".md", link) for link in found}
