"""Reads sizes as people write them: 500M, 2G, 3.2GiB."""

from __future__ import annotations

import re
from typing import Final

from ggufkit.errors import ValueTypeError, brief

MAX_SIZE: Final = 2**63 - 1  # bytes: the largest file offset
_SIZE: Final = re.compile(
    r"(?P<number>\d+(\.\d+)?)\s*((?P<unit>[kmgt])(?P<binary>i)?)?b?", re.IGNORECASE
)


def bytes_of(text: str) -> tuple[int, bool]:
    """Return a number of bytes, and whether it was written in powers of 1024.

    Raises ValueTypeError for other texts.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueTypeError(f"{text!r} is not a size; write it as 500M, 2G or 512MiB")
    base = 1024 if match["binary"] else 1000
    power = " kmgt".index((match["unit"] or " ").lower())
    number = float(match["number"]) * base**power
    if number > MAX_SIZE:
        raise ValueTypeError(f"{brief(text)} is more than a file can hold")
    return int(number), bool(match["binary"])
