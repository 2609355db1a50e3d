"""Fit changed metadata into the space of the old header, so that tensors stay in place.

A header has no field for slack, and tensor data begins at the first aligned byte after the tensor
infos. Slack is therefore a separate key, RESERVED_KEY, the last one: zeros that readers ignore. The
functions are pure: bytes in, bytes out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ggufkit.errors import ValueTypeError
from ggufkit.format.encoding import Encoding
from ggufkit.format.header import Header
from ggufkit.format.metadata import Metadata
from ggufkit.format.types import MAGIC, RESERVED_KEY, padded
from ggufkit.format.values import TypedValue

MOST_SLACK: Final = 64 << 20  # bytes: more than any header has, and quick to write
# If the space is too small for an empty array, a number of the right size fills it.
_FILLERS: Final = (np.uint8(0), np.uint16(0), np.uint32(0), np.uint64(0))


def visible(metadata: Metadata) -> Metadata:
    """Return metadata without the key that holds slack."""
    return metadata.without(RESERVED_KEY, missing_ok=True)


def slack(nbytes: int) -> dict[str, TypedValue]:
    """Return the key with `nbytes` of slack."""
    return {RESERVED_KEY: np.zeros(nbytes, np.uint8)}


def require_slack(nbytes: int | None) -> None:
    """Raise ValueTypeError for negative or excessive slack."""
    if nbytes is not None and not 0 <= nbytes <= MOST_SLACK:
        raise ValueTypeError(
            f"{nbytes:,} bytes is not a possible size for header slack",
            remedy=f"Reserve at most {MOST_SLACK >> 20}MiB; a chat template needs a few kB",
        )


def refit(
    header: Header, old: bytes, metadata: Metadata, *, step: int, reserve: int | None = None
) -> bytes:
    """Return all bytes before the data of a file whose header gets `metadata`.

    `old` are the bytes that are now before the data; their tensor infos stay unchanged. The result
    has the same size, or is larger by the smallest multiple of `step` bytes and of the alignment
    that fits the header and `reserve` bytes of slack.
    """
    form = _HeaderForm(header, old, visible(metadata))
    if not header.places.starts:
        return form.of_any_size(reserve)
    step = max(step, header.alignment)  # both are powers of two
    least = form.written(slack(reserve) if reserve else {})
    space = len(old) + padded(max(0, len(least) - len(old)), step)
    while True:
        refitted = form.filled(space, reserve)
        if refitted is not None:
            return refitted
        space += step


class _HeaderForm:
    """Encodes the header of one file."""

    def __init__(self, header: Header, old: bytes, metadata: Metadata) -> None:
        """Encode the parts that do not depend on slack; the tensor infos stay unchanged."""
        self.header = header
        self.encoding = Encoding(header.byte_order, wide=header.version != 1)
        self.alignment = header.alignment
        table = header.places.infos.table
        begin = int(table["name_at"][0]) - self.encoding.count_bytes if len(table) else header.end
        self.infos = old[begin : header.end]
        self.keys = len(metadata)
        self.pairs = metadata.encode(self.encoding)

    def written(self, filler: dict[str, TypedValue]) -> bytes:
        """Return the header with or without a filler, not padded."""
        counts = (len(self.header.places.infos.names), self.keys + len(filler))
        head = self.encoding.u32(self.header.version) + b"".join(map(self.encoding.count, counts))
        return b"".join(
            (MAGIC, head, self.pairs, Metadata(filler).encode(self.encoding), self.infos)
        )

    def of_any_size(self, reserve: int | None) -> bytes:
        """Return the header of a file without tensors; it may have any size."""
        header = self.written(slack(reserve) if reserve else {})
        is_padded = self.header.nbytes >= padded(self.header.end, self.alignment)
        return header.ljust(padded(len(header), self.alignment), b"\0") if is_padded else header

    def filled(self, space: int, reserve: int | None) -> bytes | None:
        """Return the header in exactly `space` bytes; None if no filler makes it fit."""
        for filler in self.fillers(space, reserve):
            header = self.written(filler)
            if padded(len(header), self.alignment) == space:
                return header.ljust(space, b"\0")
        return None

    def fillers(self, space: int, reserve: int | None) -> Iterator[dict[str, TypedValue]]:
        """Yield the possible fillers, the smallest first: nothing, a number, an array."""
        if not reserve:
            yield {}
            yield from ({RESERVED_KEY: number} for number in _FILLERS)
        room = space - len(self.written(slack(0)))
        if room >= (reserve or 0):
            yield slack(room)
