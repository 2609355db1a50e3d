"""Tokenizer files as checkpoints have them, small enough to read."""

from __future__ import annotations

import json
import struct

from ggufkit.conversion.checkpoint.folder import Checkpoint
from ggufkit.conversion.tokenizer.token_text import CHAR_OF
from ggufkit.models.model import Tensors

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)


def folder_with(folder, config=None, **files):
    """Write files (dots spelled as `__`) and return the checkpoint of no tensors."""
    for name, content in files.items():
        data = content if isinstance(content, bytes | str) else json.dumps(content)
        path = folder / name.replace("__", ".")
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return Checkpoint(folder, config or {}, Tensors([]))


def varint(value):
    out = b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def field(number, value):
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def piece(text, score=0.0, kind=None):
    return field(1, field(1, text) + field(2, score) + (field(3, kind) if kind else b""))


PIECES = (
    piece("<unk>", 0.0, 2)
    + piece("<s>", 0.0, 3)
    + piece("</s>", 0.0, 3)
    + piece("<0x0A>", 0.0, 6)
    + piece("▁the", -1.5)
    + piece("<user>", 0.0, 4)
    + piece("<gone>", 0.0, 5)
    + piece("é", -2.25)
)


def bpe(pre=None, added=(), merges=("h e", "he l"), **more):
    """Return a tokenizer.json over all bytes; `added` are texts, special unless in a mapping."""
    texts = [*CHAR_OF.values(), *(merge.replace(" ", "") for merge in merges)]
    vocabulary = {text: number for number, text in enumerate(texts)}
    tokens = []
    for number, token in enumerate(added, len(vocabulary)):
        entry = token if isinstance(token, dict) else {"content": token, "special": True}
        flags = dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized", "special"], False)
        tokens.append({"id": number, **flags, **entry})
    return {
        "added_tokens": tokens,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": list(merges), **more},
        "pre_tokenizer": pre or split(LLAMA3),
        "decoder": {"type": "ByteLevel"},
    }


def split(pattern):
    """Return the pre-tokenizer that splits by an expression and spells bytes."""
    parts = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
    ]
    return {"type": "Sequence", "pretokenizers": parts}
