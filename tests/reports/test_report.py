from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

import ggufkit
from ggufkit.view import compare_page
from shell import done
from shell import ggufkit as shell

HOSTILE = "<script>alert(1)</script>\u202e|`a`\n# b \x00\x1b[31m</td>"
NAME = HOSTILE[:38].replace("\x00", "")  # names cannot contain NUL
RNG = np.random.default_rng(7)
VALUES = RNG.standard_normal((8, 256)).astype("f4")


class ParsedPage(HTMLParser):
    """What a browser makes of a report: its elements, its texts, the styles of the head."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.attributes = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    facts = {"general.architecture": "llama", "llama.block_count": 1, "general.name": HOSTILE,
             "llama.context_length": 4096, "tokenizer.chat_template": HOSTILE}  # fmt: skip
    tensors = {
        "blk.0.attn_q.weight": VALUES,
        "blk.0.ffn_up.weight": VALUES * 3,
        NAME: VALUES,
    }
    ggufkit.save(folder / "f32.gguf", tensors, facts)
    packed = {name: (array, kind) for (name, array), kind in
              zip(tensors.items(), ("Q8_0", "Q4_0", "F32"), strict=True)}  # fmt: skip
    ggufkit.save(folder / "quantized.gguf", packed, facts | {"extra.<b>": "<i>"})
    return folder


@pytest.fixture(scope="module")
def page(folder):
    path = ggufkit.report(folder / "f32.gguf", folder / "r.html", others=folder / "quantized.gguf")
    return path.read_text("utf-8")


def test_page_has_no_script_and_loads_nothing(page):
    parsed = ParsedPage(page)
    assert not {"script", "link", "img", "iframe", "object", "form", "base"} & set(parsed.tags)
    assert not {"src", "href", "style"} & set(parsed.attributes)
    assert not [name for name in parsed.attributes if name.startswith("on")]


def test_policy_names_the_style_of_the_page_alone(page):
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'" in page.replace("&#39;", "'")


def test_texts_from_the_file_make_no_elements(page):
    parsed = ParsedPage(page)
    assert "b" not in parsed.tags
    assert "i" not in parsed.tags
    assert any("<script>alert(1)</script>" in text for text in parsed.texts)
    assert not [text for text in parsed.texts if "\x1b" in text or "\x00" in text]


def test_page_has_the_facts_and_the_tensors_of_the_model(folder, page):
    texts = ParsedPage(page).texts
    with ggufkit.open(folder / "f32.gguf") as model:
        assert f"{model.parameters:,}" in texts
        assert {str(name) for name in model.tensors if name != NAME} <= set(texts)
    assert "4,096" in texts


def test_errors_are_those_of_diff_with_the_most_damaged_first(folder, page):
    difference = ggufkit.diff(folder / "f32.gguf", folder / "quantized.gguf")
    deviations = [tensor.deviation for tensor in difference.tensors if tensor.deviation]
    deviations.sort(key=lambda deviation: deviation.snr_db)
    texts = ParsedPage(page).texts
    figures = [(f"{deviation.rmse:.3g}", f"{deviation.snr_db:.2f}") for deviation in deviations]
    positions = [texts.index(snr) for _, snr in figures]
    assert len(figures) == 2
    assert positions == sorted(positions)
    assert all(rmse in texts for rmse, _ in figures)
    assert ": equal tensors: 1, different: 2" in texts


def test_first_table_has_the_size_on_disk_and_the_error_over_all_tensors(folder, page):
    names = ("blk.0.attn_q.weight", "blk.0.ffn_up.weight")
    with (
        ggufkit.open(folder / "f32.gguf") as before,
        ggufkit.open(folder / "quantized.gguf") as after,
    ):
        signals, others = ([model[name].numpy() for name in names] for model in (before, after))
    noise = sum(((a - b) ** 2).sum() for a, b in zip(signals, others, strict=True))
    relative = np.sqrt(noise / sum((a**2).sum() for a in signals))
    texts = ParsedPage(page).texts
    row = texts.index("quantized.gguf")
    size = (folder / "quantized.gguf").stat().st_size
    assert texts[row + 1] == f"{size / 1e6:,.1f}"
    assert f"{relative:.2%}" in texts[row : row + 6]
    assert page.index("<table>") < page.index("<svg") < page.index("<details>")


def test_quants_share_their_sections(folder):
    others = [folder / "quantized.gguf", folder / "f32.gguf"]
    path = ggufkit.report(folder / "f32.gguf", folder / "two.html", others=others)
    texts = ParsedPage(path.read_text("utf-8")).texts
    assert texts.count("Keys that differ") == 1
    assert texts.count("Errors of tensors, the most damaged first") == 1


def test_tensors_are_not_paired_because_reports_show_no_pairs(folder, monkeypatch):
    monkeypatch.setattr(compare_page, "_pair", None)
    path = ggufkit.report(
        *(folder / "f32.gguf", folder / "p.md"), others=folder / "quantized.gguf", data=False
    )
    assert "Metadata keys that differ in quantized.gguf: 2." in path.read_text("utf-8")


def test_without_data_no_tensor_is_compared(folder):
    path = ggufkit.report(
        folder / "f32.gguf", folder / "n.html", others=[folder / "quantized.gguf"], data=False
    )
    text = path.read_text("utf-8")
    assert "SNR" not in text
    assert "quantized.gguf" in text


def test_markdown_rows_have_the_cells_of_their_header(folder):
    path = ggufkit.report(folder / "f32.gguf", folder / "r.md", others=folder / "quantized.gguf")
    width = None
    for line in path.read_text("utf-8").splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line))
        width = (width or cells) if line.startswith("|") else None
        assert width is None or cells == width
    assert "<script>" not in path.read_text("utf-8")


def test_folders_of_this_machine_are_not_in_a_report(folder, page):
    assert str(folder) not in page


def test_quality_of_an_evaluation_becomes_a_chart_and_a_table(folder):
    rows = [_measured("f32.gguf", 8e9, 9.5, None), _measured("/home/me/q4.gguf", 2e9, 9.8, 0.03),
            _measured("q3.gguf", 1.5e9, 10.9, 0.11)]  # fmt: skip
    result = folder / "eval.json"
    result.write_text(json.dumps({"base": rows[0], "models": rows[1:]}))
    done("report", folder / "f32.gguf", "-o", folder / "q.html", "--eval", result)
    done("report", folder / "f32.gguf", "-o", folder / "q.md", "--eval", result)
    parsed = ParsedPage((folder / "q.html").read_text("utf-8"))
    assert "/home/me" not in "".join(parsed.texts)
    assert parsed.tags.count("circle") == 3
    assert "2,000 MB" in parsed.texts
    assert "| q3.gguf | 1,500.0 |  | 10.9 | 0.11 |  |" in (folder / "q.md").read_text("utf-8")


def _measured(name, nbytes, perplexity, divergence):
    kld = {"kld": {"mean": {"value": divergence}}} if divergence else None
    return {
        "name": name,
        "nbytes": int(nbytes),
        "perplexity": {"value": perplexity},
        "divergence": kld,
    }


WRONG = ["", "[]", "{}", '{"base": null, "models": [1]}', "\x00", "[" * 9999]


@pytest.mark.parametrize("content", WRONG)
def test_what_is_no_evaluation_is_refused(folder, tmp_path, content):
    result = tmp_path / "eval.json"
    result.write_text(content)
    with pytest.raises(ggufkit.errors.FormatError, match="is not a result of"):
        ggufkit.report(folder / "f32.gguf", tmp_path / "r.html", evaluation=result)
    assert [file.name for file in tmp_path.iterdir()] == ["eval.json"]


def test_other_endings_and_inputs_are_refused(folder, tmp_path):
    with pytest.raises(ggufkit.errors.OutputError, match="ending"):
        ggufkit.report(folder / "f32.gguf", tmp_path / "r.pdf")
    model = tmp_path / "m.html"
    model.write_bytes((folder / "f32.gguf").read_bytes())
    with pytest.raises(ggufkit.errors.OutputError, match="also an input"):
        ggufkit.report(model, model)
    measured = tmp_path / "eval.md"
    measured.write_text(json.dumps({"models": []}))
    with pytest.raises(ggufkit.errors.OutputError, match="also an input"):
        ggufkit.report(folder / "f32.gguf", measured, evaluation=measured)
    assert model.read_bytes() == (folder / "f32.gguf").read_bytes()


def test_a_missing_folder_is_refused_with_a_remedy_about_it(folder):
    result = shell("report", folder / "f32.gguf", "-o", folder / "no" / "r.html")
    assert result.code == 1
    assert "no does not exist" in result.err
    assert "Create it first" in result.err


def test_another_ending_is_wrong_usage(folder):
    result = shell("report", folder / "f32.gguf", "-o", folder / "r.txt")
    assert result.code == 2
    assert "use .html or .md" in result.err


def test_no_clobber_keeps_what_is_there(folder, tmp_path):
    out = tmp_path / "r.html"
    out.write_text("mine")
    result = shell("report", folder / "f32.gguf", "-o", out, "--no-clobber")
    assert result.code == 1
    assert "exists" in result.err
    assert out.read_text() == "mine"


def test_report_of_a_private_model_is_private(folder, tmp_path):
    model = tmp_path / "m.gguf"
    model.write_bytes((folder / "f32.gguf").read_bytes())
    model.chmod(0o600)
    assert ggufkit.report(model, tmp_path / "r.html").stat().st_mode & 0o077 == 0


def test_model_in_memory_has_a_report(tmp_path):
    model = ggufkit.model({"x": VALUES}, {"general.architecture": "llama"})
    text = ggufkit.report(model, tmp_path / "r.md").read_text("utf-8")
    assert text.startswith("# model in memory")
