"""Keys of all architectures: the types that llama.cpp reads, values in them, special tokens."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np

from ggufkit.format.values import TypedValue

TOKEN_ID: Final = re.compile(r"tokenizer\.ggml\.\w+_token_id")
# Common names of special tokens that llama.cpp's keys call (or spell) differently.
SPECIAL_TOKENS: Final = {
    "bos": "bos",
    "eos": "eos",
    "eot": "eot",
    "eom": "eom",
    "unk": "unknown",
    "sep": "seperator",
    "pad": "padding",
    "cls": "cls",
    "mask": "mask",
    "fim_pre": "fim_pre",
    "fim_suf": "fim_suf",
    "fim_mid": "fim_mid",
    "fim_pad": "fim_pad",
    "fim_rep": "fim_rep",
    "fim_sep": "fim_sep",
}
_TYPES: Final = (
    (re.compile(r"general\.(architecture|name)|tokenizer\.ggml\.(model|pre)"), "string"),
    (re.compile(r"general\.file_type|tokenizer\.ggml\.token_type_count"), "uint32"),
    (re.compile(r"tokenizer\.chat_template"), "string"),
    (re.compile(r"tokenizer\.ggml\.tokens"), "array[string]"),
    (re.compile(r"tokenizer\.ggml\.suppress_tokens"), "array[int32]"),
    (re.compile(r"tokenizer\.ggml\.token_type"), "array[int32]"),
    (re.compile(r"tokenizer\.ggml\.scores"), "array[float32]"),
    (re.compile(r"tokenizer\.ggml\.(add_\w+|remove_extra_whitespaces|normalizer\.\w+)"), "bool"),
    (TOKEN_ID, "uint32"),
)
_NUMBERS: Final = ("uint16", "uint32", "int32", "float32", "bool")  # NumPy has the same names


def known_type(key: str) -> str | None:
    """Return the type of a key, as `typed` names it; None if it may have any."""
    return next((name for form, name in _TYPES if form.fullmatch(key)), None)


def same_value(value: TypedValue, type_name: str) -> object | None:
    """Return the same number or numbers in another type; None if that type cannot hold them."""
    item = type_name.removeprefix("array[").removesuffix("]")
    is_array = isinstance(value, np.ndarray)
    if item not in _NUMBERS or is_array != (item != type_name):
        return None
    if not isinstance(value, np.ndarray | np.generic | bool):
        return None
    before = np.asarray(value)
    with np.errstate(all="ignore"):
        after: np.ndarray[Any, Any] = before.astype(item)
        is_same = (after == before) & (after.astype(before.dtype) == before)
    return after[()] if is_same.all() else None
