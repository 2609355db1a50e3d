"""Maps of characters are followed only if Hugging Face's library survives them."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

import ggufkit
from ggufkit.errors import CheckpointError
from ggufkit.format.metadata import Metadata
from ggufkit.frameworks import tokenizer as tokenizer_module
from ggufkit.frameworks.tokenizer import MAX_REPLACEMENT, require_charsmap
from ggufkit.models.model import Model, Tensors

TOKENS = ["<unk>", "</s>", "▁", "a", "b", "▁a"]


def charsmap(units: dict[int, int], replacements: bytes = b"b\0", count: int = 512) -> bytes:
    """Return a map of which other units are leaves that match nothing."""
    trie = [units.get(number, 1 << 31) for number in range(count)]
    return struct.pack(f"<I{count}I", 4 * count, *trie) + replacements


# `a` becomes what begins at the value: the root leads to block 256, and its leaf to block 0.
def of_a(value: int) -> bytes:
    place = 256 ^ ord("a")
    units = {0: 256 << 10, place: ord("a") | 1 << 8 | (place ^ 7) << 10, 7: 1 << 31 | value}
    return charsmap(units, b"b\0\xc3\xa9\0")


def unigram(data: bytes) -> Model:
    keys = {
        "general.architecture": "t5", "tokenizer.ggml.model": "t5", "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.scores": ggufkit.typed("array[float32]", [-1.0] * len(TOKENS)),
        "tokenizer.ggml.token_type": ggufkit.typed("array[int32]", [2, 3, 1, 1, 1, 1]),
        "tokenizer.ggml.precompiled_charsmap": np.frombuffer(data, np.uint8),
    }  # fmt: skip
    return Model(Metadata(keys), Tensors([]))


def test_a_sound_map_replaces_characters() -> None:
    require_charsmap(of_a(0))
    assert ggufkit.tokenize(unigram(of_a(0)), "a").ids == ggufkit.tokenize(unigram(b""), "b").ids


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\1", "cannot have 1 bytes"),
        (struct.pack("<I", 400) + b"\0" * 8, "cannot have 400 bytes"),
        (charsmap({0: 512 << 10}), "points out of it"),
        (charsmap({}), "points out of it"),
        (charsmap({0: 256 << 10}, count=300), "points out of it"),
        (of_a(3), "not where a replacement begins"),
        (of_a(1 << 30), "not where a replacement begins"),
        (charsmap({0: 0}, b"\xff"), "not UTF-8"),
        (charsmap({0: 0}, b"x" * (MAX_REPLACEMENT + 1)), "more than 1,024 bytes"),
    ],
)
def test_a_damaged_map_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(CheckpointError, match=why):
        ggufkit.tokenizer(unigram(data))


def test_random_maps_never_end_in_a_panic() -> None:
    chooser = random.Random(3)
    for _ in range(300):
        data = bytearray(of_a(0))
        for _ in range(chooser.choice([1, 3, 40])):
            data[chooser.randrange(len(data))] = chooser.randrange(256)
        try:
            require_charsmap(bytes(data))
        except CheckpointError:
            continue
        ggufkit.tokenizer(unigram(bytes(data))).encode("a b é \x01 aa")


def test_a_panic_of_the_library_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_module, "require_charsmap", lambda _: None)
    with pytest.raises(CheckpointError, match="do not fit together"):
        ggufkit.tokenize(unigram(of_a(1 << 30)), "a")


def test_a_vocabulary_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_module, "MAX_TOKENS", 5)
    with pytest.raises(CheckpointError, match="has 6 tokens, more than 5"):
        ggufkit.tokenizer(unigram(b""))
