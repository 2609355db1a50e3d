"""The header of a file that is read by ranges, in few requests and with few bytes too many."""

from __future__ import annotations

from ggufkit.format.header import Header, parse
from ggufkit.remote.limits import FIRST_BYTES
from ggufkit.remote.range_file import RangeFile


def read_header(file: RangeFile) -> Header:
    """Return the header of a file, of which nothing may have been read yet."""
    file.load(FIRST_BYTES)
    while len(file.data) < file.nbytes:
        header = parse(file.data, file.nbytes)
        if not any(each.severity == "error" for each in header.findings):
            return header
        file.load(2 * len(file.data))
    return parse(file.data, file.nbytes)
