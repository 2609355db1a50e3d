"""Every number that the page shows, at random places, is that of NumPy or of the library.

Each check is a row of CHECKS: it opens a view at a place that a seed chooses, and yields what the
page shows next to what is right. So a view is added by one function.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import ggufkit
from browser_tab import shown_number
from ggufkit.view.overview import group_of
from ggufkit.view.page_model import PageModel

pytestmark = [pytest.mark.browser, pytest.mark.real]

BASE, GEMMA, QUANT = range(3)  # models on the page
UNITS = {"bytes": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}
DIGITS = 6e-4  # relative error of four digits, which most numbers have


@pytest.fixture(scope="module")
def models(tmp_path_factory, smollm2, gemma3):
    """SmolLM2, Gemma 3, and Gemma 3's first tensors in another type."""
    part = ggufkit.open(gemma3)
    path = tmp_path_factory.mktemp("numbers") / "quant.gguf"
    tensors = [part[name] for name in list(part.tensors)[1:9]]
    part.replace(tensors=tensors).quantize("Q2_K", allow_requantize=True).write(path)
    return [PageModel(str(file), ggufkit.open(file)) for file in (smollm2, gemma3, path)]


@pytest.fixture(scope="module")
def server(run_server, models):
    with run_server(*models) as running:
        yield running


def nbytes(text):
    """Return a size such as "96.6 MB" in bytes."""
    number, unit = re.search(r"([\d,.]+) (bytes|kB|MB|GB)", text).groups()
    return shown_number(number) * UNITS[unit]


def rounding(text):
    """Return by how much such a size may be wrong: half of its last digit."""
    unit = re.search(r"[\d,.]+ (bytes|kB|MB|GB)", text)[1]
    return 0.0 if unit == "bytes" else 0.0501 * UNITS[unit]


def size(what, text, expected):
    """Return a row for a size in bytes."""
    return what, nbytes(text), pytest.approx(expected, abs=rounding(text))


def number(what, text, expected, digits=DIGITS):
    """Return a row for a number of a few digits."""
    return what, shown_number(text), pytest.approx(expected, rel=digits, abs=1e-12)


def matrix(tensor):
    return tensor.numpy().reshape(-1, tensor.shape[-1]).astype(np.float64)


def chosen(models, random, *, quantized=False, model=None):
    """Return a random model and the number of a random tensor of it."""
    model = int(random.integers(2)) if model is None else model
    rows = [
        row
        for row, tensor in models[model].tensor_rows
        if tensor.type.is_quantized or not quantized
    ]
    return model, int(random.choice(rows))


def table(page, name):
    """Return the cells of a table, row by row, in one go: a histogram has many."""
    rows = page.get_by_role("table", name=name).locator("tbody tr")
    script = "rows => rows.map(row => [...row.querySelectorAll('th, td')].map(c => c.textContent))"
    return rows.evaluate_all(script)


# The checks.


def statistics_of_a_tensor(tab, models, random):
    model, row = chosen(models, random)
    values = matrix(models[model].tensor(row))
    tab.show("tensor", model, t=row).wait_for_selector(".statistics figure")
    facts = tab.facts()
    expected = {
        "Min": values.min(),
        "Max": values.max(),
        "Mean": values.mean(),
        "Standard deviation": values.std(),
        "Norm": np.linalg.norm(values),
    }
    for label, right in expected.items():
        yield label, shown_number(facts[label]), pytest.approx(right, rel=1e-4, abs=1e-9)
    zeros = re.search(r"\(([\d,]+)\)", facts["Zeros"])[1]
    yield "zeros", shown_number(zeros), np.count_nonzero(values == 0)
    share = facts["Zeros"].split("%")[0]
    yield "share of zeros", shown_number(share), pytest.approx(100 * np.mean(values == 0), abs=0.06)


def histogram_of_values(tab, models, random):
    model, row = chosen(models, random)
    values = models[model].tensor(row).numpy().astype(np.float64).ravel()
    page = tab.show("tensor", model, t=row)
    page.wait_for_selector(".statistics figure")
    page.locator(".chart summary").first.click()
    cells = table(page, "Values")
    starts = [shown_number(text.split(" to ")[0]) for text, _ in cells]
    stop = shown_number(cells[-1][0].split(" to ")[1])
    exponent = np.round(np.log2((stop - starts[0]) / len(cells)))  # widths are powers of two
    edges = (np.arange(len(cells) + 1) + np.round(starts[0] / 2**exponent)) * 2**exponent
    counts = np.histogram(values, edges)[0]
    counts[-1] -= np.count_nonzero(values == edges[-1])  # NumPy counts them in the last bin
    for place, (text, count) in enumerate(cells):
        yield f"from {text}", shown_number(count), counts[place]
        yield f"edge {place}", starts[place], pytest.approx(edges[place], rel=1e-3, abs=1e-9)
    bars = page.locator(".chart").first.locator(".bar title").all_text_contents()
    yield "bars", [text.rsplit(": ", 1)[1] for text in bars], [count for _, count in cells]


def levels_of_a_tensor(tab, models, random):
    model, row = chosen(models, random, quantized=True)
    tensor = models[model].tensor(row)
    page = tab.show("tensor", model, t=row)
    page.wait_for_selector(".statistics figure")
    for summary in page.locator(".chart summary").all():
        summary.click()
    yield "sum", sum(shown_number(count) for _, count in table(page, "Levels")), tensor.elements
    groups = sum(shown_number(count) for _, count in table(page, "Scales of groups"))
    yield "groups", tensor.elements % groups, 0


def block_of_an_element(tab, models, random):
    model, row = chosen(models, random, quantized=True)
    tensor = models[model].tensor(row)
    values = matrix(tensor)
    at_row, column = (int(random.integers(count)) for count in values.shape)
    page = tab.show("tensor", model, t=row, row=at_row, column=column)
    page.wait_for_selector("section[aria-live] td")
    place = page.locator("section[aria-live] > p").first.text_content()
    shown_row, first, last, offset = (
        int(text.replace(",", "")) for text in re.findall(r"[\d,]*\d", place)
    )
    kind = tensor.type
    start = column // kind.block_size
    yield "row", shown_row, at_row
    yield "columns", (first, last), (start * kind.block_size, (start + 1) * kind.block_size - 1)
    file = Path(tensor.path).read_bytes()
    yield "offset", offset, tensor.offset + at_row * tensor.row_bytes + start * kind.block_bytes
    stored = file[offset : offset + kind.block_bytes].hex(" ")
    yield "bytes", page.locator("section[aria-live] pre").text_content(), stored
    for cells in table(page, "Values of the block"):
        at_column, scale, level, *shift, value = map(shown_number, cells)
        right = values[at_row, int(at_column)]
        yield f"value {at_column}", value, pytest.approx(right, rel=1e-5, abs=1e-12)
        noise = 2e-6 * (abs(scale * level) + sum(map(abs, shift))) + 1e-12  # six digits each
        yield (
            f"scale and level {at_column}",
            scale * level + sum(shift),
            pytest.approx(right, abs=noise),
        )


def sizes_on_the_map(tab, models, random):
    model = int(random.integers(2))
    tensors = models[model].model.tensors
    page = tab.show("overview", model)
    boxes = page.locator(".box")
    boxes.first.wait_for()
    for box in boxes.all():
        group = box.locator("b").text_content()
        group_nbytes, count = re.fullmatch(
            r"(.+) · ([\d,]+) tensors?", box.locator("small").text_content()
        ).groups()
        inside = [tensor for tensor in tensors.values() if group_of(tensor.name) == group]
        yield size(group, group_nbytes, sum(tensor.nbytes for tensor in inside))
        yield f"tensors of {group}", shown_number(count), len(inside)
    areas = page.locator(".treemap").evaluate(
        "map => [...map.querySelectorAll('.frame')].map(r => r.width.baseVal.value * "
        "r.height.baseVal.value)"
    )
    sizes = sorted((nbytes(text) for text in tab.texts(".box small")), reverse=True)
    shares = np.array(sizes) / sum(sizes)
    yield "areas", areas / np.sum(areas), pytest.approx(shares, abs=2e-3)
    cells = page.locator(".treemap .cell")
    cells.nth(int(random.integers(cells.count()))).hover()
    tip = page.locator(".tip.shown").text_content()
    if "smaller" not in tip:
        name = next(name for name in tensors if tip.startswith(name))
        yield size(name, tip.rsplit(" · ", 1)[1], tensors[name].nbytes)


def bytes_in_the_tree(tab, models, random):
    model = int(random.integers(2))
    tensors = list(models[model].model.tensors.values())
    whole = sum(tensor.nbytes for tensor in tensors)
    layer = int(random.integers(10))
    page = tab.show("tensors", model, open=f"block {layer}")
    inside = [tensor for tensor in tensors if tensor.name.startswith(f"blk.{layer}.")]
    row = page.locator(".branch tr").filter(has=page.get_by_role("button", name=f"block {layer}"))
    count, part, _, share = row.first.locator("td").all_text_contents()
    part_nbytes = sum(tensor.nbytes for tensor in inside)
    yield "count", count, f"{len(inside)} tensors"
    yield "bytes", shown_number(part), part_nbytes
    yield "share", shown_number(share[:-1]), pytest.approx(100 * part_nbytes / whole, abs=0.051)
    sizes = page.locator(".branch .number").all_text_contents()
    yield "all", sum(map(shown_number, sizes)), whole
    rows = page.locator(".branch + tbody tr:visible")
    yield "names", rows.locator("a").all_text_contents(), [tensor.name for tensor in inside]
    place = int(random.integers(len(inside)))
    _, kind, bits, shape, stored, offset, share = rows.nth(place).locator("td").all_text_contents()
    tensor = inside[place]
    yield "type", kind, tensor.type.name
    yield "bits", shown_number(bits), pytest.approx(8 * tensor.nbytes / tensor.elements, abs=0.006)
    yield "shape", shape, " \u00d7 ".join(f"{length:,}" for length in tensor.shape)
    yield "stored", (shown_number(stored), shown_number(offset)), (tensor.nbytes, tensor.offset)
    yield "part", shown_number(share[:-1]), pytest.approx(100 * tensor.nbytes / whole, abs=0.051)


def curves_of_memory(tab, models, random):
    model = int(random.integers(2))
    sequences = int(random.integers(1, 4))
    page = tab.show("memory", model, sequences=sequences, cache="Q8_0")
    page.get_by_role("table", name="Recipes").wait_for()
    options = {"cache_type": "Q8_0", "sequences": sequences}
    trained = models[model].model.metadata[f"{models[model].model.architecture}.context_length"]
    contexts = [2**power for power in range(9, 31) if 2**power < trained] + [trained]
    for kind, recipe in enumerate(table(page, "Recipes"), 1):
        variant = models[model].model
        if recipe[0] != "as it is":
            variant = variant.quantize(recipe[0], allow_requantize=True)
        totals = [ggufkit.estimate(variant, context=n, **options).total for n in contexts]
        yield size(f"{recipe[0]}, first", recipe[1], totals[0])
        yield size(f"{recipe[0]}, last", recipe[2], totals[-1])
        points = page.locator(f".curve.p{kind}").first.get_attribute("points").split()
        heights = np.array([100 - float(point.split(",")[1]) for point in points])
        yield recipe[0], heights / heights[-1], pytest.approx(np.array(totals) / totals[-1])


def memory_by_layer(tab, models, random):
    model = int(random.integers(2))
    context = int(random.integers(1, 16)) * 512
    page = tab.show("memory", model, context=context)
    page.get_by_text("By layer", exact=True).click()
    estimated = ggufkit.estimate(models[model].model, context=context)
    for cells, layer in zip(table(page, "Memory by layer"), estimated.layers, strict=True):
        expected = [layer.number, layer.weights, layer.cache, layer.state]
        yield f"layer {layer.number}", list(map(shown_number, cells)), expected
    legend = dict(zip(tab.texts(".stack .legend li"), tab.texts(".stack .legend b"), strict=True))
    parts = {"weights": "weights", "keys": "cache", "compute": "compute", "output": "output"}
    for text, shown_size in legend.items():
        attribute = parts.get(text.split()[0])
        if attribute:
            yield size(text, shown_size, getattr(estimated, attribute))


def errors_of_tensors(tab, models, random):
    page = tab.show("compare", GEMMA, other=QUANT)
    page.wait_for_selector("text=Overall SNR", timeout=60_000)
    before, after = models[GEMMA].model, models[QUANT].model
    signal = noise = 0.0
    for name, *cells in table(page, "Tensors of both models"):
        if name not in after:
            continue
        old, new = matrix(before[name]), matrix(after[name])
        yield f"types of {name}", cells[:2], [before[name].type.name, after[name].type.name]
        difference = new - old
        if not difference.any():
            yield name, set(cells[2:]), {"same"}
            continue
        rmse = np.sqrt(np.mean(difference**2))
        snr = 20 * np.log10(np.linalg.norm(old) / np.linalg.norm(difference))
        cosine = np.sum(old * new) / np.linalg.norm(old) / np.linalg.norm(new)
        right = (rmse, snr, cosine, np.abs(difference).max())
        for text, figure in zip(cells[2:], right, strict=True):
            yield number(name, text, figure, digits=1e-3)
        signal += np.sum(old**2)
        noise += np.sum(difference**2)
    overall = re.search(r"Overall SNR ([\d.]+) dB", page.locator("main").text_content())[1]
    yield number("overall", overall, 10 * np.log10(signal / noise), digits=1e-3)
    sides = {cells[0]: cells[1:] for cells in table(page, "Two models")}
    for text, model in zip(sides["Bytes of tensors"], (before, after), strict=True):
        yield size("side", text, sum(tensor.nbytes for tensor in model.tensors.values()))
    del random  # all tensors are looked at


def types_of_the_overview(tab, models, random):
    model = int(random.integers(2))
    page = tab.show("overview", model)
    page.get_by_text("All facts").click()
    tensors = list(models[model].model.tensors.values())
    for kind, count, elements, stored, share in table(page, "Types of tensors"):
        same = [tensor for tensor in tensors if tensor.type.name == kind]
        expected = [len(same), sum(t.elements for t in same), sum(t.nbytes for t in same)]
        yield kind, [shown_number(text) for text in (count, elements, stored)], expected
        right = 100 * expected[2] / models[model].nbytes
        yield f"share of {kind}", shown_number(share[:-1]), pytest.approx(right, abs=0.051)


def colours_of_the_layers(tab, models, random):
    page = tab.show("overview", BASE, colour="deviation")
    page.wait_for_selector("text=270 of 270 read", timeout=60_000)
    page.locator(".board").focus()
    for key in random.choice(["ArrowRight", "ArrowDown"], 12):
        page.keyboard.press(str(key))
    text = page.locator(".readout").first.text_content()
    layer, role = re.match(r"layer (\d+), ([\w.]+): ", text).groups()
    values = matrix(models[BASE].model[f"blk.{layer}.{role}"])
    steps = [2 ** max(-(-count // 512) - 1, 0).bit_length() for count in values.shape]
    places = [
        np.minimum(np.arange(0, count, step) + step // 2, count - 1)
        for count, step in zip(values.shape, steps, strict=True)
    ]
    sample = values[np.ix_(*places)]
    figures = re.search(r"deviation ([^,]+), largest ([^,]+), zeros ([\d.]+)%", text).groups()
    yield number("deviation", figures[0], sample.std(), digits=1e-3)
    yield number("largest", figures[1], np.abs(sample).max())
    yield "zeros", shown_number(figures[2]), pytest.approx(100 * np.mean(sample == 0), abs=0.06)


def tokens_of_the_vocabulary(tab, models, random):
    metadata = models[BASE].model.metadata
    tokens = metadata["tokenizer.ggml.tokens"].tolist()
    merges = metadata["tokenizer.ggml.merges"].tolist()
    token = int(random.integers(300, len(tokens)))
    page = tab.show("tokenizer", BASE, q=str(token))
    row = page.locator(".token-list li").first
    yield "id", shown_number(row.locator(".id").text_content()), token
    row.locator("summary").click()
    rank = row.locator(".merges small").first
    rank.wait_for()
    merge = merges[int(shown_number(rank.text_content()))]
    yield "merge", merge.replace(" ", ""), tokens[token]
    facts = tab.facts()
    yield "tokens", shown_number(facts["Tokens"]), len(tokens)
    yield "merges", shown_number(facts["Merges"]), len(merges)


CHECKS = (
    *(statistics_of_a_tensor, histogram_of_values, levels_of_a_tensor, block_of_an_element),
    *(sizes_on_the_map, types_of_the_overview, colours_of_the_layers, bytes_in_the_tree),
    *(curves_of_memory, memory_by_layer, errors_of_tensors, tokens_of_the_vocabulary),
)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_shown_numbers_are_right(tab, models, check, seed):
    rows = list(check(tab, models, np.random.default_rng(seed)))
    assert rows
    assert [row for row in rows if row[1] != row[2]] == []
