"""Parse what users write: recipe files, types for patterns, values for keys."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ggufkit.errors import FormatError, GGUFError, ValueTypeError
from ggufkit.format.coerce import typed, typed_value
from ggufkit.format.types import tensor_type
from ggufkit.format.values import TypedValue
from ggufkit.quantization.recipes import KEEP_ALL, Recipe, find_recipe, patterns_of
from ggufkit.system.text_file import Most, decoded, read_small
from ggufkit.system.threads import Notify
from ggufkit.validation.patterns import matches

RECIPE_SUFFIX: Final = ".toml"
_KEYS: Final = {"base": str, "types": dict}
# llama-quantize's names of value types, and GGUF's; None: the smallest type that fits.
_KINDS: Final = {"int": None, "float": "float32", "bool": "bool", "str": "string"}
_TRUTH: Final = {"true": True, "false": False}


def read_recipe(path: str | Path) -> Recipe:
    """Return the recipe in a TOML file.

    `base` names the recipe for tensors that no pattern matches (without `base` they keep their
    type). The table `types` gives types to patterns: regular expressions searched in names; the
    first match decides. Raises FormatError for anything else in the file.
    """
    file = Path(path)
    try:
        import ggufkit._toml as _toml  # noqa: PLC0415 (slow to import, and most runs need none)

        text = read_small(file, Most.RECIPE)
        try:
            parsed: dict[str, Any] = _toml.loads(decoded(text))
        except (ValueError, RecursionError) as error:  # also numbers of 5,000 digits
            raise FormatError(f"this is not TOML: {error}", path=str(file)) from None
        return _recipe(file.stem, parsed)
    except FormatError:
        raise
    except GGUFError as error:
        raise FormatError(error.message, remedy=error.remedy, path=str(file)) from None


def _recipe(name: str, table: dict[str, Any]) -> Recipe:
    for key, value in table.items():
        if key not in _KEYS or not isinstance(value, _KEYS[key]):
            raise ValueTypeError(
                f"a recipe has no {key!r} of this form",
                remedy='A recipe has base = "Q4_K_M" and a table [types] of "pattern" = "Q6_K"',
            )
    base = find_recipe(table["base"]) if "base" in table else KEEP_ALL
    pairs = ((pattern, _type_name(kind)) for pattern, kind in table.get("types", {}).items())
    return replace(base, name=name, patterns=patterns_of(pairs))


def _type_name(kind: object) -> str:
    if not isinstance(kind, str):
        raise ValueTypeError(f"{kind!r} is not a tensor type", remedy='Write it as "Q6_K"')
    return tensor_type(kind).name


def parse_tensor_type(text: str) -> tuple[str, str]:
    """Return pattern and type of a text such as "attn_v=Q6_K"; the pattern is lower-cased.

    llama-quantize lower-cases it too: tensors have lower-case names. Raises ValueTypeError for
    anything else, and TensorTypeError for an unknown type.
    """
    pattern, equals, kind = text.partition("=")
    if not (pattern and equals and kind):
        raise ValueTypeError(
            f"{text!r} is not of the form PATTERN=TYPE", remedy="Write it as attn_v=Q6_K"
        )
    return pattern.lower(), tensor_type(kind).name


def parse_custom_types(text: str) -> list[tuple[str, str]]:
    """Return patterns and types of ik_llama.cpp's form "attn_v=q6_K,ffn_.*=iq4_k".

    Patterns keep their case, and contain no comma. Raises as `parse_tensor_type`.
    """
    rules = [rule for rule in text.split(",") if rule]
    return [(rule.partition("=")[0], parse_tensor_type(rule)[1]) for rule in rules]


def read_tensor_types(path: str | Path) -> list[tuple[str, str]]:
    """Return the patterns and types in a file, separated by spaces or newlines."""
    try:
        words = decoded(read_small(Path(path), Most.RECIPE)).split()
    except UnicodeDecodeError:
        raise FormatError("this file does not contain patterns and types", path=str(path)) from None
    return [parse_tensor_type(word) for word in words]


def matching(
    listed: list[tuple[str, str]], names: Iterable[str], say: Notify, path: str
) -> list[tuple[str, str]]:
    """Return the patterns of the file `path` that match a name, and say which ones do not.

    They are allowed, because several models may share the file.
    """
    all_names = list(names)
    patterns = [pattern for pattern, _ in patterns_of(listed)]
    idle = [p.pattern for p in patterns if not any(matches(p, name) for name in all_names)]
    if idle:
        say(f"{path}: no tensor name contains {', '.join(map(repr, idle))}")
    return [row for row in listed if row[0] not in idle]


def parse_override(text: str) -> tuple[str, TypedValue]:
    """Return key and value of a text such as "general.name=str:Me" or "x=array[int32]:[1, -2]".

    The types are llama-quantize's int, float, bool and str, and all types of GGUF; an int becomes
    the first of uint32, int32, uint64 and int64 that fits. Arrays are written as JSON. Raises
    ValueTypeError for anything else.
    """
    key, equals, rest = text.partition("=")
    kind, colon, written = rest.partition(":")
    if not (key and equals and kind and colon):
        raise ValueTypeError(
            f"{text!r} is not of the form KEY=TYPE:VALUE",
            remedy="Write it as general.name=str:Me, with a type of int, float, bool, str, or of "
            "GGUF such as uint64 or array[int32]",
        )
    try:
        return key, _value(kind.lower(), written)
    except (ValueError, RecursionError) as error:
        problem = error.message if isinstance(error, GGUFError) else f"{written!r} is not {kind}"
        remedy = error.remedy if isinstance(error, GGUFError) else "Write a value of that type"
        raise ValueTypeError(f"{key}: {problem}", remedy=remedy) from None


def _value(kind: str, written: str) -> TypedValue:
    name = _KINDS.get(kind, kind)
    if name is None:
        return typed_value(int(written))
    if name == "string":
        return typed(name, written)
    if name == "bool":
        return typed(name, _TRUTH.get(written, written))
    if name.startswith("array"):
        return typed(name, json.loads(written))
    return typed(name, float(written) if name.startswith("float") else int(written))
