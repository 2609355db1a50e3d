"""Edits from the page, as `ggufkit edit` makes them: a preview of the changes, the edit, and undo.

Only GGUF files on this machine that the command has opened are edited, and only in the state in
which they were opened. An edit is carried out only if it is what the preview showed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Sized
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ggufkit.edits.changes import Change
from ggufkit.edits.edit import ITEM, Edits, item_type
from ggufkit.edits.in_place import EditPlan, apply, plan
from ggufkit.edits.undo import plan_undo
from ggufkit.errors import FormatError, GGUFError, OutputError, ValueTypeError, brief
from ggufkit.format.metadata import Metadata
from ggufkit.inspection.summary import plain
from ggufkit.models.open import open as open_model
from ggufkit.system.mapped_file import MappedFile
from ggufkit.view.metadata_page import key_row, short_value
from ggufkit.view.page_model import PageModel
from ggufkit.view.prompt_page import compare_templates

MAX_EDITS: Final = 100  # keys in one request
MAX_TEXT: Final = 1 << 20  # characters of a value in the form
MAX_LIST: Final = 10_000  # items of an array in the form
MAX_ITEMS: Final = 20  # changed items of an array in the preview
_FIELDS: Final = frozenset({"set", "drop", "undo", "state"})  # of a request
_SET_FIELDS: Final = ({"key", "value"}, {"key", "value", "type"})


@dataclass(frozen=True)
class Editor:
    """Edits the files of the page's models, one edit at a time.

    After an edit the list has the model of the changed file.
    """

    models: list[PageModel]
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def facts(self, page: PageModel) -> dict[str, Any]:
        """Return why a model cannot be edited, empty if it can, and what `undo` would change."""
        try:
            file = _file_of(page)
            plan(file.path)
        except (GGUFError, OSError) as error:
            return {"reason": str(error), "undo": []}
        with contextlib.suppress(GGUFError):
            return {"reason": "", "undo": list(map(change_row, plan_undo(file.path).changes))}
        return {"reason": "", "undo": []}

    def text(self, page: PageModel, number: int) -> dict[str, Any]:
        """Return a key by its number, and its value as text: JSON, or a string as it is."""
        key = page.key(number)
        value = page.model.metadata.typed(key)
        is_long = not isinstance(value, str) and isinstance(value, Sized) and len(value) > MAX_LIST
        text = "" if is_long else value if isinstance(value, str) else json.dumps(plain(value))
        has_odd_ends = "\r" in text.replace("\r\n", "") or 0 < text.count("\r\n") < text.count("\n")
        if is_long or len(text) > MAX_TEXT or has_odd_ends:  # which a text area would change
            problem = "has several kinds of line ends" if has_odd_ends else "is too long"
            raise ValueTypeError(
                f"{brief(key)} {problem} and cannot be edited here",
                remedy="Use `ggufkit edit`, which also changes single items of arrays",
            )
        return {"key": key, "text": text}

    def preview(self, page: PageModel, request: dict[str, Any]) -> dict[str, Any]:
        """Return the changes that a request asks for, and the state to carry them out from.

        A request has `undo`, or `set` (a list of keys with values as text, and types) and `drop`
        (a list of keys). Raises what the edit would raise.
        """
        planned = _planned(page, _file_of(page), request)
        return {"changes": list(map(_difference, planned.changes)), "state": _state(planned)}

    def apply(self, page: PageModel, request: dict[str, Any]) -> dict[str, Any]:
        """Carry out what `preview` showed; `state` is its answer.

        Raises FormatError, and changes nothing, if the file or the request is another one now.
        """
        with self._lock:
            number = next((n for n, own in enumerate(self.models) if own is page), None)
            if number is None:
                raise _changed(page.name)  # by an edit that came first
            planned = _planned(page, _file_of(page), request)
            if request.get("state") != _state(planned):
                raise FormatError(
                    "this edit is not the one that was previewed", remedy="Look at the changes"
                )
            page.resources.close()
            page.model.close()  # the blocks of a file that is mapped cannot move
            try:
                # Without `again`: if another process edited the file first, this edit must fail.
                done = apply(replace(planned, again=None))
            finally:
                self.models[number] = _opened_again(page)
        return {"changes": len(done.changes)}


def change_row(change: Change) -> dict[str, Any]:
    """Return a change with short values."""
    return {"kind": change.kind} | key_row(change)


def _difference(change: Change) -> dict[str, Any]:
    """Return a change with the lines of texts, or the items of arrays, that differ."""
    row = change_row(change)
    if isinstance(change.before, str) and isinstance(change.after, str):
        return row | compare_templates(change.before, change.after)
    items = change.items()
    rows = [[index, short_value(old), short_value(new)] for index, old, new in items[:MAX_ITEMS]]
    return row | {"items": rows, "item_count": len(items)}


def _file_of(page: PageModel) -> MappedFile:
    """Return the file with a model's keys; OutputError if it cannot be edited from here."""
    file = page.model.inputs[0] if page.model.inputs else None
    if not page.model.files or not isinstance(file, MappedFile):
        raise OutputError(
            f"{page.name} is not a GGUF file on this machine",
            remedy="`ggufkit edit IN --output OUT` writes a changed copy",
        )
    try:
        status = file.path.stat()
    except OSError:
        raise _changed(page.name) from None
    opened = file.status
    if not file.same_file(file.path) or (status.st_size, status.st_mtime_ns) != (
        opened.st_size,
        opened.st_mtime_ns,
    ):
        raise _changed(page.name)
    return file


def _changed(name: str) -> FormatError:
    return FormatError(
        "the file changed on disk since the page opened it; nothing was written",
        remedy="Run `ggufkit view` again to see what it is now",
        path=name,
    )


def _opened_again(page: PageModel) -> PageModel:
    opened = PageModel(page.name, open_model(page.name, partial=True))
    opened.resources.callback(opened.model.close)
    opened.prepare()
    if opened.nbytes_on_disk == page.nbytes_on_disk:  # as `set_quality` compares
        opened.quality = page.quality
    return opened


def _planned(page: PageModel, file: MappedFile, request: dict[str, Any]) -> EditPlan:
    """Plan what a request asks for; ValueTypeError for a request that the page does not make."""
    _require(request.keys() <= _FIELDS)
    if "undo" in request:
        _require(request["undo"] is True and not request.keys() & {"set", "drop"})
        return plan_undo(file.path)
    planned = plan(file.path, **_edits(page.model.metadata, request))
    if planned.metadata is not None:
        raise ValueTypeError(
            "another alignment moves every tensor", remedy="Use `ggufkit edit` or `ggufkit copy`"
        )
    return planned


def _edits(metadata: Metadata, request: dict[str, Any]) -> Edits:
    """Return the edits of a request: texts of other types than string are JSON."""
    rows, drop = request.get("set", []), request.get("drop", [])
    _require(isinstance(rows, list) and isinstance(drop, list))
    _require(0 < len(rows) + len(drop) <= MAX_EDITS)
    _require(all(isinstance(key, str) for key in drop))
    values: dict[str, object] = {}
    types: dict[str, str] = {}
    for row in rows:
        _require(isinstance(row, dict) and row.keys() in _SET_FIELDS)
        _require(all(isinstance(text, str) for text in row.values()) and row["key"] not in values)
        key = row["key"]
        if "type" in row:
            types[key] = row["type"]
        values[key] = _value(row["value"], row.get("type") or _type_of(metadata, key), key)
    return Edits(set=values, types=types, drop_keys=drop)


def _type_of(metadata: Metadata, key: str) -> str:
    if key in metadata:
        return metadata.type_name(key)
    item = ITEM.fullmatch(key)
    if item and item["key"] in metadata:
        return item_type(metadata, item)
    raise ValueTypeError(f"{brief(key)} is a new key and needs a type", remedy="Choose one")


def _value(text: str, kind: str, key: str) -> object:
    if kind == "string":
        return text
    try:
        return json.loads(text)
    except (RecursionError, ValueError):
        raise ValueTypeError(
            f"{brief(text)} is not a value of type {kind} for {key}",
            remedy='Write it as JSON: 7, 1e-5, true, or ["a", "b"]',
        ) from None


def _require(holds: bool) -> None:  # noqa: FBT001 (as assert has it)
    if not holds:
        raise ValueTypeError("the request is not an edit of this page")


def _state(planned: EditPlan) -> str:
    """Return a digest of the file's header before and after, and of its inode and time."""
    status = planned.path.stat()
    facts = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    lengths = (len(planned.journal.old), len(planned.journal.new))
    digest = hashlib.sha256(repr((str(planned.path), facts, lengths)).encode())
    digest.update(planned.journal.old)
    digest.update(planned.journal.new)
    return digest.hexdigest()
