"""Answers are limited in both processes, and a process that was stopped starts again."""

from __future__ import annotations

import pytest

from ggufkit.system import sandbox
from ggufkit.system.sandbox import Servant, StoppedError, answer_of

MODULE = """
from ggufkit.system import sandbox
sandbox.MAX_ANSWER = 10_000
def answer(size):
    return "a" * size
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "long_answers.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return "long_answers"


def test_a_process_does_not_send_an_answer_that_is_too_long(module):
    servant = Servant(module)
    with pytest.raises(StoppedError, match="at length"):
        servant.answer_of(20_000, 60)
    assert servant.answer_of(3, 60) == "aaa"
    servant.stop()
    with pytest.raises(StoppedError, match="at length"):
        answer_of(module, 20_000)


def test_no_more_is_read_than_an_answer_may_have(module, monkeypatch):
    servant = Servant(module)
    monkeypatch.setattr(sandbox, "MAX_ANSWER", 100)
    with pytest.raises(StoppedError, match="at length"):
        servant.answer_of(500, 60)
    assert servant.answer_of(3, 60) == "aaa"
    servant.stop()
