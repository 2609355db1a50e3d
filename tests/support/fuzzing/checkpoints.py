"""Checkpoints for fuzzing: all their small files in one JSON document, tensors as zeros."""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from unittest import mock

import ggufkit
from ggufkit.conversion.checkpoint.safetensors import DTYPES
from ggufkit.conversion.tokenizer.pre import pre_tokenize
from ggufkit.system.sandbox import StoppedError

FILES: Final = (
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"),
    *("added_tokens.json", "model.safetensors.index.json", "modules.json", "1_Pooling/config.json"),
    *("README.md", "chat_template.jinja", "chat_template.json", "vocab.txt", "merges.txt"),
)
TENSORS: Final = "tensors"  # names to types and shapes
MOST_BYTES: Final = 1 << 20  # of a tensor's zeros
RULES_SECONDS: Final = 1  # of processor time


def read_checkpoint(data: bytes, folder: Path) -> None:
    """Lay out the files of a JSON document as a checkpoint, convert it, and read its tensors."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(document, dict):
        return
    place = folder / "checkpoint"
    _lay_out(document, place)
    with rules_followed_here(), ggufkit.convert(place) as model:
        model.metadata.encode(ggufkit.format.encoding.CANONICAL)
        for tensor in model.tensors.values():
            if tensor.nbytes < MOST_BYTES:
                tensor.source.read(0, tensor.rows)


def _lay_out(document: dict[str, Any], place: Path) -> None:
    (place / "1_Pooling").mkdir(parents=True, exist_ok=True)
    for name in FILES:
        content = document.get(name)
        (place / name).unlink(missing_ok=True)
        if content is not None:
            text = content if isinstance(content, str) else json.dumps(content)
            (place / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    tensors = document.get(TENSORS)
    write_tensors(tensors if isinstance(tensors, dict) else {}, place / "model.safetensors")


def write_tensors(tensors: dict[str, Any], path: Path, notes: dict[str, Any] | None = None) -> None:
    """Write a file that holds as many zeros as the tensors say, if they say it.

    An object in the place of type and shape is held as JSON; `notes` are those of the header.
    """
    header: dict[str, Any] = {"__metadata__": notes} if notes else {}
    texts: list[tuple[int, bytes]] = []
    end = 0
    for name, entry in tensors.items():
        kind, shape = entry if isinstance(entry, list) and len(entry) == 2 else ("F32", [1])
        if isinstance(entry, dict):
            texts.append((end, json.dumps(entry).encode()))
            kind, shape = "U8", [len(texts[-1][1])]
        start, end = end, end + _bytes(kind, shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
        for place, content in texts:
            file.seek(8 + len(text) + place)
            file.write(content)


def _bytes(kind: Any, shape: Any) -> int:
    is_shape = isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape)
    if not is_shape or not isinstance(kind, str) or kind not in DTYPES:
        return 0
    return min(math.prod(shape) * DTYPES[kind].block_bytes, MOST_BYTES)


# What a tokenizer's rules ask for takes a process of its own, and coverage ends there.


class _LateError(BaseException):
    """The rules take too long; nothing on the way up catches this."""


@contextlib.contextmanager
def rules_followed_here() -> Iterator[None]:
    """Follow the rules of tokenizers in this process, which is stopped where they take long."""
    with mock.patch.object(pre_tokenize, "answer_of", _answer_here):
        yield


def _answer_here(module: str, job: object) -> Any:
    request = json.loads(json.dumps(job))
    before = signal.signal(signal.SIGVTALRM, _late)
    signal.setitimer(signal.ITIMER_VIRTUAL, RULES_SECONDS)
    try:
        return json.loads(json.dumps(importlib.import_module(module).answer(request)))
    except (_LateError, MemoryError, RecursionError):
        raise StoppedError("it needs too much time or memory") from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _late(*_: object) -> None:
    raise _LateError
