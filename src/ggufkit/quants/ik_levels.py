"""The levels of ik_llama.cpp's types: a number for each index, or several."""

from __future__ import annotations

from typing import Final

import numpy as np

from ggufkit.quants.parallel import Floats


def _pair(first: str, shift: int) -> Floats:
    """Return levels, and the same moved up by `shift`: a group chooses between both."""
    levels = np.array(first.split(), np.float32)
    return np.concatenate((levels, levels + np.float32(shift)))


def _cubic() -> Floats:
    """Return the 64 levels of IQ6_K, computed as in ik_llama.cpp, and moved up by one."""
    q = np.arange(64, dtype=np.float32)
    a, b, c, d = (np.float32(x) for x in (-127.0, 6.2568, 0.11218, 0.0011972))
    levels = a + q * (b + q * (-c + q * d))
    return np.concatenate((levels, levels + np.float32(1))).astype(np.float32)


def trellis() -> Floats:
    """Return for each start of the trellis the sums of bytes that follow from it, one by one."""
    state = np.arange(4096, 4096 + (1 << 16), dtype=np.uint32)
    columns = []
    for _ in range(8):
        state = state * np.uint32(0xCBAC1FED)
        sums = (state & np.uint32(0x3F3F3F3F)).view(np.uint8).reshape(-1, 4).sum(1)
        columns.append(sums.astype(np.float32) - np.float32(126))
    return np.stack(columns, 1)


_PAIRS: Final = """
    e9c1 0dc1 c1d8 f6d8 0dd8 2fd8 d8e9 e9e9 01e9 0de9 1ce9 c1f6 01f6 0df6 2ff6 e901
    f601 0101 0d01 1c01 d80d e90d f60d 010d 0d0d c11c e91c 011c 1c1c 2f1c e92f 0d2f"""

IK_LEVELS: Final[dict[str, Floats]] = {
    "iq2k": _pair("-31 -13 1 17", 5),
    "iq3k": _pair("-63 -40 -23 -10 1 13 28 47", 4),
    "iq4k": _pair("-127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113", 4),
    "iq5k": _pair(
        "-126 -114 -103 -92 -83 -74 -65 -57 -50 -43 -36 -30 -24 -18 -12 -6 "
        "-1 5 11 17 23 29 36 43 51 59 68 77 87 97 109 121",
        2,
    ),
    "iq6k": _cubic(),
    "iq2kl": np.array([int(x, 16) for x in _PAIRS.split()], "<u2")
    .view(np.int8)
    .reshape(-1, 2)
    .astype(np.float32),
}
