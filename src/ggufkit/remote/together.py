"""Which requests to send for several ranges, and how to send them at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from ggufkit.remote import limits
from ggufkit.remote.range_file import ByteRange
from ggufkit.system.threads import in_turn, pool_of


class RangeGroup(NamedTuple):
    """Ranges that one read gets together: `members` are their numbers."""

    whole: ByteRange
    members: tuple[int, ...]


def coalesced(ranges: Sequence[ByteRange]) -> list[RangeGroup]:
    """Join ranges that lie near each other, with at most MOST_OVER_BYTES of gaps in all."""
    groups: list[RangeGroup] = []
    over = 0
    for index in sorted(range(len(ranges)), key=ranges.__getitem__):
        each = ranges[index]
        if not each.nbytes:
            continue
        last = groups[-1] if groups else None
        gap = each.offset - sum(last.whole) if last else 0
        is_near = gap <= limits.GAP_BYTES and over + max(gap, 0) <= limits.MOST_OVER_BYTES
        if last is None or not is_near:
            groups.append(RangeGroup(each, (index,)))
            continue
        over += max(gap, 0)
        stop = max(sum(last.whole), sum(each))
        whole = ByteRange(last.whole.offset, stop - last.whole.offset)
        groups[-1] = RangeGroup(whole, (*last.members, index))
    return groups


def parts_of(whole: ByteRange) -> Iterator[ByteRange]:
    """Cut a range into the parts that are requested in parallel, none shorter than PART_BYTES."""
    count = max(1, whole.nbytes // limits.PART_BYTES)
    for index in range(count):
        start, stop = (whole.nbytes * each // count for each in (index, index + 1))
        yield ByteRange(whole.offset + start, stop - start)


def in_parallel(tasks: Iterable[Callable[[], object]], most: int = limits.PARALLEL) -> None:
    """Run all tasks, several at the same time; the first error ends them all."""
    listed = list(tasks)
    if len(listed) == 1:
        listed[0]()
    elif listed:
        count = min(most, len(listed))
        with pool_of(count) as pool:
            for _ in in_turn(pool, listed, count):
                pass
