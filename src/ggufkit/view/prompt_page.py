"""The view of chat templates: their texts, and conversations that they render."""

from __future__ import annotations

from typing import Any, Final

from ggufkit.errors import ChatTemplateError
from ggufkit.frameworks.chat_template import chat_template
from ggufkit.view.page_model import PageModel
from ggufkit.view.plain_values import cut

MAX_TEMPLATE: Final = 1 << 20  # characters of all that are shown; real ones have thousands
MAX_TEMPLATES: Final = 16  # shown of one model; real ones have up to five
MAX_PROMPT: Final = 1 << 20  # characters
_OWN: Final = frozenset({"messages", "tools", "add_generation_prompt", "name", "self"})


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
