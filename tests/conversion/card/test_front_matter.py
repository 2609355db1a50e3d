"""The front matter of a model card, compared with PyYAML."""

from __future__ import annotations

import contextlib

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from ggufkit.conversion.card.front_matter import MAX_CHARACTERS, front_matter, model_card
from ggufkit.errors import CheckpointError

CARD = r"""
license: apache-2.0
language:
- en
- no
  # Norway
tags: [chat, "two words", 'it''s', {x: y}, ]   # trailing
base_model: meta-llama/Llama-3
model-index:
- name: foo
  results:
  - task:
      type: text-generation
    metrics:
    - type: acc
      value: 38.57
    source: {url: "https://x.y/z?q=1#f", name: Open
      Leaderboard}
widget:
  - text: |
      Hello
        there

      x
    example_title: "A \u00e9 \"q\" \
       z"
  - text: >-
      folded
      text

      para
        more
      end
  -
    messages:
      - role: user
        content: What? It's 5:30
  - - nested
    - list
extra_gated_prompt: "multi
  line

  text"
extra: plain text
  continued here

  and here
empty:
null1: ~
"quoted key": v
url: http://x.y/z#frag
kept: |+
  a

own line:
  >
  b
  c
co2_eq_emissions:
  emissions: 10
"""


class TextLoader(yaml.SafeLoader):
    """PyYAML that keeps scalars other than null as text."""


TextLoader.yaml_implicit_resolvers = {
    char: [rule for rule in rules if rule[0].endswith(":null")]
    for char, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read(text):
    return front_matter(f"---\n{text}\n---\n# Title\n")


def as_yaml(text):
    return yaml.load(text, TextLoader)  # noqa: S506 (a kind of SafeLoader)


def test_reads_a_card_as_pyyaml_does():
    assert read(CARD) == as_yaml(CARD)


@example({"top": "\xa0"}, None, None)
@given(
    st.recursive(
        st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), max_size=12)
        | st.sampled_from(
            ["a: b", "- x", "no", "#c", "it's", '"', "a\nb", "", " ", None, "[", "~"]
        ),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["k", "two words", "x-y", "a: b", "#"]), inner)
        ),
        max_leaves=12,
    ).map(lambda node: {"top": node}),
    st.sampled_from([None, True, False]),
    st.sampled_from([None, '"', "'"]),
)
def test_reads_what_pyyaml_writes(node, flow, style):
    text = yaml.safe_dump(node, default_flow_style=flow, default_style=style, allow_unicode=True)
    try:
        document = read(text.rstrip("\n"))
    except CheckpointError:
        # Tags and explicit keys, which are refused rather than misread.
        assert "!!" in text or "? " in text
        return
    assert document == as_yaml(text)


@given(st.text("ab:-#[]{}\"'|>&*!? \n,", max_size=60))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(CheckpointError):
        assert isinstance(read(text), dict)


@pytest.mark.parametrize(
    "text",
    [
        "a: &x y",
        "a: *x",
        "a: !tag y",
        "a: @x",
        "a: b: c",
        'a: "open',
        "a: [1, 2",
        "a:\nb: 1\n  c: 2",
        'a: "\\q"',
        'a: "x" y',
    ],
)
def test_refuses_unsupported_yaml_and_names_its_line(text):
    with pytest.raises(CheckpointError, match=r"README\.md, line \d"):
        read(text)


def test_refuses_deep_nesting():
    for text in ("[" * 5000, "- " * 5000 + "x", "{a: " * 5000):
        with pytest.raises(CheckpointError, match=r"levels|nesting"):  # libyaml may stop first
            read(text if text.startswith("- ") else f"a: {text}")


def test_reads_long_lists():
    listed = "a: [\n" + '  "]",\n' * 20_000 + "]\nb: c"
    assert read(listed) == {"a": ["]"] * 20_000, "b": "c"}


@pytest.mark.parametrize("text", ["{{a: b}: c}", "[{a}: b]", "x: {[a]: b}", "{" * 20])
def test_refuses_a_collection_as_a_key_at_once(text):
    with pytest.raises(CheckpointError):
        read(text)


def test_card_without_front_matter_gives_no_keys():
    assert front_matter("# Title\n---\na: b\n") == {}
    assert front_matter("") == {}


@pytest.mark.parametrize("end", ["\n", "\r", "\x0b", "\x7f", "\x85", "\u2028", "\u2029"])
def test_reads_exported_cards_again_with_any_line_endings(end):
    card = model_card({"general.description": f"a{end}b"})
    assert front_matter(card.decode()) == {"description": f"a{end}b"}


def test_front_matter_may_end_with_the_file():
    assert front_matter("---\na: b") == {"a": "b"}


def test_both_parsers_of_pyyaml_give_the_same_result(monkeypatch):
    document = read(CARD)
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    assert read(CARD) == document


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]",
        "a: !!python/object/apply:os.system [x]",
        "<<: *a",
    ],
)
def test_refuses_aliases_and_tags(text):
    with pytest.raises(CheckpointError, match="aliases and tags"):
        read(text)


def test_merge_key_is_an_ordinary_key():
    assert read("<<: {a: b}") == {"<<": {"a": "b"}}


def test_refuses_front_matter_beyond_the_limit():
    with pytest.raises(CheckpointError, match="longer than"):
        read("a: " + "x" * MAX_CHARACTERS)


def test_refuses_a_second_document():
    with pytest.raises(CheckpointError, match="second document"):
        read("a: b\n...\n--- \nc: d")
