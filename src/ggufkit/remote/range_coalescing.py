"""Turn several ranges into requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ggufkit.remote import limits
from ggufkit.remote.range_file import ByteRange


class CoalescedRange(NamedTuple):
    """A range that covers several requested ones: `members` are their indexes."""

    whole: ByteRange
    members: tuple[int, ...]


def coalesce(ranges: Sequence[ByteRange]) -> list[CoalescedRange]:
    """Join ranges that lie near each other, with at most MAX_GAPS_BYTES of gaps in all."""
    groups: list[CoalescedRange] = []
    gaps = 0
    for index in sorted(range(len(ranges)), key=ranges.__getitem__):
        requested = ranges[index]
        if not requested.nbytes:
            continue
        last = groups[-1] if groups else None
        gap = max(0, requested.offset - last.whole.stop) if last else 0
        is_near = gap <= limits.GAP_BYTES and gaps + gap <= limits.MAX_GAPS_BYTES
        if last is None or not is_near:
            groups.append(CoalescedRange(requested, (index,)))
            continue
        gaps += gap
        stop = max(last.whole.stop, requested.stop)
        whole = ByteRange(last.whole.offset, stop - last.whole.offset)
        groups[-1] = CoalescedRange(whole, (*last.members, index))
    return groups


def parts_of(whole: ByteRange) -> Iterator[ByteRange]:
    """Cut a range into the parts that are requested in parallel, none shorter than PART_BYTES."""
    count = max(1, whole.nbytes // limits.PART_BYTES)
    for index in range(count):
        start, stop = whole.nbytes * index // count, whole.nbytes * (index + 1) // count
        yield ByteRange(whole.offset + start, stop - start)
