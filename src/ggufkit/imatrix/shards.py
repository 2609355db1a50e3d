"""Shards of a text: parts that several machines read, and `merge` adds up."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

from ggufkit.errors import ValueTypeError

TextBatch = TypeVar("TextBatch")


def parse_shard(text: str) -> tuple[int, int]:
    """Return the numbers of "I/N"; ValueTypeError for other texts."""
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    return require_shard((int(match[1]), int(match[2])) if match else (0, 0), text)


def require_shard(shard: tuple[int, int], text: str = "") -> tuple[int, int]:
    """Return a shard; ValueTypeError unless it is I of N, counted from 1."""
    number, count = shard
    if not 1 <= number <= count:
        raise ValueTypeError(
            f"{text or f'{number}/{count}'!r} is not a shard I/N with I from 1 to N",
            remedy="For the second of four shards, write 2/4; in Python, (2, 4)",
        )
    return shard


def shard_of(batches: Sequence[TextBatch], shard: tuple[int, int]) -> Sequence[TextBatch]:
    """Return the batches of shard I of N; ValueTypeError if there are fewer batches than shards.

    Each batch is in one shard, and the shards differ by one batch at most.
    """
    number, count = require_shard(shard)
    if len(batches) < count:
        raise ValueTypeError(
            f"the text has {len(batches)} batches, too few for {count} shards",
            remedy="Use fewer shards, a longer text, or compute fewer tokens at once (batch=...)",
        )
    return batches[len(batches) * (number - 1) // count : len(batches) * number // count]
