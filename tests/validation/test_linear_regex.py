"""Regular expressions of users and files: the matches of `re`, and never longer than linear."""

import copy
import pickle
import random
import re

import pytest

from ggufkit.errors import ValueTypeError
from ggufkit.validation.linear_regex import MAX_ALL_STATES, LinearPattern, compile_all

NAMES = [
    "blk.0.attn_v.weight",
    "blk.12.ffn_down_exps.weight",
    "output.weight",
    "",
    "A b\nc",
    "aaab",
]
PATTERNS = [
    "attn_v", r"blk\.(0|1[0-9])\.", "^output", r"weight$", r"\bffn", r"a+?b", "(?i)ATTN", "(?s)b.c",
    r"^(?!.*attn).*weight", r"ffn_(?=down|up)", r"(?<=blk\.)\d", r"(?<!\.)weight", "a{2,3}b",
    "[^a-z.]", r"\w+\.\d+", "(?P<x>a)b|c$", "(?i:B)LK|(?-i:b)lk", r"\Aout", r"\Z", "(?m)^c", r"\Bt",
    "(a*)*b", "(a|ab)(c|bcd)?", "", "|x", "(?:)*", "x*", "é", r"[\w.]{5,}w", "(?a:\\w)+", "(?!)",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_matches_what_re_matches(pattern: str) -> None:
    ours, theirs = LinearPattern(pattern), re.compile(pattern)
    for name in NAMES:
        assert ours.search(name) == (theirs.search(name) is not None), name
        assert ours.replace_first(r"<\g<0>>".replace(r"\g<0>", "X"), name) == _replaced(
            theirs, "<X>", name
        ), name


def _replaced(pattern: re.Pattern[str], template: str, text: str) -> str | None:
    found = pattern.search(text)
    return found and text[: found.start()] + found.expand(template) + text[found.end() :]


@pytest.mark.parametrize("seed", range(8))
def test_random_patterns_match_and_replace_as_re_does(seed: int) -> None:
    chooser = random.Random(seed)
    for _ in range(150):
        pattern = _random_pattern(chooser, 3)
        ours, theirs = LinearPattern(pattern), re.compile(pattern)
        template = "<" + "".join(f"\\{n + 1};" for n in range(min(ours.groups, 9))) + ">"
        for _ in range(8):
            text = "".join(chooser.choices("ab.1\n", k=chooser.randrange(9)))
            assert ours.search(text) == (theirs.search(text) is not None), (pattern, text)
            assert ours.replace_first(template, text) == _replaced(theirs, template, text), (
                pattern, text,
            )  # fmt: skip


def _random_pattern(chooser: random.Random, depth: int) -> str:
    if depth == 0 or chooser.random() < 0.2:
        return chooser.choice(
            ["a", "b", "1", r"\.", ".", "[ab]", "[^a]", r"\d", r"\w", "^", "$", r"\b"]
        )
    inner = [_random_pattern(chooser, depth - 1) for _ in range(chooser.randrange(1, 4))]
    kind = chooser.randrange(6)
    if kind == 0:
        return f"({'|'.join(inner)})"
    if kind == 1:  # of one that cannot be empty: there `re` keeps groups in its own way
        repeated = chooser.choice(["a", "(b)", "[ab.]", "(a|b1)", "(?:ab|.)"])
        return repeated + chooser.choice(
            ["*", "+", "?", "*?", "+?", "??", "{2}", "{1,3}", "{0,2}?"]
        )
    if kind == 2:
        return chooser.choice(["(?=", "(?!"]) + chooser.choice(["a", "b*1", "[^.]", ".b"]) + ")"
    return "".join(inner)


@pytest.mark.parametrize(
    "pattern",
    [
        r"(\w|[a-z._0-9]|.)+!", "(a*)*!", "(a|aa)+!", ".*.*.*.*.*.*.*.*.*.*!", "((a?){10}){10}!",
        "(?=" * 30 + "a*" + ".*)" * 30 + "!", "(?:(?:(?:)*)*)*!", "((.*)+)+!",
    ],
)  # fmt: skip
def test_a_pattern_that_never_ends_in_re_ends(pattern: str) -> None:
    assert not LinearPattern(pattern).search("a" * 200)
    assert not LinearPattern(pattern.replace("!", "[!?]")).search("a" * 200)  # no quick refusal
    assert LinearPattern(pattern).replace_first("x", "a" * 200) is None


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(((a{1000}){1000}){1000})", "make more than 2,000 states"),
        ("(((){1000}){1000}){1000}", "make more than 2,000 states"),
        ("(?:){4000000000}", "make more than 2,000 states"),
        ("a{0,4000000000}", "make more than 2,000 states"),
        ("(?=" * 3 + "a{800}" + "b{800})" * 3, "make more than 2,000 states"),
        (r"(a)\1", "a back-reference is not supported"),
        (r"(a)?(?(1)b|c)", "a condition on a group is not supported"),
        ("(?=(a))", "write"),
        ("(?<=a*)b", "fixed width"),
        ("(", "not a valid pattern"),
        ("a{99999999999999999999}", "not a valid pattern"),
        ("(" * 100_000, "not a valid pattern"),
        ("[z-a]", "not a valid pattern"),
    ],
)  # fmt: skip
def test_what_cannot_be_linear_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(ValueTypeError, match=re.escape(why)):
        LinearPattern(pattern)


def test_a_list_of_patterns_has_a_limit_for_all_together() -> None:
    assert len(compile_all(["attn_v", "ffn"])) == 2
    with pytest.raises(ValueTypeError, match=f"more than {MAX_ALL_STATES:,} states together"):
        compile_all(f"a{{800}}{number}" for number in range(1000))


def test_the_cache_of_a_pattern_is_bounded() -> None:
    pattern = LinearPattern("(a|b).{300}c")
    chooser = random.Random(1)
    for _ in range(20):
        pattern.search("".join(chooser.choices("ab", k=500)))
    assert pattern._automaton.cached <= 20_000


def test_a_replacement_has_groups_by_number_and_name() -> None:
    pattern = LinearPattern(r"(?P<layer>\d+)(\.x)?\.(\w+)")
    assert pattern.replace_first(r"\3\g<2>[\g<layer>]\\", "blk.7.attn.w") == r"blk.attn[7]\.w"
    assert pattern.replace_first("x", "output") is None
    pattern.require_template(r"\1\g<layer>")
    with pytest.raises((re.error, IndexError)):
        pattern.require_template(r"\4")
    with pytest.raises((re.error, IndexError)):
        pattern.require_template(r"\g<no>")


def test_a_pattern_is_compared_copied_and_pickled_by_its_text() -> None:
    pattern = LinearPattern("a+", re.DOTALL)
    assert copy.deepcopy(pattern) == pattern == pickle.loads(pickle.dumps(pattern))
    assert {pattern} != {LinearPattern("a+")}
    assert repr(pattern) == "LinearPattern('a+')"
    assert pattern != "a+"
