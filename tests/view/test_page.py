"""The page in a real Chromium: what it shows is what the library says, whatever is in a file."""

from __future__ import annotations

import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest

import ggufkit
from browser_tab import DESK, MINUS, PHONE, READY, Tab, shown_number
from ggufkit.inspection.estimate import largest_context
from ggufkit.inspection.summary import summarize
from ggufkit.inspection.tensor_block import tensor_block
from ggufkit.inspection.tensor_statistics import tensor_statistics
from ggufkit.view.page_model import PageModel

pytestmark = [pytest.mark.browser, pytest.mark.real]

VIEWS = ("overview", "metadata", "tensors", "tokenizer", "template", "memory", "compare", "tensor")
MODELS = ("smollm2", "gemma3", "hostile", "many", "shards", "quantized")
SCRIPT = "<script>window.attacked=1</script><img src=x onerror=window.attacked=1>"
HOSTILE = f"{SCRIPT}\u202egnp.exe\u2066 \x1b[31m'\"&amp;"
SPARE = ("serious", "critical")  # findings of axe that must not be


def hostile(folder):
    """Write a model whose names and texts attack a page."""
    metadata = {
        "general.architecture": HOSTILE,
        "general.name": HOSTILE,
        HOSTILE: HOSTILE,
        "long.text": "a" * 3_000_000 + SCRIPT,
        "long.list": [HOSTILE] * 5000,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": HOSTILE,
        "tokenizer.ggml.tokens": [HOSTILE, SCRIPT, "\u202e", "a"],
        "tokenizer.ggml.token_type": np.array([3, 4, 1, 1], np.int32),
        "tokenizer.ggml.merges": [f"{SCRIPT} a"],
        "tokenizer.chat_template": SCRIPT + "{{ messages[0]['content'] }}\u202e",
    }
    odd = np.array([[np.nan, np.inf, -np.inf, 0.0] * 8], np.float32)
    tensors = {SCRIPT[:64]: odd, "blk.0.\u202eattn_q": odd, "blk.1.<b>": (odd[:, :0], "F32")}
    ggufkit.model(tensors, metadata).write(folder / "hostile<b>.gguf")
    return folder / "hostile<b>.gguf"


def many(folder):
    """Write a model with 10,000 tensors."""
    row = np.arange(32, dtype=np.float32)
    names = [f"blk.{n // 20}.part{n % 20}.weight" for n in range(10_000)]
    ggufkit.model(dict.fromkeys(names, row), {"general.architecture": "llama"}).write(
        folder / "many.gguf"
    )
    return folder / "many.gguf"


@pytest.fixture(scope="module")
def models(tmp_path_factory, smollm2, gemma3):
    """The models on the page, by name."""
    folder = tmp_path_factory.mktemp("page")
    small = ggufkit.open(gemma3)
    parts = dict(list(small.tensors.items())[:40])
    del parts["token_embd.weight"]
    words = [key for key in small.metadata if key.startswith("tokenizer.")]
    metadata = small.metadata.without(*words)  # a large vocabulary takes seconds to build
    set_ = small.replace(metadata=metadata, tensors=parts.values()).write(
        folder / "set.gguf", shard_tensors=4
    )
    requantized = small.replace(
        metadata=metadata, tensors=[small[name] for name in list(parts)[:6]]
    )
    paths = {
        "smollm2": smollm2,
        "gemma3": gemma3,
        "hostile": hostile(folder),
        "many": many(folder),
        "shards": next(iter(sorted(folder.glob("set-*.gguf"))), set_),
        "quantized": folder / "quantized.gguf",
    }
    requantized.quantize("Q2_K", allow_requantize=True).write(paths["quantized"])
    return {name: PageModel(str(path), ggufkit.open(path)) for name, path in paths.items()}


@pytest.fixture(scope="module")
def server(run_server, models):
    with run_server(*models.values()) as running:
        yield running


# Every view of every model.


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("view", VIEWS)
def test_every_view_of_every_model_is_drawn(tab, view, model):
    page = tab.show(view, MODELS.index(model))
    page.wait_for_load_state("networkidle")
    assert page.locator("h1, main h2").count() > 0
    assert page.locator(".problem").count() == 0, page.locator(".problem").all_text_contents()
    assert page.evaluate("window.attacked") is None


def test_names_of_a_hostile_file_are_text(tab):
    number = MODELS.index("hostile")
    page = tab.show("overview", number)
    assert SCRIPT in page.locator("h1").text_content()
    assert "202E" in page.locator("h1").text_content()
    assert "\u202e" not in page.locator("body").text_content()
    for view, place in (("metadata", "long.list"), ("tensors", ""), ("tokenizer", "")):
        page = tab.show(view, number, q=place)
        if view == "metadata":
            page.locator(".keys-list summary").first.click()
            page.wait_for_selector(".items li")
        assert SCRIPT[:40] in page.locator("main").text_content()
        assert "\u202e" not in page.locator("main").text_content()
    assert page.locator("main script, main img").count() == 0
    assert page.evaluate("window.attacked") is None


def test_a_page_elsewhere_cannot_read_the_server(browser, server):
    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Elsewhere) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{other.server_port}/")
        for mode in ("cors", "no-cors"):
            read = (
                f"fetch('{server.address.url}api/models', {{mode: '{mode}'}}).then(r => r.text())"
            )
            answer = page.evaluate(f"{read}.then(text => text, error => 'refused')")
            assert answer in {"refused", ""}
        page.close()
        other.shutdown()
        thread.join()


# Values are those of the library.


def test_facts_are_those_of_the_library(tab, models):
    for number, name in ((0, "smollm2"), (1, "gemma3")):
        model = models[name].model
        tab.show("overview", number)
        facts = tab.facts()
        assert facts["Architecture"] == model.architecture
        assert f"({model.parameters:,})" in facts["Parameters"]
        assert facts["Holds"] == f"{len(model.metadata):,} keys, {len(model.tensors):,} tensors"


def test_every_key_is_listed(tab, models):
    tab.show("metadata", 0)
    assert tab.texts(".keys-list .key") == list(models["smollm2"].model.metadata)


def test_a_search_finds_keys(tab, models):
    page = tab.show("metadata", 0)
    page.keyboard.press("/")
    page.keyboard.type("rope")
    tab.until("location.hash.includes('q=rope')")
    tab.until("document.querySelectorAll('.keys-list > li').length < 20")
    assert all("rope" in key for key in tab.texts(".keys-list .key"))


def test_the_tensors_are_a_tree_of_parts_that_open(tab, models):
    names = list(models["smollm2"].model.tensors)
    page = tab.show("tensors", 0)
    parts = ["embedding", *(f"block {number}" for number in range(30)), "output"]
    assert tab.texts(".twist") == parts
    assert page.locator(".tensors a:visible").count() == 0
    page.get_by_role("button", name="block 2", exact=True).focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("[aria-expanded=true]")
    inside = page.locator(".tensors a:visible")
    assert inside.all_text_contents() == [name for name in names if name.startswith("blk.2.")]
    page.reload()
    page.wait_for_selector(READY)
    assert page.locator(".tensors a:visible").count() == len(inside.all())
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Open all").click()
    page.get_by_role("button", name="Close all").wait_for()
    assert sorted(tab.texts(".tensors a:visible")) == sorted(names)
    page.get_by_role("button", name="Close all").click()
    page.get_by_role("button", name="Open all").wait_for()
    assert page.locator(".tensors a:visible").count() == 0


def test_tensors_are_searched_in_the_tree_and_sorted_in_one_list(tab, models):
    names = list(models["smollm2"].model.tensors)
    page = tab.show("tensors", 0)
    page.get_by_role("searchbox").fill("attn_q")
    tab.until("document.querySelectorAll('.tensors a').length === 30")
    matching = [name for name in names if "attn_q" in name]
    assert sorted(tab.texts(".tensors a:visible")) == sorted(matching)
    page.get_by_role("searchbox").fill("")
    tab.until("document.querySelectorAll('.tensors a').length === 0")
    for _ in range(2):  # ascending, then descending
        page.get_by_role("button", name="Bytes").click()
    page.wait_for_selector("th[aria-sort=descending]")
    assert tab.texts(".tensors a")[0] == "token_embd.weight"
    assert page.locator(".twist").count() == 0


def test_very_many_parts_come_a_page_at_a_time(tab):
    page = tab.show("tensors", MODELS.index("many"))
    assert "1 to 100 of 500 parts with 10,000 tensors" in page.locator("main").text_content()
    page.keyboard.press("]")
    tab.until("document.querySelector('.twist').textContent === 'block 100'")
    page.locator(".twist").nth(1).click()
    page.wait_for_selector(".tensors a:visible")
    assert tab.texts(".tensors a:visible")[7] == "blk.101.part7.weight"


def test_a_tensor_is_two_lines_on_a_phone_and_no_name_is_broken(browser, server):
    context = browser.new_context(viewport=PHONE)
    tab = Tab(context, server)
    page = tab.show("tensors", 0, open="block 0,embedding")
    heights = "rows => rows.map(row => row.getBoundingClientRect().height)"
    for selector in (".branch tr", ".branch + tbody tr:visible"):
        measured = page.locator(selector).evaluate_all(heights)
        assert len(measured) > 5
        assert max(measured) < 70  # two lines of 22 pixels, and space
    assert max(page.locator(".tensors a:visible bdi").evaluate_all(heights)) < 22  # in one line
    context.close()


def test_statistics_and_blocks_are_those_of_the_library(tab, models):
    smollm2 = models["smollm2"]
    number = smollm2.number_of["blk.0.attn_q.weight"]
    page = tab.show("tensor", 0, t=number, row=7, column=40)
    page.wait_for_selector(".statistics figure")
    page.wait_for_selector("section[aria-live] td")
    statistics = tensor_statistics(smollm2.tensor(number))
    assert f"({statistics.zeros:,})" in tab.facts()["Zeros"]
    block = tensor_block(smollm2.tensor(number), 7, 40)
    cells = page.locator("section[aria-live] tbody tr").all()
    assert len(cells) == len(block.values)
    levels = [int(row.locator("td").nth(2).text_content()) for row in cells]
    assert levels == block.levels.tolist()


@pytest.mark.parametrize("seed", range(4))
def test_numbers_of_random_tensors_are_those_of_numpy(tab, models, seed):
    random = np.random.default_rng(seed)
    tensor_number = int(random.integers(len(models["smollm2"].tensor_names)))
    tensor = models["smollm2"].tensor(tensor_number)
    values = tensor.numpy().reshape(-1, tensor.shape[-1]).astype(np.float64)
    row, column = (int(random.integers(count)) for count in values.shape)
    page = tab.show("tensor", 0, t=tensor_number, row=row, column=column)
    page.wait_for_selector(".statistics figure")
    facts = tab.facts()
    assert facts["Elements"] == f"{values.size:,}"
    assert facts["Bytes"].startswith(f"{tensor.nbytes:,} (")
    expected = {
        "Min": values.min(),
        "Max": values.max(),
        "Mean": values.mean(),
        "Standard deviation": values.std(),
        "Norm": np.linalg.norm(values),
    }
    for label, number in expected.items():
        assert shown_number(facts[label]) == pytest.approx(number, rel=1e-4, abs=1e-9), label
    if not tensor.type.is_quantized:
        return
    cells = page.locator("section[aria-live] tbody tr").all()
    first = column // tensor.type.block_size * tensor.type.block_size
    numbers = [shown_number(cell.locator("td").last.text_content()) for cell in cells]
    assert numbers == pytest.approx(values[row, first : first + len(numbers)], rel=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_values_of_random_keys_are_those_of_the_file(tab, models, seed):
    metadata = models["smollm2"].model.metadata
    random = np.random.default_rng(seed)
    key = list(metadata)[int(random.integers(len(metadata)))]
    page = tab.show("metadata", 0, key=list(metadata).index(key))
    page.wait_for_selector(".value-full > div > *")
    value = metadata[key]
    if isinstance(value, float):
        assert float(page.locator(".value-full pre").text_content()) == value
    elif isinstance(value, str | bool | int):
        text = page.locator(".value-full pre").text_content()
        assert text == (str(value).lower() if isinstance(value, bool) else str(value))
    else:
        text = page.locator(".value-full .items li").all_text_contents()
        assert len(text) == min(len(value), 200)
        place = int(random.integers(len(text)))
        assert text[place] == str(value.tolist()[place])


def test_a_text_is_split_into_the_ids_of_the_library(tab, models):
    page = tab.show("tokenizer", 0)
    page.wait_for_selector(".token")
    text = "Hello 日本 🙂 <|im_end|>"
    page.locator("textarea").fill(text)
    tab.until("document.querySelectorAll('.token').length < 15")
    ids = ggufkit.tokenizer(models["smollm2"].model).encode(text).ids
    assert [int(text) for text in tab.texts(".token small")] == ids


def test_a_prompt_is_that_of_the_library(tab, models):
    page = tab.show("template", 0)
    page.wait_for_selector(".prompt")
    page.get_by_label("Text of message 2").fill("Why <b>?</b>")
    tab.until("document.querySelector('.prompt').textContent.includes('Why')")
    messages = [
        {"role": "system", "content": "Answer briefly."},
        {"role": "user", "content": "Why <b>?</b>"},
    ]
    template = ggufkit.chat_template(models["smollm2"].model)
    expected = template.render(messages, add_generation_prompt=True)
    assert page.locator(".prompt").text_content() == expected
    assert set(tab.texts(".prompt mark")) == {"<|im_start|>", "<|im_end|>"}


def test_memory_is_that_of_estimate(tab, models):
    page = tab.show("memory", 1, context=4096, devices=1)
    page.wait_for_selector(".big")
    estimated = ggufkit.estimate(models["gemma3"].model, context=4096)
    gibibytes = float(page.locator(".big").text_content().split()[0])
    assert gibibytes == pytest.approx(estimated.total / 1e6, abs=0.06)
    layers = re.search(r"--n-gpu-layers (\d+)", page.locator("main").text_content())
    assert int(layers[1]) == estimated.fit(10**9).layers
    longest = largest_context(models["gemma3"].model, 10**9, context=1 << 20)  # not the slider's
    assert longest != 4096
    assert f"The longest context with which all fits: {longest:,} tokens" in page.content()


def test_errors_are_those_of_diff(tab, models):
    page = tab.show("compare", 1, other=MODELS.index("quantized"))
    page.wait_for_selector("text=Overall SNR", timeout=60_000)
    difference = ggufkit.diff(models["gemma3"].model, models["quantized"].model)
    worst = min(
        (tensor for tensor in difference.tensors if tensor.deviation),
        key=lambda tensor: tensor.deviation.snr_db,
    )
    rows = page.locator("tbody tr", has_text=worst.name).first
    assert rows.locator("td").nth(4).text_content() == f"{worst.deviation.snr_db:.4g}"
    page.get_by_role("button", name=worst.name, exact=True).click()
    page.wait_for_selector("canvas[data-drawn=yes]")


def test_the_heat_map_shows_the_error_of_each_tensor(tab, models):
    quantized = MODELS.index("quantized")
    page = tab.show("compare", 1, other=quantized)
    page.wait_for_selector("text=Overall SNR", timeout=60_000)
    maps = tab.texts(".heats figcaption")
    number = next(index for index, text in enumerate(maps) if "quantized" in text)
    titles = page.locator(".heats figure").nth(number).locator("rect title").all_text_contents()
    before, after = models["gemma3"].model, models["quantized"].model
    compared = [name for name in after if name.startswith("blk.")]
    assert compared
    for name in compared:
        _, layer, role = name.split(".", 2)
        (title,) = [text for text in titles if text.startswith(f"layer {layer}, {role}: ")]
        values = np.asarray(before[name], np.float64)
        error = np.linalg.norm(np.asarray(after[name], np.float64) - values) / np.linalg.norm(
            values
        )
        if error:
            percent = re.search(r"error ([\d.]+)% of the signal", title)
            assert float(percent[1]) == pytest.approx(100 * error, abs=0.06)
        else:
            assert title.endswith(": same")
    assert sum("not measured" not in title for title in titles) == len(compared)


def test_curves_of_memory_end_where_estimate_says(tab, models):
    page = tab.show("memory", 1, context=4096, devices=1)
    table = page.get_by_role("table", name="Recipes")
    table.wait_for()
    model = models["gemma3"].model
    cells = table.locator("tbody tr").first.locator("td").all_text_contents()
    total = ggufkit.estimate(model).total
    assert (cells[0], cells[2]) == ("as it is", f"{total / 1e6:.1f} MB")
    assert cells[3] == f"{largest_context(model, 10**9, context=1 << 20):,} tokens"
    points = page.locator(".curve.p1").first.get_attribute("points").split()
    heights = [100 - float(point.split(",")[1]) for point in points]
    first = ggufkit.estimate(model, context=512).total
    assert heights[0] / heights[-1] == pytest.approx(first / total)


def test_the_answer_leads(tab, models):
    model = models["smollm2"].model
    page = tab.show("overview", 0)
    page.wait_for_load_state("networkidle")
    tiles = dict(zip(tab.texts(".tile > span"), tab.texts(".tile > b"), strict=True))
    assert tiles["Size"] == f"{sum(file.nbytes for file in model.files) / 1e6:.1f} MB"
    assert tiles["Bits per weight"] == f"{summarize(model).bits_per_weight:.3g}"
    assert tiles["Memory"] == f"{ggufkit.estimate(model, context=8192).total / 1e6:.1f} MB"
    assert tiles["Check"] == "Valid"
    assert "fits in 8 GB with 8,192 tokens" in tab.texts(".tile small")


def test_every_tensor_of_a_group_is_on_its_map(tab, models):
    listed = models["smollm2"].model.tensors.values()
    group = [tensor for tensor in listed if re.search(r"attn_(?!norm)", tensor.name)]
    page = tab.show("overview", 0)
    page.locator(".map-label", has_text="attention").click()
    page.wait_for_selector("text=All groups")
    assert page.locator(".treemap .cell").count() == len(group)
    page.locator(".treemap .cell").nth(5).hover()
    tip = page.locator(".tip.shown").text_content()
    tensor = models["smollm2"].model[re.match(r"blk\.\d+\.attn_\w+\.weight", tip)[0]]
    assert tip.endswith(f"· {tensor.nbytes / 1000:.1f} kB")
    page.get_by_role("button", name="All groups").click()
    page.wait_for_selector("button.map-label")
    part = sum(tensor.nbytes for tensor in group)
    share = f"attention {100 * part / models['smollm2'].nbytes:.1f}%"
    assert share in tab.texts("button.map-label")


def test_a_box_of_the_architecture_leads_to_its_tensors(tab):
    page = tab.show("overview", 0)
    page.locator(".box", has_text="embedding").click()
    page.wait_for_selector("main.view-tensors:not([aria-busy])")
    assert tab.texts(".tensors a") == ["token_embd.weight"]


def test_unrelated_models_are_not_listed_tensor_by_tensor(tab):
    page = tab.show("compare", 0, other=MODELS.index("gemma3"))
    assert "These models are unrelated" in page.locator("main").text_content()
    assert page.locator("main").get_by_role("table", name="Tensors of both models").count() == 0


def test_charts_have_a_log_axis(tab, models):
    page = tab.show("tensor", 0, t=models["smollm2"].number_of["blk.0.attn_q.weight"])
    page.wait_for_selector(".statistics figure")
    counts = tensor_statistics(models["smollm2"].model["blk.0.attn_q.weight"]).histogram.counts
    bars = "[...document.querySelector('.chart svg').querySelectorAll('.bar')]"
    read = f"{bars}.map(each => Number(each.getAttribute('height')))"
    assert page.evaluate(read) == pytest.approx(
        [110 * n / max(counts) if n else 0 for n in counts], abs=1
    )
    page.get_by_label("log axis").first.check()
    tall = np.log1p(counts) / np.log1p(max(counts))
    assert page.evaluate(read) == pytest.approx(110 * tall, abs=1)


# Pictures.


TOLD = re.compile(
    r"row ([\d,]+), column ([\d,]+): ([^,]+)(?:, shown for ([\d,]+) \u00d7 ([\d,]+) values)?"
)


def own_texts(page):
    """Return what the picture says: row, column, value, and how many values it stands for."""
    page.wait_for_timeout(100)  # a frame is drawn
    page.wait_for_selector(".picture-frame + .readout:has-text('row ')", timeout=5000)
    text = page.locator(".picture-frame + .readout").text_content()
    row, column, value, *counts = TOLD.fullmatch(text).groups()
    rows, columns = (int((count or "1").replace(",", "")) for count in counts)
    value = float(value.replace(MINUS, "-"))
    return int(row.replace(",", "")), int(column.replace(",", "")), value, (rows, columns)


@pytest.mark.parametrize(
    "name", ["token_embd.weight", "blk.3.ffn_gate.weight", "output_norm.weight"]
)
def test_a_picture_tells_stored_values_at_random_places_on_every_level(tab, models, name):
    number = models["smollm2"].number_of[name]
    values = models["smollm2"].tensor(number).numpy()
    values = values.reshape(-1, values.shape[-1])
    random = np.random.default_rng(number)
    page = tab.show("tensor", 0, t=number)
    page.wait_for_selector("canvas[data-drawn=yes]")
    box = page.locator("canvas").bounding_box()
    for _ in range(9):  # from all of it down to single values
        places = random.uniform(0.01, 0.99, (4, 2)) * [box["width"], box["height"]]
        for x, y in places:
            page.locator("canvas").hover(position={"x": x, "y": y})
            row, column, value, _ = own_texts(page)
            assert value == pytest.approx(float(values[row, column]), rel=1e-5)
        page.get_by_role("button", name="Zoom in").click()
        row, column, value, counts = own_texts(
            page
        )  # of this level, though the pointer did not move
        assert value == pytest.approx(float(values[row, column]), rel=1e-5)
    assert counts == (1, 1)


def test_a_click_in_an_overview_decodes_the_block_of_the_value_that_it_tells(tab, models):
    tensor_number = models["smollm2"].number_of["blk.0.ffn_gate.weight"]
    tensor = models["smollm2"].tensor(tensor_number)
    page = tab.show("tensor", 0, t=tensor_number)
    page.wait_for_selector("canvas[data-drawn=yes]")
    page.locator("canvas").click(position={"x": 301, "y": 207})
    page.wait_for_selector("section[aria-live] td")
    row, column, value, counts = own_texts(page)
    assert counts != (1, 1)
    block = tensor_block(tensor, row, column)
    assert f"Row {row:,}, columns {block.column:,} to" in page.locator("main").text_content()
    cells = page.locator("section[aria-live] tbody tr").nth(column - block.column)
    number = float(cells.locator("td").last.text_content().replace(MINUS, "-"))
    assert number == pytest.approx(value, rel=1e-5)
    assert number == pytest.approx(float(tensor.numpy()[row, column]), rel=1e-5)


def test_a_row_and_a_column_are_jumped_to(tab, models):
    number = models["smollm2"].number_of["blk.0.ffn_gate.weight"]
    page = tab.show("tensor", 0, t=number)
    page.wait_for_selector("canvas[data-drawn=yes]")
    page.get_by_label("Row", exact=True).fill("701")
    page.get_by_label("Column", exact=True).fill("303")
    page.get_by_role("button", name="Go").click()
    page.wait_for_selector("section[aria-live] td")
    page.wait_for_selector(".picture-frame + .readout:has-text('row 701, column 303: ')")
    expected = float(models["smollm2"].tensor(number).numpy()[701, 303])
    assert own_texts(page)[2:] == (pytest.approx(expected, rel=1e-5), (1, 1))


def test_a_picture_is_used_by_keys_alone(tab, models):
    number = models["smollm2"].number_of["blk.0.ffn_gate.weight"]
    page = tab.show("tensor", 0, t=number)
    page.wait_for_selector("canvas[data-drawn=yes]")
    page.locator(".picture-frame").focus()
    for key in ("ArrowRight", "ArrowDown", "+", "+", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    page.wait_for_selector("section[aria-live] td")
    assert "z=" in page.evaluate("location.hash")
    page.keyboard.press("0")
    tab.until("!location.hash.includes('z=')")


@pytest.mark.parametrize("picture", ["", "other", "difference"])
def test_the_same_tensor_of_two_files_is_compared_at_random_places(tab, models, picture):
    names = list(models["quantized"].model.tensors)
    random = np.random.default_rng(len(picture))
    name = str(
        random.choice([name for name in names if len(models["gemma3"].model[name].shape) > 1])
    )
    pair = [models[file].model[name].numpy() for file in ("gemma3", "quantized")]
    sides = dict(zip(("", "other", "difference"), (*pair, pair[1] - pair[0]), strict=True))
    row, column = (int(random.integers(count)) for count in pair[0].shape)
    other = MODELS.index("quantized")
    state = {"t": models["gemma3"].number_of[name], "other": other, "row": row, "column": column}
    page = tab.show("tensor", 1, show=picture, **state)
    page.wait_for_selector(".pair td")
    page.wait_for_selector("canvas[data-drawn=yes]")
    page.wait_for_selector("text=RMSE")
    error = np.sqrt(np.mean((pair[1] - pair[0]).astype(np.float64) ** 2))
    figures = page.locator(".pair [role=status]").text_content()
    assert float(re.search(r"RMSE ([\d.e\u2212]+),", figures)[1]) == pytest.approx(error, rel=1e-3)
    for cells in (
        line.locator("td").all_text_contents() for line in page.locator(".pair tbody tr").all()
    ):
        place = int(cells[0].replace(",", ""))
        expected = [values[row, place] for values in sides.values()]
        assert [shown_number(text) for text in cells[1:]] == pytest.approx(expected, rel=1e-5)
    box = page.locator("canvas").bounding_box()
    for x, y in random.uniform(0.01, 0.99, (4, 2)) * [box["width"], box["height"]]:
        page.locator("canvas").hover(position={"x": x, "y": y})
        at_row, at_column, value, _ = own_texts(page)
        assert value == pytest.approx(float(sides[picture][at_row, at_column]), rel=1e-5)


def test_a_file_to_compare_with_is_chosen_on_the_page_of_a_tensor(tab, models):
    name = next(iter(models["quantized"].model.tensors))
    page = tab.show("tensor", 1, t=models["gemma3"].number_of[name])
    assert page.locator(".pair").count() == 0
    page.get_by_label("Compare with").select_option(str(MODELS.index("quantized")))
    page.wait_for_selector(".pair")
    page.locator("label", has_text="difference").locator("select").select_option("difference")
    tab.until("location.hash.includes('show=difference')")
    page.wait_for_selector("canvas[data-drawn=yes]")
    page.locator("canvas").click(position={"x": 100, "y": 100})
    page.wait_for_selector(".pair td")
    assert page.locator(".pair tbody tr").count() >= 32


# Keys, addresses, sizes.


def test_views_are_chosen_by_keys(tab):
    page = tab.show("overview", 0)
    for key, view in (("2", "metadata"), ("3", "tensors"), ("6", "memory"), ("1", "overview")):
        page.keyboard.press(key)
        page.wait_for_selector(f"main.view-{view}:not([aria-busy])")
    page.keyboard.press("m")
    tab.until("location.hash.includes('model=1')")
    page.keyboard.press("?")
    assert page.locator("dialog[open] h2").text_content() == "Keys"


def test_the_layer_grid_is_used_by_keys(tab):
    page = tab.show("overview", 0)
    page.locator(".board").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert "layer 1, ffn_down.weight: Q4_1" in page.locator(".readout").first.text_content()
    page.keyboard.press("Enter")
    page.wait_for_selector("main.view-tensor h1")
    assert page.locator("h1").text_content() == "blk.1.ffn_down.weight"


@pytest.mark.parametrize("colour", ["bits", "type"])
def test_every_type_has_a_colour(tab, colour):
    for number in (0, 1):
        page = tab.show("overview", number, colour=colour)
        script = "[...document.querySelectorAll('.cell')].map(each => getComputedStyle(each).fill)"
        assert "rgb(0, 0, 0)" not in page.evaluate(script)


def test_a_statistic_colours_the_grid(tab):
    page = tab.show("overview", 0, colour="deviation")
    page.wait_for_selector("text=270 of 270 read", timeout=60_000)
    assert page.locator(".layers .heat").count() == 270


def test_an_address_keeps_the_state(tab):
    page = tab.show("tensors", 0, q="ffn", sort="-nbytes")
    before = tab.texts(".tensors a")
    page.reload()
    page.wait_for_selector(READY)
    assert page.locator("input[type=search]").input_value() == "ffn"
    assert tab.texts(".tensors a") == before


@pytest.mark.parametrize("view", VIEWS)
def test_a_phone_shows_a_view_without_scrolling_sideways(browser, server, view):
    context = browser.new_context(viewport=PHONE)
    new_tab = Tab(context, server)
    for number in (0, MODELS.index("hostile")):
        page = new_tab.show(view, number)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing_serious(browser, server, view, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    context = browser.new_context(viewport=DESK, color_scheme=scheme, bypass_csp=True)
    new_tab = Tab(context, server)
    state = {"t": 3, "row": 5, "column": 40} if view == "tensor" else {}
    page = new_tab.show(view, 0, **state)
    page.wait_for_load_state("networkidle")
    violations = axe.run(page).response["violations"]
    serious = [
        (violation["id"], [node["html"][:120] for node in violation["nodes"][:3]])
        for violation in violations
        if violation["impact"] in SPARE
    ]
    context.close()
    assert serious == []


def test_a_page_prints_its_content_alone(tab):
    page = tab.show("overview", 0)
    page.emulate_media(media="print")
    assert not page.locator("#views").is_visible()
    assert page.locator("h1").is_visible()
