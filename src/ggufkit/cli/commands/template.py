"""`ggufkit template`: render a conversation with the chat template of a model."""

from __future__ import annotations

import json
from typing import Any, Final

import click

import ggufkit
from ggufkit.cli.model_argument import MODEL, look_at
from ggufkit.cli.options import flag, new_command, option
from ggufkit.cli.output import emit, print_text
from ggufkit.cli.pipes import json_of

_OWN: Final = ("self", "messages", "tools", "add_generation_prompt", "name")  # not variables
SAMPLE: Final[list[dict[str, Any]]] = [
    {"role": "user", "content": "What is the capital of Portugal?"},
    {"role": "assistant", "content": "Lisbon."},
    {"role": "user", "content": "And of Spain?"},
]
_JSON_FILE: Final = click.Path(exists=True, dir_okay=False, allow_dash=True)


@new_command(
    "template",
    "ggufkit template model.gguf",
    'ggufkit template model.gguf "What is GGUF?" --add-generation-prompt',
    "ggufkit template model.gguf --messages chat.json --add-generation-prompt",
    "ggufkit template model.gguf --messages chat.json --tools tools.json",
    "ggufkit template model.gguf --messages chat.json --set enable_thinking=false",
    "ggufkit template model.gguf --messages chat.json --json | jq -r .prompt",
)
@click.argument("file", type=MODEL)
@click.argument("text", required=False)
@option(
    "--messages messages_file FILE",
    "JSON file of the conversation; - is standard input.",
    type=_JSON_FILE,
)
@option(
    "--tools tools_file FILE", "JSON file of the tools that the model may call.", type=_JSON_FILE
)
@flag("--add-generation-prompt", "End the prompt where the model's answer begins.")
@option("--name NAME", "Use this one of several templates.")
@option(
    "--set settings NAME=VALUE",
    "Set a variable of the template; VALUE is JSON, or else text.  [repeatable]",
    multiple=True,
)
@flag("--json as_json", "Print the prompt as JSON.")
def command(  # noqa: PLR0913 (the options)
    file: str,
    *,
    text: str | None,
    messages_file: str | None,
    tools_file: str | None,
    add_generation_prompt: bool,
    name: str | None,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Render a conversation with the chat template of FILE, as transformers does.

    TEXT is a question of the user. Without TEXT and --messages, the conversation is a sample of
    three messages. The template runs in a sandbox, in a process of its own with limits on time and
    memory. FILE of --messages is a list of messages with a role and a content, or an object with
    "messages" and perhaps "tools", as sent to servers.
    """
    if text is not None and messages_file is not None:
        raise click.UsageError("Use either TEXT or --messages")
    if messages_file is not None:
        chat = json_of(messages_file)
    else:
        chat = SAMPLE if text is None else [{"role": "user", "content": text}]
    tools = None if tools_file is None else json_of(tools_file)
    if isinstance(chat, dict):
        tools = chat.get("tools") if tools is None else tools
        chat = chat.get("messages")
    variables = dict(_setting(setting) for setting in settings)
    _require_list(chat, "--messages", "messages")
    if tools is not None:
        _require_list(tools, "--tools", "tools")
    with look_at(file) as model:
        template = ggufkit.chat_template(model)
    prompt = template.render(
        chat, tools=tools, add_generation_prompt=add_generation_prompt, name=name, **variables
    )
    if as_json:
        emit({"prompt": prompt, "templates": list(template.templates)})
    else:
        print_text(prompt, errors="surrogatepass")


def _require_list(value: object, option: str, what: str) -> None:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise click.BadParameter(f"expected a JSON list of {what}", param_hint=option)


def _setting(text: str) -> tuple[str, Any]:
    name, is_there, value = text.partition("=")
    if not is_there or not name.isidentifier():
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--set")
    if name in _OWN:
        raise click.BadParameter(f"{name!r} is not set this way", param_hint="--set")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value
