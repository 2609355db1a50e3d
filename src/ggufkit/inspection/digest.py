"""Hash the tensors of a model: llama-gguf-hash's digests, and one of the whole content.

llama-gguf-hash's digests cover only the bytes of tensors. They are computed over little-endian
bytes, so a model has the same digests in any byte order and in any shards.
"""

from __future__ import annotations

import functools
import hashlib
import struct
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final

import ggufkit._native as _native
from ggufkit.errors import ValueTypeError
from ggufkit.format.arguments import texts
from ggufkit.format.encoding import CANONICAL
from ggufkit.format.types import LAYOUT_KEYS
from ggufkit.models.any_model import takes_model
from ggufkit.models.byte_ranges import Tally, byte_ranges, little_endian_bytes, reading_threads
from ggufkit.models.model import Model, Tensor
from ggufkit.system.threads import Progress, in_turn, pool_of, result_of

# In the order of llama-gguf-hash's lines. Only a whole model has an identifier.
BY_TENSOR: Final = ("xxh64", "sha1", "sha256")
UUID: Final = "uuid"
CONTENT: Final = "content"
ALGORITHMS: Final = (*BY_TENSOR, UUID, CONTENT)
UUID_NAMESPACE: Final = uuid.UUID("ef001206-dadc-5f6d-a15f-3359e577d4e5")  # llama.cpp's own
CONTENT_FORM: Final = b"ggufkit content 1\0"

TILE_BYTES: Final = 1 << 20  # caches hold two: one being read and one being hashed
READ_AHEAD: Final = 4  # tiles


@dataclass(frozen=True)
class Digests:
    """Digests in hexadecimal by algorithm: of the whole model, and of each tensor by its name."""

    model: Mapping[str, str]
    tensors: Mapping[str, Mapping[str, str]]


@takes_model
def digest(
    model: Model,
    algorithms: str | Iterable[str] = ("xxh64",),
    *,
    tensors: bool = True,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Digests:
    """Return the digests of `model`, and of each tensor unless `tensors` is false.

    `algorithms` are one or several names of ALGORITHMS: "xxh64", "sha1" and "sha256" of all tensor
    bytes in order, "uuid" the identifier that llama-gguf-hash makes of them, "content" the digest
    of names, shapes, types, data and metadata that docs/hash.md defines: equal content has equal
    digests in any layout. Data is read once, in bounded memory; `progress(done, total)` counts
    bytes.
    Raises ValueTypeError for an unknown algorithm, FormatError if a file changes while it is read.
    """
    requested = set(texts("algorithms", algorithms))
    if not requested or not requested.issubset(ALGORITHMS):
        unknown = ", ".join(sorted(requested.difference(ALGORITHMS))) or "none given"
        raise ValueTypeError(f"unknown hash: {unknown}", remedy=f"Use {', '.join(ALGORITHMS)}")
    algorithm_names: list[str] = [name for name in ALGORITHMS if name in requested]
    workers = reading_threads(model.inputs, threads)
    by_tensor: list[str] = [name for name in BY_TENSOR if name in algorithm_names and tensors]
    inner = (
        [*by_tensor, "sha256"]
        if CONTENT in algorithm_names and "sha256" not in by_tensor
        else by_tensor
    )
    whole = {name: _new(name) for name in algorithm_names if name != CONTENT}
    tally = Tally(progress)
    tally.expect(sum(tensor.nbytes for tensor in model.tensors.values()))
    with pool_of(workers) as pool:
        if whole:
            digests = _in_order((pool, workers), model, inner, list(whole.values()), tally)
        else:
            digests = _side_by_side(pool, model, inner, tally)
    totals = {name: _hexdigest(name, state) for name, state in whole.items()}
    if CONTENT in algorithm_names:
        totals[CONTENT] = _content(
            model, {name: kinds["sha256"] for name, kinds in digests.items()}
        )
    tensor_digests = {
        name: {kind: kinds[kind] for kind in by_tensor} for name, kinds in digests.items()
    }
    return Digests(totals, tensor_digests if by_tensor else {})


def _new(algorithm: str) -> Any:  # noqa: ANN401 (hashlib's classes have no common name)
    """Return an object whose `update` takes bytes."""
    if algorithm == "xxh64":
        return _native.Xxh64()
    if algorithm == "sha256":
        return hashlib.sha256()
    beginning = UUID_NAMESPACE.bytes if algorithm == UUID else b""
    return hashlib.sha1(beginning, usedforsecurity=False)


def _hexdigest(algorithm: str, state: Any) -> str:  # noqa: ANN401 (see `_new`)
    if algorithm == "xxh64":
        return f"{state.digest():016x}"
    if algorithm == UUID:
        return str(uuid.UUID(bytes=state.digest()[:16], version=5))
    return str(state.hexdigest())


# A digest of the whole model reads tiles in order; each tile goes to all hashes.


def _in_order(
    threads: tuple[Executor, int], model: Model, inner: list[str], whole: list[Any], tally: Tally
) -> dict[str, dict[str, str]]:
    """Return each tensor's digests, and give all bytes to `whole`."""
    pool, workers = threads
    tasks = (
        functools.partial(little_endian_bytes, tensor, start, stop)
        for tensor in model.tensors.values()
        for start, stop in byte_ranges(tensor, TILE_BYTES)
    )
    ahead = in_turn(pool, tasks, max(READ_AHEAD, workers))
    digests: dict[str, dict[str, str]] = {}
    for tensor in model.tensors.values():
        hashes = {name: _new(name) for name in inner}
        for _ in byte_ranges(tensor, TILE_BYTES):
            data = next(ahead)
            for future in [pool.submit(state.update, data) for state in (*hashes.values(), *whole)]:
                result_of(future)
            tally.add(data.nbytes)
        digests[tensor.name] = {name: _hexdigest(name, state) for name, state in hashes.items()}
    return digests


# Without a digest of the whole model, each tensor is a task of its own.


def _side_by_side(
    pool: Executor, model: Model, inner: list[str], tally: Tally
) -> dict[str, dict[str, str]]:
    digests: dict[str, dict[str, str]] = {}
    tensors = model.tensors.values()
    for tensor, hexes in zip(
        tensors, pool.map(lambda t: _digested(t, inner), tensors), strict=True
    ):
        digests[tensor.name] = hexes
        tally.add(tensor.nbytes)
    return digests


def _digested(tensor: Tensor, inner: list[str]) -> dict[str, str]:
    hashes = {name: _new(name) for name in inner}
    for start, stop in byte_ranges(tensor, TILE_BYTES):
        data = little_endian_bytes(tensor, start, stop)
        for state in hashes.values():
            state.update(data)
    return {name: _hexdigest(name, state) for name, state in hashes.items()}


def _content(model: Model, data: Mapping[str, str]) -> str:
    """Return the digest of keys and tensors in the order of their names; `data` has SHA-256s."""
    metadata = model.metadata.without(*LAYOUT_KEYS, missing_ok=True)
    keys = sorted(metadata, key=_utf8)
    hasher = hashlib.sha256(CONTENT_FORM)
    hasher.update(struct.pack("<QQ", len(keys), len(model.tensors)))
    hasher.update(metadata.arranged(keys).encode(CANONICAL))
    for name in sorted(model.tensors, key=_utf8):
        hasher.update(_info(model.tensors[name]))
        hasher.update(bytes.fromhex(data[name]))
    return hasher.hexdigest()


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _info(tensor: Tensor) -> bytes:
    """Return a tensor's name, dimensions and type, encoded as in a tensor info."""
    name, dims = _utf8(tensor.name), tuple(reversed(tensor.shape))
    head = struct.pack("<Q", len(name)) + name
    return head + struct.pack(f"<I{len(dims)}QI", len(dims), *dims, tensor.type.id)
