"""Translations that are not stale show the code and the links of their originals."""

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


@pytest.fixture(params=PAIRS, ids=lambda pair: pair[1].name)
def pair(request):
    """An original and its translation, if that is not stale."""
    if not stamp_translations.is_current(*request.param):
        pytest.skip("the original changed since it was translated")
    return request.param


def test_translation_shows_the_code_of_its_original(pair):
    original, page = pair
    assert _code(page) == _code(original)


def test_translation_links_to_the_pages_of_its_original(pair):
    original, page = pair
    assert _links(original) <= _links(page)


def test_stale_translation_only_causes_a_warning(tmp_path, monkeypatch, capsys):
    original = tmp_path / "README.md"
    original.write_text("one\n", "utf-8")
    for page in stamp_translations.translations(original):
        page.write_text("eins\n", "utf-8")
    monkeypatch.setattr(stamp_translations, "ORIGINALS", (original,))
    stamp_translations.main([])
    original.write_text("two\n", "utf-8")
    stamp_translations.main(["--check"])
    assert capsys.readouterr().err.splitlines() == [
        f"warning: README.{language}.md is older than README.md" for language in ("ja", "ko", "zh")
    ]


def _code(page):
    return re.findall(r"^```\w+\n.*?^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def _links(page):
    """Return the pages that a page links to; a translation may link to another one."""
    matches = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text("utf-8"))
    return {re.sub(r"\.(ja|ko|zh)\.md$", ".md", link) for link in matches}
