"""Perplexity and divergence of tiny models, compared with NumPy in double precision."""

from __future__ import annotations

import numpy as np
import pytest

import ggufkit
import measured_llama
import real  # noqa: F401 (marks these tests: they run llama.cpp)
from ggufkit.errors import GGUFError, OutputError, TruncatedError, ValueTypeError
from ggufkit.evaluation import reading
from ggufkit.llama_cpp.session import Session

CONTEXT = 16
BEGINNING = 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def base(folder):
    return measured_llama.save(folder / "base.gguf")


@pytest.fixture(scope="module")
def near(folder):
    return measured_llama.save(folder / "near.gguf", 0.01)


@pytest.fixture(scope="module")
def far(folder):
    return measured_llama.save(folder / "far.gguf", 0.1)


@pytest.fixture(scope="module")
def text(folder):
    return measured_llama.text(folder / "text.txt")


def evaluate(models, text=None, **options):
    return ggufkit.evaluate(models, text, threads=1, **{"context": CONTEXT} | options)


def log_probabilities(model, text):
    """Return float64 log probabilities of each counted position, and the next tokens."""
    values, following = [], []
    with Session(model, length=CONTEXT, batch=CONTEXT, threads=1) as session:
        tokens = session.tokenize(text.read_bytes())
        begins = session.beginning
        for start in range(0, len(tokens) // CONTEXT * CONTEXT, CONTEXT):
            chunk = tokens[start : start + CONTEXT]
            session.clear()
            session.decode([chunk if begins is None else [begins, *chunk[1:]]])
            logits = session.logits()[CONTEXT // 2 : -1].astype(np.float64)
            values.append(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))
            following += chunk[CONTEXT // 2 + 1 :]
    return np.concatenate(values), np.array(following)


def test_perplexity_matches_numpy(base, text):
    logs, following = log_probabilities(base, text)
    surprises = -logs[np.arange(len(following)), following]
    quality = evaluate(base, text).models[0]
    assert quality.perplexity.value == pytest.approx(np.exp(surprises.mean()), rel=1e-6)
    error = surprises.std() / np.sqrt(len(surprises) - 1)
    assert quality.perplexity.error == pytest.approx(quality.perplexity.value * error, rel=1e-5)
    assert quality.divergence is None
    assert quality.scores.field("surprise").reshape(-1) == pytest.approx(surprises, abs=1e-5)


def test_divergence_matches_numpy(base, near, text):
    theirs, following = log_probabilities(base, text)
    mine, _ = log_probabilities(near, text)
    divergences = (np.exp(theirs) * (theirs - mine)).sum(axis=1)
    rows = np.arange(len(following))
    changes = np.exp(mine[rows, following]) - np.exp(theirs[rows, following])
    divergence = evaluate(near, text, base=base).models[0].divergence
    assert divergence.kld.mean.value == pytest.approx(divergences.mean(), abs=1e-4)
    assert divergence.kld.maximum == pytest.approx(divergences.max(), abs=1e-3)
    assert divergence.kld.median == pytest.approx(np.median(divergences), abs=1e-4)
    assert divergence.rms_probability_change.value == pytest.approx(
        np.sqrt((changes**2).mean()), abs=1e-4
    )
    same = mine.argmax(axis=1) == theirs.argmax(axis=1)
    assert divergence.same_top.value == same.mean()


def test_several_models_share_one_base(base, near, far, text):
    evaluation = evaluate([near, far], text, base=base)
    own = evaluate(base, text).models[0].perplexity
    assert evaluation.base.perplexity.value == pytest.approx(own.value, rel=1e-6)
    alone = [evaluate(model, text, base=base).models[0] for model in (near, far)]
    assert [model.divergence for model in evaluation.models] == [
        model.divergence for model in alone
    ]
    assert evaluation.chunks * (CONTEXT // 2 - 1) == evaluation.positions


def test_better_is_said_only_beyond_chance(base, near, far, text):
    (clear,) = evaluate([near, far], text, base=base).comparisons
    assert clear.better == str(near)
    assert clear.low <= clear.difference <= clear.high < 0
    (unclear,) = evaluate([near, far], text, base=base, chunks=2).comparisons
    assert unclear.better is None


def test_base_file_gives_the_same_figures_without_base_and_text(base, near, text, tmp_path):
    logits = tmp_path / "base.kld"
    written = evaluate(near, text, base=base, base_logits=logits)
    read = evaluate(near, base_logits=logits, context=None)
    assert read.models[0].divergence == written.models[0].divergence
    assert read.base is None
    assert evaluate(near, text, base_logits=logits).models == read.models


def test_fewer_tokens_at_once_and_more_threads_change_little(base, text):
    usual = evaluate(base, text).models[0].scores.field("surprise")
    for micro_batch in (1, 7, 24):
        scores = evaluate(base, text, micro_batch=micro_batch).models[0].scores
        assert scores.field("surprise") == pytest.approx(usual, abs=1e-4)


def test_progress_counts_the_chunks_of_all_passes(base, near, text):
    seen = []
    evaluate(near, text, base=base, chunks=3, progress=lambda *both: seen.append(both))
    assert seen[0] == (0, 6)
    assert seen[-1] == (6, 6)


def test_a_text_shorter_than_a_chunk_is_refused(base, tmp_path):
    short = measured_llama.text(tmp_path / "short.txt", 5)
    with pytest.raises(ValueTypeError, match=r"the text has \d tokens, but a chunk needs 16"):
        evaluate(base, short)


def test_models_with_other_vocabularies_are_refused_at_once(base, text, tmp_path):
    tokens = ["<unk>", "<s>", "</s>", "a", "b", "ab", "c", "other"]
    other = measured_llama.save(tmp_path / "other.gguf", tokenizer__ggml__tokens=tokens)
    with pytest.raises(ValueTypeError, match="has another vocabulary than"):
        evaluate([base, other], text)


def test_a_model_that_splits_the_text_otherwise_is_refused(base, text, tmp_path):
    other = measured_llama.save(tmp_path / "other.gguf", tokenizer__ggml__merges=["a b"])
    with pytest.raises(ValueTypeError, match="does not split the text into the tokens"):
        evaluate([base, other], text)


def test_a_model_that_gives_no_numbers_is_refused(base, text, tmp_path):
    with ggufkit.open(base) as model:
        tensors = {name: tensor.numpy() for name, tensor in model.tensors.items()}
        tensors["output_norm.weight"] = np.full_like(tensors["output_norm.weight"], np.nan)
        ggufkit.save(tmp_path / "nan.gguf", tensors, model.metadata)
    with pytest.raises(GGUFError, match="gives no finite probability in chunk 1"):
        evaluate(tmp_path / "nan.gguf", text)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"models": ()}, "no model is named"),
        ({"text": None}, "no text is named"),
        ({"context": 7}, "a chunk of 7 tokens is too short"),
        ({"models": ("base", "base")}, "a model is named twice"),
        ({"base": "near", "resume": True}, "the base needs a file that stays"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(base, near, text, arguments, reason):
    paths = {"base": base, "near": near}
    arguments_of_evaluate = {"models": (base,), "text": text} | arguments
    arguments_of_evaluate["models"] = [
        paths.get(model, model) for model in arguments_of_evaluate["models"]
    ]
    if "base" in arguments_of_evaluate:
        arguments_of_evaluate["base"] = paths[arguments_of_evaluate["base"]]
    with pytest.raises(ValueTypeError, match=reason):
        evaluate(**arguments_of_evaluate)


def test_an_input_is_never_overwritten_by_the_base_file(base, near, text):
    with pytest.raises(OutputError, match="is also an input"):
        evaluate(near, text, base=base, base_logits=text)


@pytest.mark.parametrize("resume", [False, True])
def test_an_error_leaves_no_base_file(base, near, text, tmp_path, resume):
    def stop(done, _total):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(near, text, base=base, base_logits=tmp_path / "x", progress=stop, resume=resume)
    names = [path.name for path in tmp_path.iterdir()]
    assert names == ([".x.ggufkit-resume"] if resume else [])


@pytest.mark.parametrize("passes", [0, 1, 2])
def test_resume_goes_on_after_the_chunks_that_are_kept(
    base, near, far, text, tmp_path, monkeypatch, passes
):
    monkeypatch.setattr(reading, "BATCH", 4 * CONTEXT)
    whole = evaluate([near, far], text, base=base, chunks=12)
    logits, read = tmp_path / "x", []

    def stop(done, _total):
        if done == 12 * passes + 8:
            raise KeyboardInterrupt

    def run(progress):
        return evaluate(
            [near, far],
            text,
            base=base,
            base_logits=logits,
            chunks=12,
            resume=True,
            progress=progress,
        )

    with pytest.raises(KeyboardInterrupt):
        run(stop)
    original = reading.TextReader._group
    monkeypatch.setattr(
        reading.TextReader, "_group", lambda *args: read.append(args[2]) or original(*args)
    )
    resumed = run(None)
    assert len(read) == 9 - (3 * passes + 2)
    assert (resumed.base, resumed.models) == (whole.base, whole.models)
    assert not list(base.parent.glob(".*"))
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_resume_starts_over_if_the_model_was_replaced(near, far, text, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "BATCH", 4 * CONTEXT)
    model = tmp_path / "model.gguf"
    model.write_bytes(near.read_bytes())

    def stop(done, _total):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(model, text, resume=True, progress=stop)
    model.write_bytes(far.read_bytes() + bytes(32))
    quality = evaluate(model, text, resume=True).models[0]
    assert quality.perplexity == evaluate(far, text).models[0].perplexity


def test_resume_does_not_mix_the_bases_of_two_models(base, near, far, text, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "BATCH", 4 * CONTEXT)

    def stop(done, _total):
        if done == 8:
            raise KeyboardInterrupt

    def run(base, progress=None):
        return evaluate(
            far, text, base=base, base_logits=tmp_path / "x", resume=True, progress=progress
        )

    for model in (base, near):
        with pytest.raises(KeyboardInterrupt):
            run(model, stop)
    assert run(base).models == evaluate(far, text, base=base).models


def test_base_file_of_another_context_or_text_is_refused(base, near, text, tmp_path):
    logits = tmp_path / "base.kld"
    evaluate((), text, base=base, base_logits=logits)
    with pytest.raises(ValueTypeError, match="the base file has chunks of 16 tokens, not 32"):
        evaluate(near, base_logits=logits, context=32)
    other = measured_llama.text(tmp_path / "other.txt", 300)
    other.write_text(other.read_text()[::-1])
    with pytest.raises(ValueTypeError, match="does not split the text into the tokens"):
        evaluate(near, other, base_logits=logits)


def test_a_cut_base_file_says_how_many_chunks_are_left(base, near, text, tmp_path):
    logits = tmp_path / "base.kld"
    evaluate((), text, base=base, base_logits=logits, chunks=4)
    logits.write_bytes(logits.read_bytes()[:-3])
    with pytest.raises(TruncatedError, match=r"only 3 of 4 chunks are complete.*3 at most"):
        evaluate(near, base_logits=logits)
    assert evaluate(near, base_logits=logits, chunks=3).chunks == 3
