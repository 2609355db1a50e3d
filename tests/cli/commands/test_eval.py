"""`ggufkit eval`: its table, JSON, details and usage errors."""

from __future__ import annotations

import pytest

import measured_llama
import real  # noqa: F401 (marks these tests: they run llama.cpp)
import shell
from ggufkit.system.staging import Staging


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    measured_llama.text(folder / "text.txt")
    noises = {"base": 0, "near": 0.01, "far": 0.1}
    return {
        name: measured_llama.save(folder / f"{name}.gguf", noise) for name, noise in noises.items()
    } | {"text": folder / "text.txt"}


def evaluate(models, *names, **options):
    options_of_eval = {"context": 16, "threads": 1} | options
    listed = [part for name, value in options_of_eval.items() for part in (f"--{name}", value)]
    return shell.ggufkit("eval", *[models[name] for name in names], *listed)


def test_one_model_gives_a_line_with_its_perplexity(models):
    done = evaluate(models, "near", text=models["text"])
    assert done.code == 0
    assert done.lines[0] == "21 chunks of 16 tokens, 147 tokens predicted"
    assert done.lines[2].split() == ["MODEL", "SIZE", "PPL"]
    assert done.lines[3].split()[0] == str(models["near"])
    assert len(done.lines) == 4


def test_a_base_gives_columns_and_says_which_model_is_better(models):
    done = evaluate(models, "far", "near", text=models["text"], base=models["base"])
    assert "MEAN KLD" in done.lines[2]
    assert [line.split()[0] for line in done.lines[3:6]] == [
        str(models[name]) for name in ("base", "far", "near")
    ]
    assert done.lines[-1].startswith("  near.gguf is better than far.gguf: mean KLD is lower by 0.")


def test_too_few_chunks_are_not_compared(models):
    done = evaluate(models, "far", "near", text=models["text"], chunks=2)
    assert done.lines[-1] == "  far.gguf and near.gguf: too few chunks to compare"


def test_json_has_every_figure_and_null_for_those_that_are_unknown(models):
    options = ["--context", 16, "--chunks", 2, "--text", models["text"], "--threads", 1]
    names = (models["near"], models["far"])
    done = shell.ggufkit("eval", *names, "--base", models["base"], *options, "--json")
    document = done.json()
    assert (document["context"], document["chunks"], document["positions"]) == (16, 2, 14)
    near = document["models"][0]
    assert near["name"] == str(models["near"])
    assert set(near) == {"name", "nbytes", "perplexity", "divergence"}
    assert "99.9" in near["divergence"]["kld"]["percentiles"]
    assert document["base"]["divergence"] is None
    assert document["comparisons"][0]["low"] is None


def test_a_base_file_is_written_alone_and_read_without_text(models, tmp_path):
    logits = tmp_path / "base.kld"
    written = evaluate(models, text=models["text"], base=models["base"], **{"base-logits": logits})
    assert written.code == 0
    assert written.lines[-1].startswith(f"wrote {logits} (")
    done = shell.ggufkit("eval", models["near"], "--base-logits", logits, "--details")
    assert done.code == 0
    assert "====== KL divergence statistics ======" in done.out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "Missing argument 'MODEL'"),
        (["--base", "base", "--text", "text"], "Missing argument 'MODEL'"),
        (["near"], "Missing option '--text'"),
        (["near", "--text", "text", "--base", "base", "--resume"], "'--base-logits'"),
        (["near", "--base", "base", "--base-logits", "x"], "Missing option '--text'"),
        (["near", "-f", "text"], "--text FILE"),
        (["near", "--kl-divergence"], "--base-logits FILE"),
        (["near", "--text", "text", "--context", "2"], "--context"),
    ],
)
def test_usage_errors_say_what_to_write(models, arguments, reason):
    done = shell.ggufkit("eval", *[models.get(argument, argument) for argument in arguments])
    assert done.code == 2
    assert reason in done.err


def test_a_base_file_that_appears_meanwhile_stays_with_no_clobber(models, tmp_path, monkeypatch):
    logits, publish = tmp_path / "base.kld", Staging.publish

    def appears(stage):
        logits.write_bytes(b"theirs")
        publish(stage)

    monkeypatch.setattr(Staging, "publish", appears)
    options = ["--base", models["base"], "--base-logits", logits, "--context", "16"]
    done = shell.ggufkit("eval", models["near"], "--text", models["text"], *options, "--no-clobber")
    assert done.code == 1
    assert "exists already" in done.err
    assert "leave out --no-clobber" in done.err
    assert logits.read_bytes() == b"theirs"


def test_an_existing_base_file_stays_with_no_clobber(models, tmp_path):
    logits = tmp_path / "base.kld"
    logits.write_bytes(b"mine")
    options = ["--text", models["text"], "--base", models["base"], "--base-logits", logits]
    done = shell.ggufkit("eval", models["near"], *options, "--no-clobber")
    assert done.code == 1
    assert "exists already" in done.err
    assert logits.read_bytes() == b"mine"
