"""Parses edits from the command line into the arguments of `edit`."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import click

from ggufkit.cli.output import note
from ggufkit.cli.pipes import keys_of, text_of
from ggufkit.edits.edit import ITEM, Edits, item_type
from ggufkit.format.coerce import plain
from ggufkit.format.metadata import Metadata

_INTEGER: Final = re.compile(r"[+-]?[0-9]+|0[xX][0-9a-fA-F]+")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NO_DECIMAL: Final = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_BOOLS: Final = {"true": True, "false": False}
_MOST_DIGITS: Final = 100  # of an integer; more mean none, and Python reads no more than 4300
_SURELY_MEANT: Final = 0.9  # similarity from which a new key may be a misspelled one


@dataclass(frozen=True)
class Assignments:
    """The edits to make; a value stays text if reading it needs the type of its key."""

    texts: dict[str, str]
    types: dict[str, str]
    values: dict[str, object]
    others: Edits
    appended: tuple[tuple[str, str], ...] = ()

    def unfamiliar(self, metadata: Metadata) -> Iterator[str]:
        """Yield a note for each new key that looks like an existing one."""
        for key in (*self.texts, *self.values):
            near = difflib.get_close_matches(key, metadata, 1, _SURELY_MEANT)
            if key not in metadata and "[" not in key and key not in self.types and near:
                yield f"{key} is a new key; did you mean {near[0]}?"

    def edits(self, metadata: Metadata) -> Edits:
        """Return the arguments of `edit`."""
        values = {key: self._read(key, text, metadata) for key, text in self.texts.items()}
        longer, types = self._longer(metadata)
        types_by_key = {**types, **self.types}
        return {**self.others, "set": {**self.values, **values, **longer}, "types": types_by_key}

    def _longer(self, metadata: Metadata) -> tuple[dict[str, list[Any]], dict[str, str]]:
        longer: dict[str, list[Any]] = {}
        types: dict[str, str] = {}
        for key, text in self.appended:
            name = metadata.type_name(key) if key in metadata else ""
            if not name.startswith("array["):
                state = f"is of type {name}" if name else "does not exist"
                raise click.BadParameter(f"--append {key}: the key {state}; --set makes an array")
            item = name.removeprefix("array[").removesuffix("]")
            is_list = item != "string" and text.startswith("[")
            items = _json(key, text) if is_list else [read(key, text, item)]
            before = longer.get(key) or list(plain(metadata[key]))
            longer[key] = before + list(items)
            types[key] = name
        return longer, types

    def _read(self, key: str, text: str, metadata: Metadata) -> object:
        item = None if key in metadata else ITEM.fullmatch(key)
        if key in self.types:
            name = self.types[key]
        elif item and item["key"] in metadata:
            name = item_type(metadata, item)
        else:
            name = metadata.type_name(key) if key in metadata else ""
        return read(key, text, name)


def assignments(options: Mapping[str, Any]) -> Assignments:
    """Parse the options of `ggufkit edit` that change keys; BadParameter for a malformed one."""
    texts = dict(_split(pair, "--set", "K=V") for pair in options["pairs"])
    types: dict[str, str] = {}
    for pair in options["typed"]:
        key_and_type, text = _split(pair, "--set-type", "K:T=V")
        key, colon, name = key_and_type.rpartition(":")
        if not colon:
            raise click.BadParameter(f"--set-type {pair!r} is not of the form K:T=V")
        texts[key], types[key] = text, name
    values: dict[str, object] = {}
    document = options["set_json"]
    for key, value in keys_of(document, _finite).items() if document is not None else ():
        values[key] = value
        if isinstance(value, dict):
            if value.keys() != {"type", "value"} or not isinstance(value["type"], str):
                raise click.BadParameter(
                    f'the value of {key} is an object, but not {{"type": ..., "value": ...}}'
                )
            types[key], values[key] = value["type"], value["value"]
    special = options["special_token"]
    tokens = dict(_split(pair, "--special-token", "NAME=ID|TEXT") for pair in special)
    others: Edits = {
        "drop_keys": options["unset"],
        "rename": dict(_split(pair, "--rename", "A=B") for pair in options["rename"]),
        "special_tokens": {name: _token(text) for name, text in tokens.items()},
        "add_tags": [
            tag.strip() for tag in ",".join(options["add_tags"]).split(",") if tag.strip()
        ],
    }
    if (chat_template := options["chat_template"]) is not None:
        text = text_of(chat_template)
        if "\r\n" in text:
            note(
                f"{chat_template} has Windows line endings (CRLF), which the key keeps as they are"
            )
        others["chat_template"] = text
    more = tuple(_split(pair, "--append", "K=V") for pair in options["append"])
    return Assignments(texts, types, values, others, more)


def _split(pair: str, option: str, form: str) -> tuple[str, str]:
    key, equals, value = pair.partition("=")
    if not equals or not key:
        raise click.BadParameter(f"{option} {pair!r} is not of the form {form}")
    return key, value


def _token(text: str) -> int | str:
    is_id = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return int(text) if is_id else text


def read(key: str, text: str, type: str) -> object:
    """Return the plain value of `text` for a key of a type; the type of a new key is ""."""
    name = type.strip().lower()
    if name == "string":
        return text
    if name.startswith("array"):
        return _json(key, text)
    if name == "bool":
        if text.lower() not in _BOOLS:
            raise click.BadParameter(f"{key}: {text!r} is neither true nor false")
        return _BOOLS[text.lower()]
    if name.startswith("float"):
        if _NO_DECIMAL.fullmatch(text):
            return float(text)
        if not _DECIMAL.fullmatch(text):
            raise click.BadParameter(f"{key}: {text!r} is not a number")
        return _finite(text)
    return _number(text) if name else _guess(key, text)


def _guess(key: str, text: str) -> object:
    """Return the value of a new key, with a type guessed from its text."""
    if text in _BOOLS:
        return _BOOLS[text]
    if text.startswith("["):
        return _json(key, text)
    return _number(text)


def _number(text: str) -> int | float | str:
    """Return a number, or the text itself if it is not one: its type check reports the error."""
    if _INTEGER.fullmatch(text):
        if len(text) > _MOST_DIGITS:
            raise click.BadParameter(f"a number of {len(text):,} digits does not fit any type")
        return int(text, 16 if "x" in text.lower() else 10)
    return _finite(text) if _DECIMAL.fullmatch(text) else text


def _finite(text: str) -> float:
    """Return the number of a decimal; BadParameter instead of infinity."""
    number = float(text)
    if math.isinf(number):
        raise click.BadParameter(f"{text[:40]} is too large for every number type")
    return number


def _json(key: str, text: str) -> Any:  # noqa: ANN401 (any JSON)
    try:
        return json.loads(text, parse_float=_finite)
    except (ValueError, RecursionError):
        raise click.BadParameter(
            f'{key}: {text!r} is not a JSON array; write it as [1, 2] or ["a", "b"]'
        ) from None
