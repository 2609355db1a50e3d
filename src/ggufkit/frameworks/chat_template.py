"""Render the chat template of a model, as transformers' `apply_chat_template` does."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ggufkit.checks.template_sandbox import environment
from ggufkit.conversion.tokenizer.entries import ID_KEYS
from ggufkit.conversion.tokenizer.keys import VocabularyKeys
from ggufkit.errors import ChatTemplateError, brief
from ggufkit.frameworks.extras import library
from ggufkit.models.any_model import AnyModel, opened

KEY: Final = "tokenizer.chat_template"
DEFAULT: Final = "default"
FOR_TOOLS: Final = "tool_use"  # the template that transformers takes for a conversation with tools
_NAMED_ROLES: Final = ("bos", "eos", "unk", "sep", "pad", "mask")  # templates know no others

Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class ChatTemplate:
    """The chat templates of a model by name, and the texts of its special tokens.

    Templates are programs. They run in jinja2's sandbox, which keeps them from Python and files but
    not from taking long: `ggufkit check` also limits that, and searches them for attacks.
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
        `documents` or `enable_thinking`, are passed on.

        Raises ChatTemplateError if the template refuses the conversation or fails.
        """
        jinja2 = library("jinja2", "templates")
        _require_mappings(messages, tools)
        text = self._chosen(name, with_tools=bool(tools))
        given = {
            **self.special_tokens,
            "documents": None,
            **variables,
            "messages": messages,
            "tools": tools,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            rendered: str = _compiled(text).render(given)
        except jinja2.TemplateError as error:
            what = "has an error" if isinstance(error, jinja2.TemplateSyntaxError) else "refuses"
            raise ChatTemplateError(
                f"the chat template {what}: {error}",
                remedy="`ggufkit check` shows what is wrong with the template of a model",
            ) from error
        except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
            raise ChatTemplateError(
                f"the chat template fails on this conversation: {error}",
                remedy="Each message needs `role` and `content` in the form that the model expects",
            ) from error
        return rendered

    def _chosen(self, name: str | None, *, with_tools: bool) -> str:
        wanted = name or (FOR_TOOLS if with_tools and FOR_TOOLS in self.templates else DEFAULT)
        if wanted not in self.templates:
            known = ", ".join(self.templates)
            raise ChatTemplateError(
                f"the model has no chat template {brief(wanted)}",
                remedy=f"Use name= with one of {known}",
            )
        return self.templates[wanted]


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


def _require_mappings(messages: Messages, tools: Sequence[Mapping[str, Any]] | None) -> None:
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


@functools.lru_cache(maxsize=32)
def _compiled(text: str) -> Any:  # noqa: ANN401 (a template of jinja2)
    made = environment()
    made.globals |= {"raise_exception": _refuse, "strftime_now": _now}
    return made.from_string(text)


def _refuse(message: object) -> None:
    raise library("jinja2", "templates").TemplateError(str(message))


def _now(form: str) -> str:
    return dt.datetime.now().strftime(form)  # noqa: DTZ005 (the user's own time)
