"""Operations of file systems on blocks: move them, share them, and detect readers.

Only some platforms and file systems support these; each function returns that, and does not raise.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import struct
from collections.abc import Iterator
from typing import Any, Final

from ggufkit.system.descriptors import c_function, fcntl

USUAL_BLOCK: Final = 4096  # bytes of a block on nearly every file system
MAX_BLOCK: Final = 1 << 16  # network file systems call their transfer size a block
HOLE_BYTES: Final = 1 << 20  # smaller parts of a hole are read faster than they are looked for
_COLLAPSE_RANGE: Final = 0x08
_INSERT_RANGE: Final = 0x20
_CLONE_RANGE: Final = 0x4020940D  # FICLONERANGE
_SET_SIGNAL: Final = 10  # F_SETSIG


_IS_WIDE: Final = ctypes.sizeof(ctypes.c_long) == ctypes.sizeof(ctypes.c_int64)
# Python has only posix_fallocate. Tests set this to None to force the fallback.
fallocate: Any = c_function(
    "fallocate" if _IS_WIDE else "fallocate64",  # with 64-bit offsets
    *(ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64),
)


def block_bytes(descriptor: int) -> int:
    """Return the block size of an open file's file system."""
    if not hasattr(os, "fstatvfs"):
        return USUAL_BLOCK
    size = os.fstatvfs(descriptor).f_frsize
    is_usable = size <= MAX_BLOCK and size & (size - 1) == 0
    return max(size, 512) if is_usable else USUAL_BLOCK


def shift(descriptor: int, nbytes: int) -> bool:
    """Move all content of a file by whole blocks: forward if positive, back if negative.

    Moved forward, the file begins with zeros; moved back, it loses its first bytes. Returns False
    if the file system cannot; then the file is unchanged.
    """
    if nbytes == 0:
        return True
    if fallocate is None:
        return False
    size = os.fstat(descriptor).st_size
    mode = _INSERT_RANGE if nbytes > 0 else _COLLAPSE_RANGE
    if fallocate(descriptor, mode, 0, abs(nbytes)) == 0:
        return True
    if os.fstat(descriptor).st_size == size:
        return False
    number = ctypes.get_errno() or errno.EIO
    raise OSError(number, os.strerror(number))


def clone(source: int, source_offset: int, target: int, target_offset: int) -> bool:
    """Let `target` share the blocks of `source` from an offset on; return False if it cannot."""
    if fcntl is None:
        return False
    request = struct.pack("qQQQ", source, source_offset, 0, target_offset)
    try:
        fcntl.ioctl(target, _CLONE_RANGE, request)
    except OSError:
        return False
    return True


def begin_of_hole(descriptor: int, begin: int, end: int) -> int:
    """Return an offset in a file from which on up to `end` no block is allocated.

    It is `end` if the last block is allocated, or the platform cannot tell. The data before may end
    up to `HOLE_BYTES` earlier.
    """
    if not hasattr(os, "SEEK_DATA"):
        return end
    while end - begin > HOLE_BYTES:
        middle = (begin + end) // 2
        try:
            os.lseek(descriptor, middle, os.SEEK_DATA)
            begin = middle
        except OSError as error:
            if error.errno != errno.ENXIO:  # there are data after it, or nobody knows
                return end
            end = middle
    return end


@contextlib.contextmanager
def sole_use(descriptor: int) -> Iterator[bool | None]:
    """Whether nobody else has the file open or mapped; None if the platform cannot tell.

    If true, other processes that open it wait until the end of the context (the kernel gives up
    after /proc/sys/fs/lease-break-time, 45 seconds by default).
    """
    is_leased = _lease(descriptor)
    try:
        yield is_leased
    finally:
        if is_leased:
            with contextlib.suppress(OSError):
                fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)


def _lease(descriptor: int) -> bool | None:
    if not hasattr(fcntl, "F_SETLEASE"):
        return None
    try:
        # If a process opens the file, the kernel sends a signal: choose one ignored by default.
        fcntl.fcntl(descriptor, _SET_SIGNAL, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError as error:
        return False if error.errno == errno.EAGAIN else None
    return True
