"""Loads architectures: one TOML file each, found by the class names of a checkpoint.

docs/architectures.md explains the tables. `like` inherits every table of another file; an entry
with the same key replaces the inherited one in its place, and "absent" removes it.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any, Final

import ggufkit._toml as _toml
from ggufkit.conversion.architecture import expressions
from ggufkit.conversion.architecture.functions import bound
from ggufkit.conversion.architecture.name_rules import NameRule, both_suffixes, compile_rules
from ggufkit.errors import CheckpointError, FormatError, brief
from ggufkit.models.model import PROJECTOR
from ggufkit.system.text_file import Most, read_small

MAX_CLASS: Final = 200  # characters of a class name that are compared with known names
MAX_LIKES: Final = 8  # a chain of inheritance longer than this goes in a circle
# Keys that do not begin with the architecture's name.
UNPREFIXED: Final = ("general.", "tokenizer.", "xielu.", "diffusion.", "vision.pos_emb_")
OFF: Final = "absent"  # removes an inherited entry
# Buffers, which are not weights: llama.cpp's converter drops them from all models.
BUFFERS: Final = ("*.attention.masked_bias", "*.attention.bias", "*.rotary_emb.inv_freq")
UNNESTED: Final = {"language_model.": ""}
OWN: Final = "ggufkit/arch/"  # how messages name the folder of our files
# Files that only exist for others to inherit from.
ABSTRACT: Final = (
    "decoder", "projector", "vision", "audio", "qwenvl", "deepstack", "siglip", "whisper",
)  # fmt: skip
PROJECTORS: Final = "projectors"  # the folder of projectors, in our folder and in a user's
_PATTERNED: Final = ("tensors", "one_way")
_ENTRIES: Final = ("early", "metadata", "late")

# Metadata keeps replaced entries: llama.cpp's classes write a key, their subclasses write it
# again, and the key keeps the place where it was first written.
ConfigEntries = Sequence[tuple[str, Any]]


@dataclass(frozen=True, kw_only=True, repr=False)
class Architecture:
    """One architecture: the model classes it serves, and where each part of a checkpoint goes."""

    name: str  # general.architecture
    path: str
    rules: tuple[NameRule, ...]
    classes: tuple[str, ...] = ()
    vocabulary: str = "bpe"
    rows: str = "vocab_size"  # the expression for the rows of the vocabulary
    appended: str = "[]"  # the expression for tokens after the tokenizer's
    config: str = "text_config"  # the object of config.json whose fields override the rest
    convert_if: str = ""  # the condition for choosing this file, if several have the same class
    export_if: str = "True"  # the condition for choosing this file, if several have the same name
    ordered: str = ""  # how names of tensors begin that come in the order of the patterns
    beside: str = ""  # a folder of the checkpoint whose tensors come before its own
    mxfp4: str = ""  # the `quant_method` of checkpoints with experts in MXFP4, for export
    defaults: Mapping[str, Any] = field(default_factory=dict)
    defaults_of: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    early: ConfigEntries = ()  # metadata that comes before general.*
    metadata: ConfigEntries = ()
    late: ConfigEntries = ()  # metadata that comes after tokenizer.*
    generated: Mapping[str, str] = field(default_factory=dict)
    expects: Mapping[str, list[Any] | str] = field(default_factory=dict)
    usual: Mapping[str, list[Any] | str] = field(default_factory=dict)
    rename: Mapping[str, str] = field(default_factory=dict)
    shapes: Mapping[str, str] = field(default_factory=dict)
    export: Mapping[str, Any] = field(default_factory=dict)  # fields of config.json for export
    one_way: Mapping[str, Any] = field(default_factory=dict)  # patterns without a way back
    rename_back: Mapping[str, str] = field(default_factory=dict)
    from_keys: Mapping[str, str] = field(default_factory=dict)  # tensors whose numbers are in a key
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # completed objects
    types: Mapping[str, str] = field(default_factory=dict)  # of some tensors, always
    departures: tuple[str, ...] = ()  # defaults that `convert --exactly` does without
    skip: tuple[str, ...] = ()
    only: tuple[str, ...] = ()  # if any, all other tensors are skipped
    required: tuple[str, ...] = ()
    uneven: tuple[str, ...] = ()  # tensors that some layers lack
    stacks: tuple[str, ...] = ()  # the order of a layer's stacked tensors
    first: tuple[str, ...] = ()  # patterns of tensors that come first
    last: tuple[str, ...] = ()  # tensors that come last


# The words of a file and the type of each.
_NOT_FIELDS: Final = {"like": str, "fresh": list, "tensors": dict}
_KINDS: Final[dict[str, type]] = {
    **_NOT_FIELDS,
    **{
        field.name: {"str": str, "tuple[str, ...]": list}.get(str(field.type), dict)
        for field in fields(Architecture)
        if field.name not in ("path", "rules")
    },
}


def architectures(
    folders: Sequence[Path] = (), *, projectors: bool = False, gguf_name: str | None = None
) -> dict[str, Architecture]:
    """Return all architectures by the stem of their file; `folders` come before ours.

    With `projectors` return projectors. With `gguf_name`, leave out most of our files that
    describe other architectures: compiling all takes half a second. Raises FormatError, with the
    place, for a malformed file.
    """
    texts = _texts(folders, projectors=projectors)
    stems = [stem for stem, (path, text) in sorted(texts.items()) if stem not in ABSTRACT
             and (gguf_name in (None, stem) or f'"{gguf_name}"' in text
                  or not path.startswith(OWN))]  # fmt: skip
    return {stem: _architecture(stem, texts) for stem in stems}


def classes(config: Mapping[str, Any], part: str = "text_config") -> list[str]:
    """Return the class names of a configuration; the text model's come first."""
    own = config.get(part)
    inner = own.get("architectures") if isinstance(own, Mapping) else None
    names = inner or config.get("architectures") or []
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def find(
    classes: Sequence[str],
    folders: Sequence[Path] = (),
    config: Mapping[str, Any] | None = None,
    *,
    projectors: bool = False,
) -> Architecture:
    """Return the architecture of the first of a checkpoint's `classes`, or of its projector.

    Of several files for one class, one whose `convert_if` holds for `config` comes before one
    without a condition. Raises CheckpointError, with the nearest known class, if no architecture
    serves them.
    """
    texts = _texts(folders, projectors=projectors)
    first = classes[0] if classes else ""
    likely = {stem: (path, text) for stem, (path, text) in texts.items()
              if first in text or not path.startswith(OWN)}  # fmt: skip
    homes = _homes(likely)  # reading all our files takes half of the time of a small model
    if first in homes:
        candidates = [_architecture(stem, texts) for stem in homes[first]]
        fitting = [arch for arch in candidates if not arch.convert_if or expressions.evaluate(
            arch.convert_if, merged(config or {}, arch.config).get, bound()
        )]  # fmt: skip
        fitting.sort(key=lambda arch: (arch.path.startswith(OWN), not arch.convert_if))
        return (fitting or candidates)[0]
    if projectors and first in _homes(_texts(folders)):
        raise CheckpointError(
            f"no projector is known for {brief(first)}", remedy="Convert it without the projector"
        )
    if not projectors and first in _homes(_texts(folders, projectors=True)):
        raise CheckpointError(
            f"only the projector of {brief(first)} is known",
            remedy="Convert the projector alone (mmproj=...)",
        )
    homes = _homes(texts)
    near = difflib.get_close_matches(first[:MAX_CLASS], homes, 1, 0.5)
    hint = f"the nearest known is {near[0]} ({homes[near[0]][0]}); " if near else ""
    raise CheckpointError(
        f"the architecture {brief(first or '(none in config.json)')} is unknown",
        remedy=f"{hint}a file can teach it, in a folder that you name (arch_path=...): "
        "docs/architectures.md",
    )


def merged(config: Mapping[str, Any], inner: str) -> dict[str, Any]:
    """Return a configuration in which the fields of its text model replace its own."""
    text = config.get(inner)
    return {**config, **text} if isinstance(text, Mapping) else dict(config)


def full_key(architecture: Architecture, key: str) -> str:
    """Return a key of an architecture file with its prefix in a GGUF file."""
    return key if key.startswith(UNPREFIXED) else f"{architecture.name}.{key}"


def _homes(texts: Mapping[str, tuple[str, str]]) -> dict[str, list[str]]:
    """Return the files that serve each class; the files searched first come first."""
    homes: dict[str, list[str]] = {}
    for stem in texts:
        if stem not in ABSTRACT:
            for name in _checked(*texts[stem]).get("classes", []):
                homes.setdefault(name, []).append(stem)
    return homes


def _texts(folders: Iterable[Path], *, projectors: bool = False) -> dict[str, tuple[str, str]]:
    """Return path and text of each file by its stem; the first file of a name wins."""
    texts: dict[str, tuple[str, str]] = {}
    for folder in folders:
        if not folder.is_dir():
            raise FormatError(f"{folder} is not a folder", remedy="Give a folder of TOML files")
        for path in sorted((folder / PROJECTORS if projectors else folder).glob("*.toml")):
            texts.setdefault(path.stem, (str(path), read_small(path, Most.ARCHITECTURE).decode()))
    for stem, own in _own_texts(PROJECTORS if projectors else "files").items():
        texts.setdefault(stem, own)
    return texts


@functools.cache
def _own_texts(name: str) -> dict[str, tuple[str, str]]:
    folder = resources.files("ggufkit.conversion.architecture") / name
    files = {file.name: file for file in folder.iterdir() if file.name.endswith(".toml")}
    return {
        name.removesuffix(".toml"): (f"{OWN}{name}", files[name].read_text("utf-8"))
        for name in sorted(files)
    }


@functools.lru_cache(maxsize=512)
def _checked(path: str, text: str) -> dict[str, Any]:
    """Parse one file and check that each key is known and its value has the right type."""
    try:
        table: dict[str, Any] = _toml.loads(text)
    except _toml.TOMLDecodeError as error:
        raise FormatError(f"not valid TOML: {error}", path=path) from None
    for word, value in table.items():
        if word not in _KINDS:
            near = difflib.get_close_matches(word, _KINDS, 1)
            remedy = f"Did you mean {near[0]}?" if near else f"There are {', '.join(_KINDS)}"
            raise FormatError(f"unknown word {word!r}", remedy=remedy, path=path)
        if not isinstance(value, _KINDS[word]):
            raise FormatError(f"{word} must be a {_KINDS[word].__name__}", path=path)
    return table


def _architecture(stem: str, texts: Mapping[str, tuple[str, str]]) -> Architecture:
    path = texts[stem][0]
    whole = _inherited(stem, texts, ())
    try:
        rules = compile_rules(whole.get("tensors", {}))
        for text in _expressions(whole):
            expressions.parse(text)
    except ValueError as error:
        raise FormatError(str(error), path=path) from None
    values: dict[str, Any] = {
        word: tuple(value) if isinstance(value, list) else value
        for word, value in whole.items()
        if word not in _NOT_FIELDS
    }
    values.setdefault("name", stem)
    values["skip"] = (*BUFFERS, *values.get("skip", ()))
    if values["name"] != PROJECTOR:
        values["rename"] = UNNESTED | values.get("rename", {})
    return Architecture(**values, path=path, rules=tuple(rules))


def _expressions(whole: Mapping[str, Any]) -> list[str]:
    tables = [whole.get(word, {}) for word in ("defaults", "export", "one_way")]
    tables += [table for word in ("defaults_of", "parts") for table in whole.get(word, {}).values()]
    values = [value for table in tables for value in table.values()]
    values += [value for word in _ENTRIES for _, value in whole.get(word, ())]
    values += [*whole.get("required", ()), whole.get("convert_if"), whole.get("export_if")]
    return [text for text in values if isinstance(text, str)]


def _inherited(
    stem: str, texts: Mapping[str, tuple[str, str]], children: tuple[str, ...]
) -> dict[str, Any]:
    own = dict(_checked(*texts[stem]))
    for word in own.keys() & _PATTERNED:
        own[word] = both_suffixes(own[word])
    for word in own.keys() & _ENTRIES:
        own[word] = list(own[word].items())
    parent = own.get("like")
    if parent is None:
        return own
    if parent not in texts or len(children) > MAX_LIKES:
        path = texts[stem][0]
        raise FormatError(f"like = {parent!r} leads to no file", path=path)
    base = _inherited(parent, texts, (*children, stem))
    dropped = {"classes", "convert_if", "export_if", *own.get("fresh", [])}
    if base.get("name") != PROJECTOR:
        dropped.add("name")
    merged = {word: value for word, value in base.items() if word not in dropped}
    for word, value in own.items():
        merged[word] = _overlaid(merged.get(word), value)
    return merged


def _overlaid(base: Any, own: Any) -> Any:  # noqa: ANN401 (as TOML is)
    if isinstance(own, dict):
        both = dict(base or {})
        for key, value in own.items():
            both[key] = _overlaid(both.get(key), value) if isinstance(value, dict) else value
        return {key: value for key, value in both.items() if value != OFF}
    if isinstance(own, list):
        keys = {entry[0] for entry in own if isinstance(entry, tuple) and entry[1] == OFF}
        entries = [
            entry for entry in base or () if not isinstance(entry, tuple) or entry[0] not in keys
        ]
        return entries + [e for e in own if not isinstance(e, tuple) or e[1] != OFF]
    return own
