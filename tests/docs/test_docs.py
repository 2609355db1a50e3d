"""Links and indexes of the documentation are complete."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import write_indexes  # noqa: E402 (a tool, not a package)

PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_have_a_target(page):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_index_links_to_every_page():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = {path.name for path in ROOT.glob("docs/*.md")} - {"index.md"}
    assert {page for page in pages if f"({page})" not in index} == set()


def test_lists_of_commands_match_the_output_of_write_indexes():
    written = write_indexes.pages()
    assert {path: path.read_text(encoding="utf-8") for path in written} == written
