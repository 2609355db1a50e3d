"""Reads the header of a file by ranges, in few requests and with few unneeded bytes.

A header is a chain, so its end is known only at its end. But the parser says how many bytes it
still needs at least, and strings in an array are about as long as the strings before them.
"""

from __future__ import annotations

from typing import Final

import ggufkit._native as _native
from ggufkit.errors import LimitError
from ggufkit.format.header import Header, parse
from ggufkit.remote.limits import FIRST_BYTES, MAX_HEADER_BYTES
from ggufkit.remote.range_file import RangeFile

# Times what is known to be needed: merges follow the tokens. With it, headers of 2 to 16 MB took
# two or three requests, and the largest four; more than that would fetch too much.
MORE: Final = 1.4
MOST_GROWTH: Final = 4  # times the bytes so far, whatever the first strings of an array promise


def read_header(file: RangeFile) -> Header:
    """Return the header of a file; nothing of it may have been read yet.

    Raises LimitError for a header that is longer than MAX_HEADER_BYTES.
    """
    if file.nbytes and not file.data:  # asking a server for the size brings the beginning too
        file.load(FIRST_BYTES)
    while len(file.data) < file.nbytes:
        lack = _native.lack(file.data, file.nbytes)
        if lack is None:
            break
        if lack[0] > MAX_HEADER_BYTES:
            raise LimitError(
                f"the header needs {lack[0]:,} bytes at least, more than the "
                f"{MAX_HEADER_BYTES:,} that are fetched",
                remedy="Download the file to open it",
                path=str(file.path),
            )
        file.load(min(expected_bytes(file.data, lack), MAX_HEADER_BYTES))
    return parse(file.data, file.nbytes)


def expected_bytes(data: bytes, lack: tuple[int, ...]) -> int:
    """Return how many bytes the header probably has: at least what it needs, and more than now.

    `lack` is what the scanner says of a beginning: its first number is the least size, its last
    three are the start of an array of strings, how many of them are there, and their count.
    """
    least, *_, array_at, index, count = lack
    mean = (len(data) - array_at) / max(index, 1)
    end = len(data) + (count - index) * mean if count else 0
    return int(max(least, min(end, MOST_GROWTH * len(data))) * MORE)
