"""`ggufkit edit`: change metadata in place."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import click

import ggufkit
from ggufkit.cli import streams
from ggufkit.cli.model_argument import MODEL, complete_key, complete_setting
from ggufkit.cli.options import (
    flag,
    new_command,
    no_clobber_option,
    option,
    parse_size,
    threads_option,
)
from ggufkit.cli.output import emit, note
from ggufkit.cli.pipes import keys_of, refuse_pipe, text_of
from ggufkit.cli.progress import progress_bar
from ggufkit.cli.reports.show_changes import as_json, show
from ggufkit.cli.streams import PIPE
from ggufkit.cli.write_model import report, write_out
from ggufkit.edits.changes import changes
from ggufkit.edits.edit import ITEM, Edits, item_type
from ggufkit.edits.in_place import EditPlan, apply, plan_by
from ggufkit.edits.undo import plan_undo
from ggufkit.errors import printable
from ggufkit.format.coerce import plain
from ggufkit.format.metadata import Metadata

_DONE = {
    "nothing": "{file} already has these values; nothing written",
    "patched": "edited {file} in place; no data moved",
    "moved": "edited {file} in place; the data moved by {shift:+,} bytes without a copy",
    "cloned": "edited {file}; the data moved by {shift:+,} bytes without a copy",
    "copied": "edited {file}; all data was copied to a new file",
    "laid out": "edited {file}; all tensors were moved, and --undo cannot take that back",
}


@new_command(
    "edit",
    "ggufkit edit model.gguf --set general.name='My model' --dry-run",
    "ggufkit edit model.gguf --chat-template template.jinja",
    "ggufkit edit model.gguf --special-token eos='<|im_end|>'",
    "ggufkit edit model.gguf --set 'tokenizer.ggml.tokens[5]=<tool>'",
    "ggufkit edit model.gguf --set-type 'my.sizes:array[uint64]=[1, 2, 3]'",
    "ggufkit edit model.gguf --unset general.url --rename my.key=my.other_key",
    "ggufkit edit model.gguf --undo",
)
@click.argument("file", metavar="IN", type=MODEL)
@option(
    "--set pairs K=V",
    "Set a key, or item K[INDEX].",
    multiple=True,
    shell_complete=complete_setting,
)
@option("--set-type typed K:T=V", "Set a key with the type T.", multiple=True)
@option("--set-json FILE", "Set the keys of a JSON object in a file.")
@option("--unset K", "Remove a key.", multiple=True, shell_complete=complete_key)
@option("--rename A=B", "Rename the key A to B.", multiple=True, shell_complete=complete_setting)
@option("--chat-template FILE", "Set the chat template from a file.")
@option("--special-token NAME=ID|TEXT", "Set bos, eos, ...", multiple=True)
@option("--append K=V", "Append an item, or a JSON array, to an array.", multiple=True)
@option("--add-tags TAG,...", "Add to general.tags.", multiple=True)
@option("--reserve SIZE", "Reserve room in the header for later edits.", type=parse_size)
@option("-o --output OUT", "Write a copy (- for stdout); leave IN alone.")
@flag("--undo", "Undo the last edit; run again to undo the one before.")
@flag("--redo", "Redo the edit that was undone last.")
@flag("--force", "Edit even if llama.cpp may refuse the file; follow links.")
@flag("--dry-run", "Show what would change; write nothing.")
@flag("--json is_json", "Print the changes as JSON.")
@no_clobber_option
@threads_option
def command(  # noqa: PLR0913 (click passes each option)
    file: str,
    *,
    reserve: int | None,
    output: str | None,
    undo: bool,
    redo: bool,
    force: bool,
    dry_run: bool,
    is_json: bool,
    threads: int | None,
    **settings: Any,
) -> None:
    """Change the metadata of IN in place; the time does not depend on the model's size.

    A value keeps the type of its key. The value of a new key decides its type. Arrays are
    JSON. The changes are shown first. IN may be any shard; the keys are in the first shard, which
    is edited. An edit in place leaves a small hidden file next to IN, .NAME.ggufkit-undo, for
    --undo. If an edit is killed, `ggufkit recover` or the next edit finishes it.
    """
    is_edit = any(settings.values()) or reserve is not None
    if (undo or redo) and (is_edit or output is not None):
        raise click.UsageError("--undo and --redo are whole edits; remove the other edit options")
    if undo and redo:
        raise click.UsageError("Use either --undo or --redo")
    if not undo and not redo and not is_edit:
        raise click.UsageError(
            "Nothing to edit; use --set, --unset, --rename or another edit option"
        )
    if is_json and output == PIPE and not dry_run:
        raise click.UsageError("--json and the model cannot both go to stdout")
    if output is None and not dry_run:
        refuse_pipe(file)
    if undo or redo:
        _apply(plan_undo(file, force=force, again=redo), dry_run=dry_run, is_json=is_json)
        return
    parsed = assignments(settings)
    if output is None:
        planned = plan_by(file, partial(_edits, parsed), reserve=reserve, force=force)
        _apply(planned, dry_run=dry_run, is_json=is_json)
        return
    with ggufkit.open(file) as model:
        edits = _edits(parsed, model.metadata)
        edited = ggufkit.edit(model, reserve=reserve or 0, force=force, **edits)
        differences = changes(model.metadata, edited.metadata)
        if not is_json:
            show(differences, err=output == PIPE)
        paths = [] if dry_run else write_out(edited, output, threads=threads)
    if is_json:
        emit({"files": [str(path) for path in paths], "changes": as_json(differences)})
    else:
        report(paths)


def _edits(assignments: Assignments, metadata: Metadata) -> Edits:
    """Return the arguments of `edit`; some depend on the types of the file's keys."""
    for key in assignments.unfamiliar(metadata):
        note(key)
    return assignments.edits(metadata)


def _apply(planned: EditPlan, *, dry_run: bool, is_json: bool) -> None:
    if not is_json:
        show(planned.changes)
    if dry_run:
        outcome = None
        if not is_json:
            click.echo(_would(planned))
    else:
        with progress_bar("editing") as progress:
            outcome = apply(planned, progress=progress)
            streams.work_is_done()
        if not is_json:
            place = printable(str(outcome.path))
            click.echo(_DONE[outcome.way].format(file=place, shift=outcome.shift))
    if is_json:
        way = outcome.way if outcome else None
        document = {"file": str(planned.path), "way": way, "shift": planned.journal.shift}
        emit(document | {"changes": as_json(planned.changes)})


def _would(planned: EditPlan) -> str:
    file = printable(str(planned.path))
    if planned.is_empty:
        return _DONE["nothing"].format(file=file)
    if planned.metadata is not None:
        return f"would move all tensors of {file}"
    shift = planned.journal.shift
    how = f"moves by {shift:+,} bytes" if shift else "stays where it is"
    return f"would edit {file} in place; tensor data {how}"


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
