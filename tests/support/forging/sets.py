"""Shard sets that do not belong together, and some that do."""

from __future__ import annotations

from collections.abc import Iterator

from forging.builder import ARCHITECTURE, I32, U8, U16, Forge, Info, Pair, number, tensor
from forging.case import Case, shards


def names(count: int, prefix: str = "model") -> list[str]:
    return [f"{prefix}-{i + 1:05d}-of-{count:05d}.gguf" for i in range(count)]


def split(place: int, count: int, total: int) -> tuple[Pair, ...]:
    """Return the pairs that make a shard."""
    first = () if place else (ARCHITECTURE,)
    return (
        *first,
        number("split.no", U16, place),
        number("split.count", U16, count),
        number("split.tensors.count", I32, total),
    )


def shard(place: int, count: int, total: int, *infos: Info, **fields: object) -> Forge:
    return Forge(pairs=split(place, count, total), infos=infos, **fields)


ONE = shard(0, 3, 4, tensor("a", 4))
TWO = shard(1, 3, 4, tensor("b", 8), tensor("c", 8))
THREE = shard(2, 3, 4, tensor("d", 4))


def _set(*files: Forge | bytes) -> dict[str, Forge | bytes]:
    return dict(zip(names(len(files)), files, strict=True))


def cases() -> Iterator[Case]:
    yield shards("accept", "set", "", "three shards of one model", _set(ONE, TWO, THREE))
    bare = shard(0, 2, 1)
    files = _set(bare, shard(1, 2, 1, tensor("a", 4)))
    yield shards("accept", "set-first-without-tensors", "", "`--no-tensor-first-split`", files)
    lone = {"model.gguf": shard(0, 1, 1, tensor("a", 4))}
    yield shards("accept", "set-of-one", "", "a set of one needs no name", lone)
    lone = {"model.gguf": shard(0, 0, 1, tensor("a", 4))}
    yield shards("accept", "set-of-none", "", "as gguf-split --merge leaves it", lone)
    yield from _missing()
    yield from _foreign()
    yield from _damaged()


def _missing() -> Iterator[Case]:
    why = "the set is not complete"
    files = dict(zip(names(3), (ONE, TWO), strict=False))
    yield shards("refuse", "set-last-missing", "shard-missing", why, files)
    files = {name: file for name, file in _set(ONE, TWO, THREE).items() if file is not ONE}
    yield shards("refuse", "set-first-missing", "shard-missing", why, files)
    files = {names(3)[0]: ONE}
    yield shards("refuse", "set-only-first", "shard-missing", why, files)
    why = "nothing leads to the others"
    yield shards("refuse", "set-renamed", "shard-name", why, {"renamed.gguf": ONE})
    other = {names(2)[0]: ONE}
    yield shards("refuse", "set-of-another-count", "shard-name", why, other)
    endless = {names(9999)[0]: shard(0, 9999, 1, tensor("a", 4))}
    yield shards("refuse", "set-of-9999", "shard-missing", "the other 9998 are missing", endless)


def _foreign() -> Iterator[Case]:
    why = "the shards are not what their names say"
    yield shards("refuse", "set-swapped", "shard-number", why, _set(ONE, THREE, TWO))
    counts = _set(ONE, shard(1, 4, 4, tensor("b", 8), tensor("c", 8)), THREE)
    yield shards("refuse", "set-counts-differ", "shard-number", why, counts)
    stranger = _set(ONE, Forge(infos=(tensor("b", 8), tensor("c", 8))), THREE)
    yield shards("refuse", "set-with-a-stranger", "shard-number", "it has no split keys", stranger)
    twice = _set(ONE, shard(1, 3, 4, tensor("a", 8), tensor("c", 8)), THREE)
    yield shards("refuse", "set-tensor-twice", "shard-tensor", "one name in two shards", twice)
    fewer = _set(ONE, shard(1, 3, 4, tensor("b", 8)), THREE)
    yield shards("refuse", "set-tensor-too-few", "shard-total", "four are announced", fewer)
    more = _set(ONE, TWO, shard(2, 3, 4, tensor("d", 4), tensor("e", 4)))
    yield shards("refuse", "set-tensor-too-many", "shard-total", "four are announced", more)
    why = "one model has one byte order"
    mixed = _set(ONE, TWO, shard(2, 3, 4, tensor("d", 4), mark=">"))
    yield shards("refuse", "set-byte-orders-differ", "shard-byte-order", why, mixed)


def _damaged() -> Iterator[Case]:
    cut = _set(ONE, TWO, THREE.build()[:-32])
    yield shards("refuse", "set-shard-cut", "data-truncated", "one download broke off", cut)
    page = _set(ONE, b"<!DOCTYPE html><html></html>", THREE)
    yield shards("refuse", "set-shard-is-html", "html", "one download failed", page)
    why = "llama.cpp reads uint16 only"
    pairs = (ARCHITECTURE, number("split.no", U8, 0), *split(0, 2, 2)[2:])
    narrow = _set(Forge(pairs, (tensor("a", 4),)), shard(1, 2, 2, tensor("b", 4)))
    yield shards("warn", "set-number-uint8", "split-type", why, narrow)
