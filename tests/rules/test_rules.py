"""Rules are rows: one text each, stable ids, and a page that lists them all."""

from __future__ import annotations

import re
import string
from pathlib import Path
from typing import get_args

import pytest

from ggufkit.edits.repair import REPAIRED
from ggufkit.errors import FormatError, GGUFError, printable
from ggufkit.rules.findings import finding
from ggufkit.rules.rules import Authority, Severity, all_rules

PAGE = Path(__file__).parents[2] / "docs" / "check.md"


def row(rule):
    """Return a rule's line on the page, with details as words: `{name!r}` is NAME."""
    return f"| `{rule.id}` | {rule.severity} | {rule.breaks} | {rule.pattern} |"


def test_page_lists_every_rule_correctly():
    text = PAGE.read_text(encoding="utf-8")
    listed = [line for line in text.splitlines() if line.startswith("| `")]
    assert listed == [row(rule) for rule in all_rules().values()]


def test_page_says_what_is_repaired():
    text = PAGE.read_text(encoding="utf-8")
    assert set(re.findall(r"^- `([a-z-]+)`: ", text, flags=re.MULTILINE)) == REPAIRED


@pytest.mark.parametrize("rule", all_rules().values(), ids=all_rules())
def test_rule_says_what_is_wrong_and_what_to_do(rule):
    assert rule.remedy
    assert rule.remedy[0] in "`" + string.ascii_letters
    assert rule.remedy[0] == rule.remedy[0].upper()
    assert not rule.message.endswith(".")
    assert not rule.remedy.endswith(".")
    assert not rule.remedy.startswith("$")
    assert issubclass(rule.error, FormatError)
    assert rule.severity in get_args(Severity)
    assert rule.breaks in get_args(Authority)
    assert (
        rule.severity != "error" or rule.breaks == "GGUF" or rule.id in {"unreadable", "unfinished"}
    )
    assert rule.breaks != "llama.cpp" or rule.severity == "warning"


@pytest.mark.parametrize("rule", all_rules().values(), ids=all_rules())
def test_every_explanation_has_whole_sentences(rule):
    assert rule.why[0].isupper() or rule.why.startswith(("ggml", "llama.cpp"))
    assert rule.why.endswith(".")


def test_messages_shorten_long_names():
    message = finding("key-duplicate", 0, key="k" * 10_000).message
    assert message == f"the key '{'k' * 128}...' appears twice"


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("plain", "plain"),
        ("größe 重み", "größe 重み"),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\nb\0", r"a\nb\x00"),
        ("\udcff", r"\udcff"),
        ("\u202eabc", r"\u202eabc"),
    ],
)
def test_escapes_characters_that_are_unsafe_for_a_terminal(text, escaped):
    assert printable(text) == escaped
    assert GGUFError(text).message == escaped
