"""Links and indexes of the documentation are complete."""

from __future__ import annotations

import itertools
import re
import sys
from pathlib import Path

import pytest

import ggufkit._native as _native

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import draw_charts  # noqa: E402 (a tool, not a package)
import write_indexes  # noqa: E402
import write_types  # noqa: E402

PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/**/*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_have_a_target(page):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def headings(page):
    """Return the anchors of a page, as GitHub makes them of its headings."""
    text = re.sub(
        r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    titles = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_headings_have_a_target(page):
    links = re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", page.read_text(encoding="utf-8"))
    targets = [(page.parent / link if link else page, anchor) for link, anchor in links]
    assert [f"{link}#{anchor}" for link, anchor in targets if anchor not in headings(link)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_headings_descend_one_level_at_a_time(page):
    text = re.sub(
        r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    levels = [len(hashes) for hashes in re.findall(r"^(#+) ", text, flags=re.MULTILINE)]
    assert [pair for pair in itertools.pairwise(levels) if pair[1] > pair[0] + 1] == []


def test_index_links_to_every_page():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    docs = ROOT / "docs"
    written = [*docs.glob("*.md"), *docs.glob("how-to/*.md")]
    pages = {path.relative_to(docs).as_posix() for path in written} - {"index.md"}
    assert {page for page in pages if f"({page})" not in index} == set()


def test_lists_of_commands_match_the_output_of_write_indexes():
    written = write_indexes.pages()
    assert {path: path.read_text(encoding="utf-8") for path in written} == written


def test_charts_match_the_tables_of_results():
    drawn = draw_charts.charts()
    assert {path: path.read_text(encoding="utf-8") for path in drawn} == drawn


def is_compiled_from_these_sources():
    """Whether the native core has all types and searches that the sources list."""
    quants = ROOT / "native" / "quants"
    types = "".join(path.read_text("utf-8") for path in quants.glob("types/*.hpp"))
    searches = (quants / "refiners.hpp").read_text("utf-8").count("refiner<Refines")
    counts = types.count("uint32_t id = "), searches
    return counts == (len(_native.codecs("portable")), len(_native.refinable()))


@pytest.mark.skipif(not is_compiled_from_these_sources(), reason="the native core is older")
def test_types_match_the_tables_of_the_code_and_what_was_measured():
    written = write_types.pages()
    assert {path: path.read_text(encoding="utf-8") for path in written} == written


def test_index_tells_four_kinds_of_pages_apart():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    kinds = re.findall(r"^## (.*)$", index, flags=re.MULTILINE)
    assert kinds == ["First steps", "How to", "Reference", "Explanation"]


def test_contributing_names_only_files_that_exist():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:src|native|tests|tools|docs|\.github)/[\w./-]+)`", page)
    assert [path for path in paths if "NAME" not in path and not (ROOT / path).exists()] == []
