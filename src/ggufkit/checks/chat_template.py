"""Check chat templates: search them for code, then render them in a separate process.

A template is an untrusted program in Jinja. It never runs in this process: `template_sandbox` runs
it in jinja2's sandbox, with limits on time, memory and output.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from typing import Final

from ggufkit.checks.model_view import TOKENS, ModelView, Violation, at_key
from ggufkit.format.values import Strings
from ggufkit.system.sandbox import StoppedError, answer_of

TEMPLATE: Final = "tokenizer.chat_template"
MAX_TEMPLATES: Final = 8  # rendered at most; real files have up to three
MAX_CHARACTERS: Final = 1 << 20  # of one template: real ones have thousands
# Text by which published attacks reach from a template into Python.
_CODE: Final = re.compile(
    r"__\w+__"  # dunder attributes, as in __class__ or __globals__
    r"|(?:\\x5f|\\137|\\u005f){2}"  # the same, escaped
    r"|\battr\s*\(\s*['\"]_"  # attributes by name
    r"|['\"]__\w|['\"]_{1,2}['\"]\s*[~*+]"  # underscores joined from parts
    r"|\b(?:lipsum|cycler|joiner)\s*(?:\.|\[|\|)"  # objects of Jinja that lead to its globals
    r"|\b(?:subprocess|importlib|builtins|popen)\b"
    r"|\b(?:eval|exec|compile|getattr|globals|os\.system)\s*\("
    r"|\{%-?\s*(?:include|extends|import|from)\b",
    re.IGNORECASE,
)
_OPEN: Final = re.compile(r"\{[{%]")
_CLOSE: Final = {"{{": "}}", "{%": "%}"}


def template_keys(view: ModelView) -> list[str]:
    """Return the keys of all chat templates of a model."""
    return [key for key in view.metadata if key == TEMPLATE or key.startswith(f"{TEMPLATE}.")]


def template_faults(view: ModelView, keys: list[str] | None = None) -> Iterator[Violation]:
    """Yield every rule that a model's chat templates break: those in `keys`, or all."""
    count = 0
    for key in template_keys(view) if keys is None else keys:
        text = view.metadata[key]
        if not isinstance(text, str) or not text:
            continue
        count += 1
        if count > MAX_TEMPLATES:
            yield at_key("template-limit", key, reason=f"it comes after {MAX_TEMPLATES} others")
            return
        if len(text) > MAX_CHARACTERS:
            yield at_key("template-limit", key, reason=f"it has {len(text)} characters")
            continue
        for tag in _tags(text):  # the code that Jinja runs, not the text around it
            if match := _CODE.search(tag):
                yield at_key("template-code", key, found=match[0])
        yield from _about_rendering(view, key, text)


def _tags(text: str) -> Iterator[str]:
    opened = _OPEN.search(text)
    while opened:
        end = text.find(_CLOSE[opened[0]], opened.end())
        yield text[opened.start() : end if end >= 0 else len(text)]
        opened = _OPEN.search(text, end) if end >= 0 else None


def _about_rendering(view: ModelView, key: str, text: str) -> Iterator[Violation]:
    if importlib.util.find_spec("jinja2") is None:
        yield at_key("template-unrendered", key)
        return
    job = {
        "template": text,
        "is_special": key != TEMPLATE,  # for tools or documents: gets both
        "bos_token": _token(view, "bos"),
        "eos_token": _token(view, "eos"),
    }
    try:
        faults = answer_of("ggufkit.checks.template_sandbox", job)
    except StoppedError as error:
        faults = [{"rule": "template-limit", "reason": str(error)}]
    for fault in faults:
        yield at_key(fault.pop("rule"), key, **fault)


def _token(view: ModelView, name: str) -> str:
    number = view.number(f"tokenizer.ggml.{name}_token_id")
    tokens = view.metadata.get(TOKENS)
    if number is None or not isinstance(tokens, Strings) or not 0 <= number < len(tokens):
        return ""
    return tokens[number]
