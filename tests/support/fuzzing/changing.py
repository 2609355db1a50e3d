"""Changes that keep a file readable: one value of its JSON, or one number of its header.

Bytes changed at random rarely get past what looks at a file first.
"""

from __future__ import annotations

import ast
import functools
import json
import random
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

import ggufkit._native as _native
from fuzzing.commands import changed_model
from ggufkit.format.header import KEY_RECORD, TENSOR_RECORD

SOURCES: Final = Path(__file__).resolve().parents[3] / "src" / "ggufkit" / "conversion"
NUMBERS: Final = (0, 1, 2, 0xFF, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1)
VALUES: Final = (
    *(None, True, False, -1, 0.5, 1e308, float("inf"), float("nan"), *NUMBERS, 10**30, 10**400),
    *("", "a", "0", "9" * 30, "\ud800", "\0", "../x", [], [[]], {}, [0], {"type": "x"}),
)
MOST_NODES: Final = 4000
_LENGTH: Final = struct.Struct("<Q")
Change = Callable[[bytes, random.Random], "bytes | None"]


# JSON.


@functools.cache
def words() -> tuple[str, ...]:
    """Return the words that the readers of checkpoints know."""
    names: set[str] = set()
    for path in SOURCES.rglob("*.py"):
        tree = ast.walk(ast.parse(path.read_text("utf-8")))
        names.update(n.value for n in tree if isinstance(n, ast.Constant) and _is_text(n.value))
    for path in SOURCES.rglob("*.toml"):
        names.update(re.findall(r"\b[a-z_]{3,}\b", path.read_text("utf-8")))
    return tuple(sorted(name for name in names if name.isprintable() and len(name) < 40))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def changed_json(data: bytes, draw: random.Random) -> bytes | None:
    """Return JSON with a few values changed; None for what is no object."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or not document:
        return None
    try:
        for _ in range(draw.randint(1, 3)):
            nodes = list(_nodes(document))
            if nodes:
                _change(*draw.choice(nodes), draw, nodes)
        return json.dumps(document).encode()
    except (ValueError, RecursionError):  # a number too long or a list too deep to be written
        return None


def _nodes(document: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each value by what holds it and its place there, the document itself held by a list."""
    waiting: list[Any] = [[document]]
    count = 0
    while waiting and count < MOST_NODES:
        holder = waiting.pop()
        for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
            count += 1
            if holder[key] is not document:
                yield holder, key
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])


def _change(holder: Any, key: Any, draw: random.Random, nodes: list[tuple[Any, Any]]) -> None:
    try:
        old = holder[key]
    except LookupError:  # went with an earlier change
        return
    kind = draw.randrange(7)
    if kind == 0 and isinstance(holder, dict):
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[draw.choice(words())] = draw.choice(VALUES)
    elif kind == 2:
        other, place = draw.choice(nodes)
        holder[key] = json.loads(json.dumps(other[place])) if _has(other, place) else None
    elif kind == 3:
        holder[key] = draw.choice(words())
    elif kind == 4 and isinstance(old, int | float):
        holder[key] = draw.choice([-old, old * 2, old + 1, str(old)])
    elif kind == 5:
        holder[key] = [old] if draw.random() < 0.5 else {draw.choice(words()): old}
    else:
        holder[key] = draw.choice(VALUES)


def _has(holder: Any, key: Any) -> bool:
    return key in holder if isinstance(holder, dict) else key < len(holder)


def changed_after_kind(data: bytes, draw: random.Random) -> bytes | None:
    """Change JSON after the byte that says what it is taken for."""
    text = changed_json(data[1:], draw)
    return None if text is None else data[:1] + text


def changed_safetensors(data: bytes, draw: random.Random) -> bytes | None:
    """Change the JSON of a header, and say its length anew."""
    if len(data) < _LENGTH.size:
        return None
    end = _LENGTH.size + min(_LENGTH.unpack_from(data)[0], len(data))
    text = changed_json(data[_LENGTH.size : end], draw)
    return None if text is None else _LENGTH.pack(len(text)) + text + data[end:]


# Headers of GGUF.


def changed_header(data: bytes, draw: random.Random) -> bytes | None:
    """Return a GGUF file with some fields of its header changed; None for what has none."""
    fields = list(_fields(data)) if len(data) > 24 else []
    if not fields:
        return None
    changed = bytearray(data)
    for _ in range(draw.randint(1, 3)):
        offset, size = draw.choice(fields)
        number = (draw.choice(NUMBERS) + draw.randint(-1, 1)) % 256**size
        if draw.random() < 0.3:
            number = (
                int.from_bytes(changed[offset : offset + size], "little") + draw.randint(-2, 2)
            ) % 256**size
        changed[offset : offset + size] = number.to_bytes(size, draw.choice(["little", "big"]))
    return bytes(changed)


def _fields(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield place and size of counts, lengths, types, dimensions and offsets of version 3."""
    _, _, _, _, _, key_table, tensor_table, _ = _native.scan(data)
    yield from ((4, 4), (8, 8), (16, 8))
    for key_at, size, _, _, _, value_at, end in np.frombuffer(key_table, KEY_RECORD).tolist():
        yield from ((key_at - 8, 8), (key_at + size, 4))
        yield from ((offset, min(8, end - offset)) for offset in range(key_at + size + 4, end, 8))
        yield value_at, min(4, max(end - value_at, 1))
    for row in np.frombuffer(tensor_table, TENSOR_RECORD):
        dims_at, dims = int(row["dims_at"]), int(row["n_dims"])
        yield from ((int(row["name_at"]) - 8, 8), (dims_at - 4, 4))
        yield from ((dims_at + 8 * i, 8) for i in range(min(dims, 8)))
        yield from ((dims_at + 8 * dims, 4), (dims_at + 8 * dims + 4, 8))


CHANGES: Final[Mapping[str, Change]] = {
    "model": changed_header,
    "imatrix": changed_header,
    "safetensors": changed_safetensors,
    "tokenizer": changed_after_kind,
    "checkpoint": changed_json,
    "cache": changed_json,
    "commands": changed_model,
    "diffusion": changed_after_kind,
    "adapter": changed_json,
    "results": changed_after_kind,
    "page": changed_model,
    "compat": changed_header,
    "hessian": changed_header,
}
