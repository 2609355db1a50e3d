"""The types that llama.cpp reads for keys that files of all architectures have."""

from __future__ import annotations

import re
from typing import Final

TOKEN_ID: Final = re.compile(r"tokenizer\.ggml\.\w+_token_id")
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


def known_type(key: str) -> str | None:
    """Return the type of a key, as `typed` names it; None if it may have any."""
    return next((name for form, name in _TYPES if form.fullmatch(key)), None)
