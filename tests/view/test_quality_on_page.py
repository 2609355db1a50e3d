"""What `eval` measured, next to the sizes of models, on the page in Chromium."""

from __future__ import annotations

import pytest

import ggufkit
from browser_tab import PHONE, Tab
from ggufkit.evaluation.quality_rows import QualityRow
from ggufkit.view.page_model import PageModel

NONE = "\u2013"
pytestmark = [pytest.mark.browser, pytest.mark.real]


@pytest.fixture(scope="module")
def models(tmp_path_factory, smollm2):
    """A model and two quants of it with measured qualities, and one without."""
    folder = tmp_path_factory.mktemp("quants")
    pages = [PageModel(str(smollm2), ggufkit.open(smollm2))]
    for number, recipe in enumerate(("Q4_0", "Q2_K", "Q8_0")):
        path = folder / f"m-{recipe}.gguf"
        base = pages[0].model
        base.replace(tensors=list(base.tensors.values())[:9]).quantize(
            recipe, allow_requantize=True
        ).write(path)
        pages.append(PageModel(str(path), ggufkit.open(path)))
        row = QualityRow(
            path.name, path.stat().st_size, 9.1234, 0.1 + number, 0.5678, 0.01 * (number + 1)
        )
        pages[-1].set_quality([row] if recipe != "Q8_0" else [], "wiki.json")
    return pages


@pytest.fixture(scope="module")
def server(run_server, models):
    with run_server(*models) as running:
        yield running


def test_the_overview_shows_each_model_with_its_divergence_beside_its_size(tab, models):
    page = tab.show("overview", 1)
    cells = page.get_by_role("table", name="Models").locator("tbody tr")
    rows = [row.locator("td").all_text_contents() for row in cells.all()]
    largest_first = sorted(models, key=lambda model: -model.nbytes_on_disk)
    assert [row[1] for row in rows] == [
        f"{model.nbytes_on_disk / 1e6:.1f} MB" for model in largest_first
    ]
    figures = {row[0]: (row[2], row[4]) for row in rows}
    assert figures["m-Q4_0"] == ("0.100000 ± 0.010000", "9.1234 ± 0.5678")
    assert figures["m-Q2_K"] == ("1.100000 ± 0.020000", "9.1234 ± 0.5678")
    assert figures["m-Q8_0"] == (NONE, NONE)
    (low, high) = (0.1 - 1.96 * 0.01, 0.1 + 1.96 * 0.01)
    assert f"{low:.4g} to {high:.4g}" in page.locator(".interval title").all_text_contents()
    tiles = dict(zip(tab.texts(".tile > span"), tab.texts(".tile"), strict=True))
    assert tiles["Mean KLD"] == f"Mean KLD0.195%: {low:.3g} to {high:.3g}; PPL 9.123 ± 0.568"


def test_a_model_without_a_measurement_has_no_tile(tab):
    tab.show("overview", 3)
    assert "Mean KLD" not in tab.texts(".tile > span")


def test_a_comparison_shows_the_divergence_beside_the_size(tab, models):
    page = tab.show("compare", 0, other=2)
    table = page.get_by_role("table", name="Two models")
    row = table.locator("tr", has_text="Mean KLD").locator("td").all_text_contents()
    assert row == ["Mean KLD", NONE, "1.100000 ± 0.020000"]
    sizes = {model.name: f"{model.nbytes_on_disk / 1e6:.1f} MB" for model in models}
    captions = tab.texts(".heats figcaption")
    assert f"m-Q2_K{sizes[models[2].name]}, KLD 1.100000 ± 0.020000" in captions
    assert f"m-Q8_0{sizes[models[3].name]}" in captions
    page.wait_for_selector("text=All errors are measured", timeout=60_000)


def test_the_models_fit_on_a_phone(browser, server):
    context = browser.new_context(viewport=PHONE)
    page = Tab(context, server).show("overview", 0)
    page.wait_for_load_state("networkidle")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    context.close()
