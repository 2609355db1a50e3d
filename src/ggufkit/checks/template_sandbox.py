"""Render a chat template on sample conversations: the child process of `chat_template`.

It imports only the standard library and jinja2.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from typing import Any, Final

MAX_CHARACTERS: Final = 1 << 20  # of output for one conversation
SHOWN_CHARACTERS: Final = 200  # of a reason
QUESTION: Final = "What is the capital of Portugal?"
_USER: Final = {"role": "user", "content": QUESTION}
_ANSWER: Final = {"role": "assistant", "content": "Lisbon."}
_SYSTEM: Final = {"role": "system", "content": "Answer briefly."}
_PARTS: Final = {"role": "user", "content": [{"type": "text", "text": QUESTION}]}
_TOOL: Final = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Its name"}},
            "required": ["city"],
        },
    },
}
_DOCUMENTS: Final = [{"title": "Portugal", "text": "Its capital is Lisbon."}]
_FIRST: Final = "a question"
_WITH_TOOL: Final = "a question with a tool"
CONVERSATIONS: Final[dict[str, dict[str, Any]]] = {
    _FIRST: {"messages": [_USER]},
    "a question after an answer": {"messages": [_USER, _ANSWER, _USER]},
    "a question with a system message": {"messages": [_SYSTEM, _USER]},
    _WITH_TOOL: {"messages": [_USER], "tools": [_TOOL]},
}

# A template may decline some conversations, but not all.
_REFUSED: Final = "refused"
_RULE_IF_ALL_FAIL: Final = dict.fromkeys((_REFUSED, "template-partial"), "template-render")

Fault = dict[str, str]


class RefusedError(Exception):
    """The template itself refuses a conversation, with `raise_exception`."""


class OutputLimitError(Exception):
    """The output of the template exceeds the limit."""


def answer(job: dict[str, Any]) -> list[Fault]:
    """Return the faults of the template of a job."""
    try:
        template = environment().from_string(job["template"])
    except MemoryError:
        return [{"rule": "template-limit", "reason": "parsing takes too much memory"}]
    except Exception as error:  # noqa: BLE001 (jinja2's, or Python's of what jinja2 makes of it)
        return [{"rule": "template-syntax", "reason": _reason(error)}]
    names = (_WITH_TOOL,) if job["is_special"] else tuple(CONVERSATIONS)
    results = [_fault_in(template, name, job) for name in names]
    if all(results) and not job["is_special"]:  # such a template may need another form of tools
        first, rule = results[0], results[0]["rule"]
        return [first | {"rule": _RULE_IF_ALL_FAIL.get(rule, rule)}]
    return [result for result in results if result.get("rule", _REFUSED) != _REFUSED]


def _fault_in(template: Any, name: str, job: dict[str, Any]) -> Fault:  # noqa: ANN401
    from jinja2.exceptions import SecurityError  # noqa: PLC0415

    try:
        rendered = _render(template, name, job)
    except RefusedError as error:
        return {"rule": _REFUSED, "conversation": name, "reason": _reason(error)}
    except SecurityError as error:
        return {"rule": "template-unsafe", "reason": _reason(error)}
    except (OutputLimitError, MemoryError) as error:
        return {"rule": "template-limit", "reason": _reason(error)}
    except Exception as error:  # noqa: BLE001 (a template can raise whatever Python can)
        return {"rule": "template-partial", "conversation": name, "reason": _reason(error)}
    shows_question = QUESTION in rendered
    return {} if shows_question else {"rule": "template-silent", "conversation": name}


def _render(template: Any, name: str, job: dict[str, Any]) -> str:  # noqa: ANN401
    """Render a conversation; if it fails, with messages in parts, as some templates need."""
    conversation = CONVERSATIONS[name]
    rendered, failure = "", None
    for user in (_USER, _PARTS):
        messages = [user if message is _USER else message for message in conversation["messages"]]
        try:
            variables = _variables(job) | conversation | {"messages": messages}
            rendered = joined_within(MAX_CHARACTERS, template.generate(variables))
        except (TypeError, AttributeError, RefusedError) as error:
            failure = failure or error
            continue
        if QUESTION in rendered:
            return rendered
    if failure and not rendered:
        raise failure
    return rendered


def joined_within(most: int, pieces: Iterator[str]) -> str:
    """Return all pieces as one text; OutputLimitError if it has more than `most` characters."""
    parts, size = [], 0
    for piece in pieces:
        parts.append(piece)
        size += len(piece)
        if size > most:
            raise OutputLimitError(f"the output is longer than {most} characters")
    return "".join(parts)


def _variables(job: dict[str, Any]) -> dict[str, Any]:
    return {
        "add_generation_prompt": True,
        "bos_token": job["bos_token"],
        "eos_token": job["eos_token"],
        "tools": None,
        "documents": _DOCUMENTS if job["is_special"] else None,
    }


def _refuse(message: object) -> None:
    raise RefusedError(str(message))


def environment() -> Any:  # noqa: ANN401
    """Return the environment of chat templates in transformers and llama.cpp, sandboxed."""
    from jinja2 import nodes  # noqa: PLC0415
    from jinja2.ext import Extension, loopcontrols  # noqa: PLC0415
    from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415

    class Generation(Extension):
        """The block that marks the model's own text; it is rendered unchanged."""

        tags = {"generation"}  # noqa: RUF012 (as jinja2 has it)

        def parse(self, parser: Any) -> Any:  # noqa: ANN401
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[Generation, loopcontrols],
        autoescape=False,
    )
    environment.filters["tojson"] = _as_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = dt.datetime.now(tz=dt.timezone.utc).strftime
    return environment


def _as_json(value: object, **options: Any) -> str:
    names = ("ensure_ascii", "indent", "separators", "sort_keys")
    accepted = {name: options[name] for name in names if name in options}
    return json.dumps(value, **{"ensure_ascii": False, **accepted})


def _reason(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:SHOWN_CHARACTERS]
