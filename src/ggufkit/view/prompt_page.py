"""The view of chat templates: render a conversation, compare templates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from ggufkit.errors import ChatTemplateError
from ggufkit.frameworks.chat_template import chat_template
from ggufkit.view.page_model import PageModel
from ggufkit.view.plain_values import cut

MAX_TEMPLATE: Final = 1 << 20  # characters of all that are shown; real ones have thousands
MAX_TEMPLATES: Final = 16  # shown of one model; real ones have up to five
MAX_PROMPT: Final = 1 << 20  # characters
MAX_LINES: Final = 5000  # of templates to compare: comparing takes time quadratic in them
_OWN: Final = frozenset({"messages", "tools", "add_generation_prompt", "name", "self"})

LineIds: TypeAlias = npt.NDArray[np.int16]


def templates(page: PageModel) -> dict[str, Any]:
    """Return the texts of a model's chat templates by name, empty if it has none."""
    try:
        template = chat_template(page.model)
    except ChatTemplateError:
        return {"templates": {}, "special_tokens": {}}
    most = MAX_TEMPLATE // min(len(template.templates), MAX_TEMPLATES)
    texts = list(template.templates.items())[:MAX_TEMPLATES]
    return {
        "templates": {cut(name): cut(text, most) for name, text in texts},
        "special_tokens": {role: cut(text) for role, text in template.special_tokens.items()},
    }


def prompt(page: PageModel, query: dict[str, Any]) -> dict[str, Any]:
    """Render a conversation; raises as `ChatTemplate.render` does, which limits its time.

    `query` has `messages`, and may have `tools`, `name`, `add_generation_prompt` and `variables`.
    """
    template = chat_template(page.model)
    if any(len(text) > MAX_TEMPLATE for text in template.templates.values()):
        raise ChatTemplateError("the chat template is too long to be rendered")
    messages, tools, variables = (query.get(key) for key in ("messages", "tools", "variables"))
    if not isinstance(messages, list) or not isinstance(tools or [], list):
        raise ChatTemplateError("`messages` or `tools` is not a list")
    extra = variables if isinstance(variables, dict) else {}
    text = template.render(
        messages,
        tools=tools or None,
        add_generation_prompt=bool(query.get("add_generation_prompt")),
        name=str(query.get("name") or "") or None,
        **{str(key): value for key, value in extra.items() if key not in _OWN},
    )
    if len(text) > MAX_PROMPT:
        raise ChatTemplateError(
            f"the prompt has {len(text):,} characters",
            remedy=f"The page shows up to {MAX_PROMPT:,}",
        )
    return {"text": text} | page.ask_vocabulary({"task": "mark", "text": text})


def compare_templates(before: str, after: str) -> dict[str, Any]:
    """Return the lines of two templates: in both, only before, or only after."""
    old, new = before.splitlines(), after.splitlines()
    is_long = max(len(old), len(new)) > MAX_LINES
    lines = None if is_long else [{"in": side, "text": text} for side, text in _merged(old, new)]
    return {"same": before == after, "lines": lines}


def _merged(old: list[str], new: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the lines of both, with the side of each; as many as possible are in both."""
    numbers: dict[str, int] = {}
    old_ids, new_ids = (
        np.array([numbers.setdefault(line, len(numbers)) for line in lines], np.int16)
        for lines in (old, new)
    )
    common = _common_lengths(old_ids, new_ids)
    row, column = 0, 0
    while row < len(old) or column < len(new):
        if row < len(old) and column < len(new) and old_ids[row] == new_ids[column]:
            yield "both", old[row]
            row, column = row + 1, column + 1
        elif row < len(old) and common[row + 1, column] == common[row, column]:
            yield "before", old[row]
            row += 1
        else:
            yield "after", new[column]
            column += 1


def _common_lengths(old: LineIds, new: LineIds) -> LineIds:
    """Return how many lines the ends of two texts share in order, from each pair of lines on.

    One pass over all pairs: `difflib` is faster on most texts, but takes hours on some.
    """
    common = np.zeros((len(old) + 1, len(new) + 1), np.int16)  # MAX_LINES fits
    for row in reversed(range(len(old))):
        below = common[row + 1]
        longer = np.maximum(below[:-1], below[1:] + (new == old[row]))
        common[row, :-1] = np.maximum.accumulate(longer[::-1])[::-1]
    return common
