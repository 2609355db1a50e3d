"""Plans a checkpoint folder: safetensors files, their index, and the small files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final

from ggufkit.conversion.checkpoint.folder import INDEX
from ggufkit.conversion.checkpoint.safetensors import DTYPES, MAX_HEADER_BYTES
from ggufkit.errors import ShapeError, TensorTypeError
from ggufkit.format.types import padded
from ggufkit.models.model import Tensor
from ggufkit.output.layout import Extent, Plan, PlannedFile

SINGLE: Final = "model.safetensors"
_STEP: Final = 8  # the reference writer aligns the data to this


def lay_folder(
    files: Sequence[Sequence[Tensor]], texts: Mapping[str, bytes], shard_size: int | None = None
) -> Plan:
    """Return the plan of all files; a new shard begins before one exceeds `shard_size` bytes."""
    if shard_size is not None and shard_size < 1:
        raise ShapeError(f"a shard size of {shard_size} is not possible", remedy="Use 1 or more")
    shards = [shard for file in files for shard in _shards(file, shard_size)]
    count = len(shards)
    names = [_shard_name(number, count) for number in range(count)] if count > 1 else [SINGLE]
    planned = [lay_file(name, shard) for name, shard in zip(names, shards, strict=True)]
    small = dict(texts)
    if count > 1:
        small[INDEX] = _index(names, shards)
    planned += [PlannedFile(name, text, (), len(text)) for name, text in small.items()]
    return Plan(tuple(planned), 0, "little", _STEP)


def _shards(tensors: Sequence[Tensor], limit: int | None) -> list[list[Tensor]]:
    shards: list[list[Tensor]] = [[]]
    held = 0
    for tensor in tensors:
        if limit is not None and shards[-1] and held + tensor.nbytes > limit:
            shards.append([])
            held = 0
        shards[-1].append(tensor)
        held += tensor.nbytes
    return shards


def _shard_name(number: int, count: int) -> str:
    return f"model-{number + 1:05d}-of-{count:05d}.safetensors"


def _index(names: Sequence[str], shards: Sequence[Sequence[Tensor]]) -> bytes:
    homes = {t.name: name for name, shard in zip(names, shards, strict=True) for t in shard}
    total = sum(tensor.nbytes for shard in shards for tensor in shard)
    content = {"metadata": {"total_size": total}, "weight_map": dict(sorted(homes.items()))}
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def lay_file(name: str, tensors: Sequence[Tensor]) -> PlannedFile:
    """Return the plan of one safetensors file: tensors follow each other without gaps."""
    ends = list(accumulate((tensor.nbytes for tensor in tensors), initial=0))
    table: dict[str, object] = {"__metadata__": {"format": "pt"}}
    for tensor, start in zip(tensors, ends, strict=False):
        if tensor.type.name not in DTYPES:
            raise TensorTypeError(
                f"{tensor.name!r} of type {tensor.type} cannot be stored in a safetensors file"
            )
        table[tensor.name] = {
            "dtype": tensor.type.name,
            "shape": list(tensor.shape),
            "data_offsets": [start, start + tensor.nbytes],
        }
    text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (padded(len(text), _STEP) - len(text))
    if len(text) > MAX_HEADER_BYTES:
        raise ShapeError(
            f"{len(tensors)} tensors need a header larger than the format allows",
            remedy="Write several shards (shard_size=...)",
        )
    head = len(text).to_bytes(8, "little") + text
    extents = tuple(
        Extent(len(head) + start, t.nbytes, t.name, t.rows, t.row_bytes, t.source)
        for t, start in zip(tensors, ends, strict=False)
    )
    return PlannedFile(name, head, extents, len(head) + ends[-1])
