"""Regular expressions of users and files: those that `re` may never finish are refused."""

from __future__ import annotations

import re

import pytest

from ggufkit.errors import ValueTypeError
from ggufkit.validation.patterns import (
    MOST_LETTERS,
    compile_pattern,
    compile_untrusted,
    matches,
)

LONG = "a" * MOST_LETTERS


@pytest.mark.parametrize(
    "pattern",
    [
        r"(\w|[a-z._0-9]|.)+!", "(a*)*!", "(a|aa)+!", ".*.*.*.*.*.*.*.*.*.*!", "((a?){10}){10}!",
        "(?:(?:(?:)*)*)*!", "((.*)+)+!", "(?i:a|b)*c", "(?P<x>a+)+", "((a|b))*",
        "a*a*a*a*a*a*!", "([)]|a)*", r"(\)|a)*", "(?=(a|b)*)", "(a*?)+?",
        "(?x)(a*#)\n)*!", "(?ix: a)", "(a*(?#(x))*!", "(?P<x>a)(?(x)b|c)", "(a*|b)" * 6,
        "a*a*a*a*a*!", r"(a*?\w+?|[ab](.)*?){2}!", "(((a)*?){2}|(?i:a){2}b){2}!",
        "(((){100}){100}){100}", "(?:){9999999}",
        "(a|a)" * 30 + "!", "a?" * 30 + "a" * 30, "a{0,99}" * 8 + "!", "(a|b){40}!",
    ],
)  # fmt: skip
def test_a_pattern_that_may_never_end_is_refused(pattern: str) -> None:
    re.compile(pattern)
    with pytest.raises(ValueTypeError, match="could take forever"):
        compile_untrusted(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "attn_v", r"blk\.(0|1[0-9])\.", "^output", r"weight$", "(?i)ATTN", r"^(?!.*attn).*weight",
        r"ffn_(?=down|up)", r"(?<=blk\.)\d", "a{2,3}b", r"\w+\.\d+", "(?P<x>a)b|c$", "(?i:B)LK",
        r"blk\.(\d|[12]\d)\.ffn_(gate|up|down)(_exps)?\.weight", "(ab)+", "([a|b])*", r"(\|)*",
        "(a|b)?c", "([]|)]a){2,}", ".*a.*b.*c.*d.*", "{", "a{,", "()", "(?:x)+(y|z)",
        "(a|b){3}", "(x(a|b)){4}", ".*attn_v.*|.*ffn_down.*|.*output.*|.*token_embd.*",
        "(" + "|".join(map(str, range(64))) + r")\.ffn", "a{64}", r"blk\.(\d+)\.(\w+)",
    ],
)  # fmt: skip
def test_usual_patterns_are_compiled_and_end_soon(pattern: str) -> None:
    assert compile_untrusted(pattern) == compile_pattern(pattern) == re.compile(pattern)
    assert matches(compile_untrusted(pattern), LONG) == (re.search(pattern, LONG) is not None)


def test_a_name_that_is_too_long_is_refused() -> None:
    pattern = compile_untrusted("a*b")
    assert not matches(pattern, LONG)
    with pytest.raises(ValueTypeError, match="97 letters"):
        matches(pattern, f"{LONG}a")


@pytest.mark.parametrize("pattern", ["(", "a{99999999999999999999}", "(" * 100_000, "[z-a]"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    for compiled in (compile_pattern, compile_untrusted):
        with pytest.raises(ValueTypeError, match="not a valid pattern"):
            compiled(pattern)
    with pytest.raises(ValueTypeError, match=r"'glob\*' is not a valid"):
        compile_pattern(pattern, written="glob*")
