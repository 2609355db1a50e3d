"""Keeps GPTQ, AWQ and compressed-tensors weights as blocks of GGUF, where that loses nothing.

A group of columns has a scale and a zero point; blocks of 32 have a scale, and in Q4_1 a minimum.
A group that is longer than a block becomes several blocks with the same scale.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from ggufkit.conversion.checkpoint.fp4 import joined_name
from ggufkit.conversion.checkpoint.packed_weights import Grouped
from ggufkit.format.types import TensorType, tensor_type
from ggufkit.models.model import Tensor
from ggufkit.models.rows import ComputedRows
from ggufkit.quants.parallel import Floats
from ggufkit.system.mapped_file import Bytes

_BLOCK: Final = 32  # elements of each of them


@dataclass(frozen=True, eq=False)
class GroupedBlocks(ComputedRows):
    """The rows of `Grouped` as blocks of a type: codes are copied, scales become F16."""

    grouped: Grouped
    type: TensorType

    def read(self, start: int, stop: int) -> Bytes:
        """Unpack rows, and pack their codes behind their scales."""
        per_group = self.grouped.groups.size // _BLOCK
        fields = _fields(self.grouped, self.type, start, stop)
        halves = np.stack(fields, axis=-1).astype("<f2").view(np.uint8)
        codes = self.grouped.codes.read(start, stop).reshape(-1, _BLOCK)
        head = np.repeat(halves, per_group, axis=1).reshape(len(codes), -1)
        if self.type.name == "Q8_0":
            levels = codes ^ 0x80  # the sign of an offset of 128
        else:
            levels = codes[:, : _BLOCK // 2] | codes[:, _BLOCK // 2 :] << 4
        return np.concatenate([head, levels], axis=1).reshape(stop - start, -1)


def _fields(grouped: Grouped, type: TensorType, start: int, stop: int) -> list[Floats]:
    """Return the scales of rows of groups, and of Q4_1 also the minima."""
    scales, zeros = grouped.numbers(start, stop)
    return [scales, -zeros * scales] if type.name == "Q4_1" else [scales]


def with_exact_blocks(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return tensors with decoded weights in Q4_0, Q4_1 or Q8_0, if these hold them exactly.

    Codes must have 4 or 8 bits, and groups consist of neighbours that divide into blocks. F16 must
    hold all scales, and the minima of groups whose zero point is not the middle. Experts that
    become one tensor are kept only if all fit the same type.
    """
    blocks = {tensor.name: _exact(tensor) for tensor in tensors}
    kinds: dict[str, set[str]] = {}
    for name, tensor in blocks.items():
        kinds.setdefault(joined_name(name), set()).add(tensor.type.name)
    is_even = {name: len(kinds[joined_name(name)]) == 1 for name in blocks}
    return [blocks[t.name] if is_even[t.name] else t for t in tensors]


def about_kept(tensors: Iterable[Tensor]) -> str:
    """Return a note: how many weights are kept in each type, and how many are decoded."""
    sources = [(t.type.name, t.source) for t in tensors]
    numbers = Counter(name for name, source in sources if isinstance(source, GroupedBlocks))
    counts = [f"{number} as {name}" for name, number in numbers.items()]
    others = sum(isinstance(source, Grouped) for _, source in sources)
    return (
        f"kept exactly: {', '.join(counts) or 'none'}; {others} quantized matrices fit none of "
        "Q4_0, Q4_1 and Q8_0 exactly, and are decoded"
    )


def _exact(tensor: Tensor) -> Tensor:
    grouped = tensor.source
    if not isinstance(grouped, Grouped):
        return tensor
    width, size, group_of = grouped.groups
    bits = grouped.codes.packing.bits
    if group_of is not None or bits not in (4, 8) or size % _BLOCK or width % size:
        return tensor
    _, zeros = grouped.numbers(0, tensor.rows)
    is_centred = bool((zeros == 1 << (bits - 1)).all())
    if bits == 8 and not is_centred:  # noqa: PLR2004 (GGUF lacks a type with minima of 8 bits)
        return tensor
    kind = tensor_type({4: "Q4_0" if is_centred else "Q4_1", 8: "Q8_0"}[bits])
    fields = np.stack(_fields(grouped, kind, 0, tensor.rows))
    with np.errstate(over="ignore"):
        is_exact = bool((fields.astype(np.float16) == fields).all())
    source = GroupedBlocks(grouped, kind)
    return Tensor.over(tensor.name, kind, tensor.shape, source) if is_exact else tensor
