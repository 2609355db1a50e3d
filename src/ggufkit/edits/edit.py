"""Edit metadata: Model -> Model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypedDict

import numpy as np

from ggufkit.checks.model_view import TOKENS
from ggufkit.edits.header_slack import require_slack, slack, visible
from ggufkit.edits.loadability import obstacles
from ggufkit.errors import FormatError, MissingKeyError, ValueTypeError, brief, did_you_mean
from ggufkit.format.arguments import mapping, texts
from ggufkit.format.coerce import typed, typed_value
from ggufkit.format.key_types import SPECIAL_TOKENS
from ggufkit.format.metadata import Metadata, alignment_of
from ggufkit.format.values import Array, Arrays, Strings, TypedValue, type_name
from ggufkit.models.any_model import derives_model
from ggufkit.models.model import Model

CHAT_TEMPLATE: Final = "tokenizer.chat_template"
TAGS: Final = "general.tags"
_ALIASES: Final = {"unknown": "unk", "separator": "sep", "seperator": "sep", "padding": "pad"}
_THERE: Final = "Use an index within the array"
ITEM: Final = re.compile(r"(?P<key>[^\[\]]+)(?P<places>(\[-?[0-9]{1,18}\])+)")
_TYPED: Final = (np.generic, np.ndarray, Strings, Arrays)


class Edits(TypedDict, total=False):
    """The options of an edit; see `edit`."""

    set: Mapping[str, object]
    types: Mapping[str, str]
    drop_keys: str | Iterable[str]
    rename: Mapping[str, str]
    chat_template: str
    special_tokens: Mapping[str, int | str]
    add_tags: str | Iterable[str]


@derives_model
def edit(  # noqa: PLR0913 (each is one kind of edit)
    model: Model,
    *,
    set: Mapping[str, object] | None = None,
    types: Mapping[str, str] | None = None,
    drop_keys: str | Iterable[str] = (),
    rename: Mapping[str, str] | None = None,
    chat_template: str | None = None,
    special_tokens: Mapping[str, int | str] | None = None,
    add_tags: str | Iterable[str] = (),
    reserve: int | None = None,
    force: bool = False,
) -> Model:
    """Return `model` with changed metadata; no tensor is read and no file is changed.

    Keys are renamed first, then removed, then set. `set` maps keys to values, or items of arrays
    ("tokenizer.ggml.tokens[5]") to theirs; a value gets the type of its key, or the type in
    `types`; a new key gets the type that `typed_value` documents. NumPy values and results of
    `typed` keep their type. `special_tokens` maps names such as "eos" to ids or to the tokens
    themselves; `chat_template` is the text of a template, and `add_tags` are appended to existing
    tags. `reserve` bytes of slack make later edits in place cheap.

    Raises MissingKeyError for a missing key; ValueTypeError for values that do not fit, and, unless
    `force` is true, for changes that may keep llama.cpp from loading the model, and for an invalid
    alignment.
    """
    require_slack(reserve)
    metadata = _renamed(model.metadata, mapping("rename", rename))
    keys = texts("drop_keys", drop_keys)
    for key in keys:
        metadata.entry(key)
    metadata = metadata.without(*keys)
    metadata = _with_values(metadata, mapping("set", set), mapping("types", types))
    if chat_template is not None:
        metadata = metadata.updated({CHAT_TEMPLATE: chat_template})
    for name, token in mapping("special_tokens", special_tokens).items():
        metadata = metadata.updated(_special_token(metadata, name, token))
    metadata = _tagged(metadata, texts("add_tags", add_tags))
    if reserve is not None:
        metadata = visible(metadata).updated(slack(reserve) if reserve else {})
    changed = model.replace(metadata=metadata)
    _require_alignment(metadata)  # also with `force`: readers need it to find tensors
    if not force:
        sentences = obstacles(model, changed)
        if sentences:
            raise ValueTypeError(
                "llama.cpp may refuse the model after this edit: " + "; ".join(sentences),
                remedy="Correct the edit, or force it (force=True)",
            )
    return changed


def _require_alignment(metadata: Metadata) -> None:
    try:
        alignment_of(metadata)
    except FormatError as error:
        raise ValueTypeError(error.message, remedy=error.remedy) from None


def _renamed(metadata: Metadata, names: Mapping[str, str]) -> Metadata:
    for key in names:
        metadata.entry(key)
    for key, name in names.items():
        if name in metadata and name not in names:
            raise ValueTypeError(
                f"{key} cannot be renamed to {name}, because {name} exists",
                remedy=f"Remove {name} first, in a separate edit",
            )
    if len({*names.values()}) < len(names):
        raise ValueTypeError(
            "two keys cannot get the same name", remedy="Give them different names"
        )
    return metadata.renamed(names) if names else metadata


def _with_values(
    metadata: Metadata, values: Mapping[str, object], types: Mapping[str, str]
) -> Metadata:
    for key in types:
        if key not in values:
            raise ValueTypeError(f"{key} has a type but no value", remedy="Set its value too")
    for key, value in values.items():
        item = None if key in metadata else ITEM.fullmatch(key)
        if item is None:
            owner, bracket, _ = key.partition("[")
            if bracket and key not in metadata and owner in metadata:
                raise ValueTypeError(
                    f"{brief(key)} is not an item of an array",
                    remedy=f"Write an item as {owner}[5], or {owner}[-1] for the last",
                )
            changed = _typed_as(metadata, key, value, types.get(key))
        else:
            key, changed = item["key"], _with_item(metadata, item, value, types.get(key))  # noqa: PLW2901
        metadata = metadata.updated({key: changed})
    return metadata


def _typed_as(metadata: Metadata, key: str, value: object, type: str | None) -> TypedValue:
    """Return a value with the type from the caller, else its own type, else its key's type."""
    try:
        keeps = type is None and not isinstance(value, _TYPED) and key in metadata
        type_name = metadata.type_name(key) if keeps else type
        return typed_value(value) if type_name is None else typed(type_name, value)
    except ValueTypeError as error:
        raise ValueTypeError(f"{key}: {error.message}", remedy=error.remedy) from None


def _with_item(
    metadata: Metadata, item: re.Match[str], value: object, type: str | None
) -> TypedValue:
    """Return the array of a key with one item replaced; the array keeps its type."""
    key = item["key"]
    if type is not None:
        raise ValueTypeError(
            f"{item.string}: items cannot have a type of their own", remedy="Set the whole array"
        )
    try:
        return _replaced(metadata.typed(key), _places(item), value)
    except ValueTypeError as error:
        raise ValueTypeError(f"{item.string}: {error.message}", remedy=error.remedy) from None


def item_type(metadata: Metadata, item: re.Match[str]) -> str:
    """Return the name of an item's type; the item may be in an inner array."""
    value = metadata.typed(item["key"])
    for place in _places(item):
        if not isinstance(value, Arrays) or not -len(value) <= place < len(value):
            return type_name(value).removeprefix("array[").removesuffix("]")
        value = value[place]
    return type_name(value)


def _places(item: re.Match[str]) -> list[int]:
    return [int(place) for place in re.findall(r"-?\d+", item["places"])]


def _replaced(array: TypedValue, places: list[int], value: object) -> Array:
    if not isinstance(array, np.ndarray | Strings | Arrays):
        raise ValueTypeError(f"{brief(array)} is not an array and has no items", remedy=_THERE)
    place, *inner = places
    if not -len(array) <= place < len(array):
        problem = f"index {place} is out of range for {len(array)} elements"
        raise ValueTypeError(problem, remedy=_THERE)
    if isinstance(array, Arrays):
        items = list(array)
        items[place] = (
            _replaced(items[place], inner, value) if inner else _alike(items[place], value)
        )
        return Arrays(items)
    if inner:
        raise ValueTypeError(
            f"{brief(array[place])} is not an array and has no items", remedy=_THERE
        )
    if isinstance(array, Strings):
        texts = array.tolist()
        texts[place] = str(typed("string", value))
        return Strings(texts)
    numbers: np.ndarray[Any, Any] = array.copy()
    numbers[place] = typed(_name(array), value)
    numbers.flags.writeable = False
    return numbers


def _name(array: np.ndarray[Any, Any]) -> str:
    return "bool" if array.dtype.kind == "b" else array.dtype.newbyteorder("=").name


def _alike(array: Array, value: object) -> Array:
    """Return a value as an array of another array's type."""
    if isinstance(value, _TYPED) or isinstance(array, Arrays):
        return _as_array(typed_value(value))
    kind = "string" if isinstance(array, Strings) else _name(array)
    return _as_array(typed(f"array[{kind}]", value))


def _as_array(value: TypedValue) -> Array:
    if isinstance(value, np.ndarray | Strings | Arrays):
        return value
    raise ValueTypeError(f"{brief(value)} is not an array", remedy="Give a list")


def special_token_key(name: str) -> str:
    """Return the key that holds the id of the special token `name`."""
    short = _ALIASES.get(name.lower(), name.lower())
    if short not in SPECIAL_TOKENS:
        names = ", ".join(SPECIAL_TOKENS)
        raise MissingKeyError(f"unknown special token {name!r}", remedy=f"There are {names}")
    return f"tokenizer.ggml.{SPECIAL_TOKENS[short]}_token_id"


def _special_token(metadata: Metadata, name: str, token: int | str) -> dict[str, TypedValue]:
    key = special_token_key(name)
    number = _id_of(metadata, token) if isinstance(token, str) else token
    return {key: _typed_as(metadata, key, number, None if key in metadata else "uint32")}


def _id_of(metadata: Metadata, text: str) -> int:
    tokens_value = metadata[TOKENS] if TOKENS in metadata else Strings()
    tokens = tokens_value.tolist() if isinstance(tokens_value, Strings) else []
    if text in tokens:
        return int(tokens.index(text))
    alike = [token for token in tokens if token[:1] == text[:1]]
    remedy = did_you_mean(text, alike, "Give its id")
    raise MissingKeyError(f"the vocabulary has no token {text!r}", remedy=remedy)


def _tagged(metadata: Metadata, tags: tuple[str, ...]) -> Metadata:
    if not tags:
        return metadata
    tags_value = metadata[TAGS] if TAGS in metadata else Strings()
    if not isinstance(tags_value, Strings):
        raise ValueTypeError(f"{TAGS} is not an array of strings", remedy="Set the whole array")
    present = tags_value.tolist()
    return metadata.updated({TAGS: Strings(dict.fromkeys((*present, *tags)))})
