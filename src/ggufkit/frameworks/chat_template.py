"""Render the chat template of a model, as transformers' `apply_chat_template` does.

Templates are untrusted programs: they run in another process, which is stopped if one takes long.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ggufkit.conversion.tokenizer.entries import ID_KEYS
from ggufkit.conversion.tokenizer.keys import VocabularyKeys
from ggufkit.errors import ChatTemplateError, brief
from ggufkit.frameworks.extras import library
from ggufkit.frameworks.template_process import FAILS
from ggufkit.models.any_model import AnyModel, opened
from ggufkit.system.sandbox import Servant, StoppedError

MAX_SECONDS: Final = 20  # by the clock, for one conversation
KEY: Final = "tokenizer.chat_template"
DEFAULT: Final = "default"
FOR_TOOLS: Final = "tool_use"  # the template that transformers takes for a conversation with tools
_CHECK: Final = "`ggufkit check` shows what is wrong with the template of a model"
_CORRECT: Final = "Each message needs `role` and `content` in the form that the model expects"
_NAMED_ROLES: Final = ("bos", "eos", "unk", "sep", "pad", "mask")  # templates know no others

Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class ChatTemplate:
    """The chat templates of a model by name, and the texts of its special tokens.

    Templates are programs. They run in jinja2's sandbox, which keeps them from Python and files,
    and in a process of their own with limits on time and memory. That process starts with the first
    conversation and serves all templates. `ggufkit check` also searches templates for attacks.
    """

    templates: Mapping[str, str]
    special_tokens: Mapping[str, str]

    def render(
        self,
        messages: Messages,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        name: str | None = None,
        **variables: Any,
    ) -> str:
        """Return the text of a conversation, ready for a tokenizer that adds no special tokens.

        `messages` have `role` and `content`; `tools` are JSON schemas. `add_generation_prompt` ends
        the text where the model's answer begins. `name` chooses a template; without it, "tool_use"
        is taken for a conversation with tools if the model has it. `variables`, such as
        `documents` or `enable_thinking`, are passed on. Everything is passed as JSON.

        Raises ChatTemplateError if the template refuses the conversation, fails or takes too long.
        """
        library("jinja2", "templates")
        if isinstance(messages, str | Mapping) or not all(isinstance(m, Mapping) for m in messages):
            raise ChatTemplateError(
                "`messages` is not a list of messages",
                remedy='Write [{"role": "user", "content": "..."}]',
            )
        if not all(isinstance(tool, Mapping) for tool in tools or ()):
            raise ChatTemplateError(
                "`tools` is not a list of JSON schemas",
                remedy="transformers.utils.get_json_schema(function) makes one of a function",
            )
        chosen = name or (FOR_TOOLS if bool(tools) and FOR_TOOLS in self.templates else DEFAULT)
        if chosen not in self.templates:
            names = ", ".join(self.templates)
            raise ChatTemplateError(
                f"the model has no chat template {brief(chosen)}",
                remedy=f"Use one of its names: {names}",
            )
        text = self.templates[chosen]
        values = {
            **self.special_tokens,
            "documents": None,
            **variables,
            "messages": messages,
            "tools": tools,
            "add_generation_prompt": add_generation_prompt,
        }
        return _rendered(text, values)


def chat_template(model: AnyModel) -> ChatTemplate:
    """Return the chat templates of a model; ChatTemplateError if it has none."""
    with opened(model) as source:
        keys = VocabularyKeys(source.metadata)
        templates = {
            key.removeprefix(KEY).removeprefix(".") or DEFAULT: str(value)
            for key, value in source.metadata.items()
            if key == KEY or key.startswith(f"{KEY}.")
        }
        if not templates:
            raise ChatTemplateError(
                "the model has no chat template",
                remedy="Add one: `ggufkit edit FILE --chat-template template.jinja`",
            )
        texts = {role: keys.text_of(role) for role in _NAMED_ROLES if role in ID_KEYS}
    specials = {f"{role}_token": text for role, text in texts.items() if text is not None}
    return ChatTemplate(templates, specials)


def _rendered(text: str, variables: Mapping[str, Any]) -> str:
    try:
        answer = _servant().answer_of({"template": text, "variables": variables}, MAX_SECONDS)
    except (TypeError, ValueError, RecursionError) as error:
        raise ChatTemplateError(
            f"the conversation cannot be passed to the template as JSON: {error}",
            remedy="Use strings, numbers, bools, None, lists and dicts",
        ) from error
    except StoppedError as error:
        raise ChatTemplateError(f"the chat template was stopped: {error}", remedy=_CHECK) from error
    if "text" in answer:
        return str(answer["text"])
    raise ChatTemplateError(
        f"the chat template {answer['what']}: {answer['reason']}",
        remedy=_CORRECT if answer["what"] == FAILS else _CHECK,
    )


@functools.lru_cache(maxsize=1)
def _servant() -> Servant:
    return Servant("ggufkit.frameworks.template_process")
