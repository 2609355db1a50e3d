"""Many texts computed at once get the scores and answers that each gets alone."""

from __future__ import annotations

import random

import numpy as np
import pytest

import ggufkit
import small_llama
from ggufkit.llama_cpp.continuations import TextsSession, generate, score
from ggufkit.llama_cpp.session import Session

pytest.importorskip("xllamacpp")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("continuations")
    return ggufkit.save(folder / "m.gguf", small_llama.tensors(), small_llama.keys())[0]


@pytest.fixture
def session(path):
    with TextsSession(path, cells=64, batch=8, sequences=4, threads=1) as session:
        yield session


def texts(session):
    chosen = random.Random(3)

    def tokens(most):
        return [chosen.randrange(session.vocabulary_size) for _ in range(chosen.randint(1, most))]

    contexts = [tokens(30) for _ in range(8)]
    return [(context, tokens(20)) for context in contexts for _ in range(chosen.randint(1, 6))]


def test_scores_are_those_of_texts_alone(session, path):
    batch = texts(session)
    scores = dict(score(session, batch))
    assert sorted(scores) == [*range(len(batch))]
    plain = Session(path, length=64, batch=64, threads=1)
    for number, (context, continuation) in enumerate(batch):
        plain.clear()
        plain.decode([[*context, *continuation]])
        rows = plain.logits().astype(np.float64)[len(context) - 1 : -1]
        logs = rows - np.log(np.exp(rows).sum(1, keepdims=True))
        expected = logs[range(len(continuation)), continuation].sum()
        assert scores[number].log_probability == pytest.approx(expected, rel=1e-4)
        assert scores[number].is_greedy == (rows.argmax(1) == continuation).all()
    plain.close()


def test_answers_are_those_of_prompts_alone(session):
    prompts = [(context, 1 + number % 7) for number, (context, _) in enumerate(texts(session))]
    answers = dict(generate(session, prompts, lambda _, tokens: tokens[-1] % 5 == 0))
    for number, prompt in enumerate(prompts):
        ((_, alone),) = generate(session, [prompt], lambda _, tokens: tokens[-1] % 5 == 0)
        assert answers[number] == alone
        assert len(alone) == prompt[1] or alone[-1] % 5 == 0


def test_the_likeliest_continuation_is_greedy(session):
    ((_, answer),) = generate(session, [([1, 2, 3], 6)], lambda *_: False)
    ((_, result),) = score(session, [([1, 2, 3], answer)])
    assert result.is_greedy
    ((_, other),) = score(
        session, [([1, 2, 3], [answer[0], (answer[1] + 1) % session.vocabulary_size])]
    )
    assert not other.is_greedy
