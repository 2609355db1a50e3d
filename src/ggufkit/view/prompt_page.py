"""The view of chat templates: render a conversation, mark special tokens, compare templates."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from ggufkit.conversion.tokenizer.sentencepiece_model import PieceType
from ggufkit.errors import ChatTemplateError
from ggufkit.frameworks.chat_template import chat_template
from ggufkit.view.plain_values import cut
from ggufkit.view.shown_model import ShownModel

MAX_TEMPLATE: Final = 1 << 20  # characters: real ones have thousands
MAX_LINES: Final = 5000  # of templates to compare: comparing takes time quadratic in them
MAX_SPECIAL: Final = 4096  # texts of special tokens that are marked
_TYPES: Final = "tokenizer.ggml.token_type"
_SPECIAL: Final = (PieceType.CONTROL, PieceType.USER_DEFINED)


def templates(shown: ShownModel) -> dict[str, Any]:
    """Return the texts of a model's chat templates by name, empty if it has none."""
    try:
        found = chat_template(shown.model)
    except ChatTemplateError:
        return {"templates": {}, "special_tokens": {}}
    return {
        "templates": {cut(name): cut(text, MAX_TEMPLATE) for name, text in found.templates.items()},
        "special_tokens": {role: cut(text) for role, text in found.special_tokens.items()},
    }


def prompt(shown: ShownModel, asked: dict[str, Any]) -> dict[str, Any]:
    """Render a conversation; raises as `ChatTemplate.render` does, which limits its time.

    `asked` has `messages`, and may have `tools`, `name`, `add_generation_prompt` and `variables`.
    """
    found = chat_template(shown.model)
    if any(len(text) > MAX_TEMPLATE for text in found.templates.values()):
        raise ChatTemplateError("the chat template is too long to be rendered")
    messages, tools, variables = (asked.get(key) for key in ("messages", "tools", "variables"))
    if not isinstance(messages, list) or not isinstance(tools or [], list):
        raise ChatTemplateError("`messages` or `tools` is not a list")
    given = variables if isinstance(variables, dict) else {}
    text = found.render(
        messages,
        tools=tools or None,
        add_generation_prompt=bool(asked.get("add_generation_prompt")),
        name=str(asked.get("name") or "") or None,
        **{str(key): value for key, value in given.items() if key not in _OWN},
    )
    return {"text": text, "parts": list(_marked(text, special_texts(shown)))}


_OWN: Final = frozenset({"messages", "tools", "add_generation_prompt", "name", "self"})


def special_texts(shown: ShownModel) -> list[str]:
    """Return the texts of control and user-defined tokens, the longest first."""
    types = shown.model.metadata.get(_TYPES)
    texts = shown.tokens()
    if not isinstance(types, np.ndarray) or len(types) != len(texts):
        return []
    ids = np.flatnonzero(np.isin(types, _SPECIAL))[:MAX_SPECIAL]
    return sorted((texts[at] for at in ids if texts[at].strip()), key=len, reverse=True)


def _marked(text: str, special: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the parts of a prompt, and whether each is a special token."""
    if not special:
        yield {"text": text, "special": False}
        return
    found = re.split(f"({'|'.join(map(re.escape, special))})", text)
    for at, part in enumerate(found):
        if part:
            yield {"text": part, "special": at % 2 == 1}


def compare_templates(before: str, after: str) -> dict[str, Any]:
    """Return the lines of two templates: in both, only before, or only after."""
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > MAX_LINES:
        return {"same": before == after, "lines": None}
    marks = {" ": "both", "-": "before", "+": "after"}
    lines = [
        {"in": marks[line[0]], "text": line[2:]}
        for line in difflib.ndiff(old, new)
        if line[0] in marks
    ]
    return {"same": before == after, "lines": lines}
