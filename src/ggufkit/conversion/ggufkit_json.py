"""Stores data that other files of a checkpoint cannot store, in ggufkit.json, and reads it.

Each entry holds a digest of the value that converting the checkpoint gave at export, and applies
only while converting still gives it: later changes of the tokenizer or the model card win.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ggufkit.conversion.checkpoint.folder import EXTRAS, Checkpoint
from ggufkit.errors import CheckpointError, GGUFError, ValueTypeError, brief, first_names
from ggufkit.format.coerce import plain, typed
from ggufkit.format.encoding import CANONICAL
from ggufkit.format.metadata import Encoded, Metadata
from ggufkit.format.types import RESERVED_KEY
from ggufkit.format.values import TypedValue, encode
from ggufkit.models.model import Model
from ggufkit.system.threads import Notify

# Keys that ggufkit.json must not set: they follow from the configuration and the files, or are
# only room in a header.
_FOREIGN: Final = ("general.architecture", "split.", RESERVED_KEY)
FORMAT: Final = 1
_ABOUT: Final = (
    "What the GGUF file contained beyond this checkpoint; only `ggufkit convert` reads it"
)


def json_content(model: Model, back: Model, passed: Iterable[str] = ()) -> dict[str, Any]:
    """Return the content of the file: how `model` differs from the converted model `back`.

    `passed` are keys that may differ.
    """
    content: dict[str, Any] = {"about": _ABOUT, "format": FORMAT}
    names = dict.fromkeys([*model.metadata, *back.metadata])
    listed = [key for key in names if not key.startswith(_FOREIGN) and key not in set(passed)]
    entries = [entry for key in listed for entry in _entry(key, model.metadata, back.metadata)]
    if entries:
        content["metadata"] = entries
    after = _changed(back, entries)
    for name, before, now in (
        ("keys", model.metadata, after),
        ("tensors", model.tensors, back.tensors),
    ):
        order = [n for n in before if n in now]
        if order != [*now] and len(order) == len(now):
            content[name] = order
    return content


def _entry(key: str, metadata: Metadata, back: Metadata) -> Iterator[dict[str, Any]]:
    was, now = _encoded(metadata, key), _encoded(back, key)
    if was == now:
        return
    head = {"key": key, "instead_of": _digest(now)}
    if was is None:
        yield {**head, "type": None}
        return
    kind, value = metadata.type_name(key), plain(metadata[key])
    entry = {**head, "type": kind, **_value(value, kind, back, key)}
    try:
        if encode(_typed(entry, back), CANONICAL) == was:
            yield entry
    except GGUFError:
        return


def _value(value: Any, kind: str, other: Metadata, key: str) -> dict[str, Any]:  # noqa: ANN401 (as JSON is)
    """Return the whole value, or only the changed items of an array if they are few."""
    if not isinstance(value, list) or key not in other or other.type_name(key) != kind:
        return {"value": value}
    before = plain(other[key])
    items = {str(index): new for index, (new, old) in enumerate(zip(value, before, strict=False))
             if new != old}  # fmt: skip
    is_short = len(before) == len(value) and 2 * len(items) < len(value)
    return {"items": items} if is_short else {"value": value}


def restored(checkpoint: Checkpoint, model: Model, user_keys: Iterable[str], say: Notify) -> Model:
    """Return the model with the data that ggufkit.json stores from the exported file.

    Keys in `user_keys` are set by the user and stay. Raises CheckpointError for a malformed file.
    """
    content = checkpoint.json(EXTRAS)
    if content is None:
        return model
    changed = set(user_keys)
    entries = [entry for entry in _entries(content) if entry["key"] not in changed]
    digests = [_digest(_encoded(model.metadata, entry["key"])) for entry in entries]
    is_valid = [e.get("instead_of") == digest for e, digest in zip(entries, digests, strict=True)]
    if not all(is_valid):
        dropped = [e["key"] for e, valid in zip(entries, is_valid, strict=True) if not valid]
        keys = first_names(dropped, 3)
        say(f"the checkpoint has changed since it was exported: {EXTRAS} is ignored for {keys}")
    metadata = _changed(model, list(itertools.compress(entries, is_valid)))
    order, names = _order(content, "keys"), _order(content, "tensors")
    if sorted(order) == sorted(metadata):
        metadata = metadata.arranged(order)
    if sorted(names) == sorted(model.tensors):
        return model.replace(metadata=metadata, tensors=[model.tensors[name] for name in names])
    return model.replace(metadata=metadata)


def _entries(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    entries = content.get("metadata", [])
    if content.get("format") != FORMAT or not isinstance(entries, list):
        raise _malformed("it has an unknown format")
    for entry in entries:
        key = entry.get("key") if isinstance(entry, dict) else None
        if not isinstance(key, str) or key.startswith(_FOREIGN):
            raise _malformed(f"{brief(key)} is not a key that it may set")
        try:
            Metadata({key: False})
        except ValueTypeError as error:
            raise _malformed(error.message) from None
    return entries


def _order(content: Mapping[str, Any], name: str) -> list[str]:
    order = content.get(name, [])
    if not isinstance(order, list) or not all(isinstance(item, str) for item in order):
        raise _malformed(f"{name} is not a list of names")
    return order


def _malformed(what: str) -> CheckpointError:
    return CheckpointError(
        f"{EXTRAS} cannot be used: {what}",
        remedy="Export again, or delete that file: the checkpoint is complete without it",
    )


def _changed(model: Model, entries: Iterable[Mapping[str, Any]]) -> Metadata:
    removed = [entry["key"] for entry in entries if entry.get("type") is None]
    new = {e["key"]: _typed(e, model.metadata) for e in entries if e.get("type") is not None}
    return model.metadata.without(*removed, missing_ok=True).updated(new)


def _typed(entry: Mapping[str, Any], metadata: Metadata) -> TypedValue:
    key, value = entry["key"], entry.get("value")
    try:
        if "items" in entry:
            value = plain(metadata[key])
            for index, item in entry["items"].items():
                value[range(len(value))[int(index)]] = item
        return typed(str(entry["type"]), value)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise _malformed(f"{key}: {error}") from None


def _encoded(metadata: Metadata, key: str) -> bytes | None:
    if key not in metadata:
        return None
    entry = metadata.entry(key)
    return entry.bytes(CANONICAL) if isinstance(entry, Encoded) else encode(entry, CANONICAL)


def _digest(value: bytes | None) -> str | None:
    return None if value is None else hashlib.sha256(value).hexdigest()
