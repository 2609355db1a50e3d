"""Takes away system calls that not every system has, in each Python that finds this folder.

Locks, leases and clones of `fcntl`, limits of `resource`, hard links, copies in the kernel, and
renames that replace nothing: what Windows, macOS or a network file system lacks.
`tests/whole/test_plain_system.py` runs tests in this way.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys

MODULES = ("fcntl", "resource")
CALLS = ("copy_file_range", "posix_fadvise", "posix_fallocate", "sched_getaffinity", "sendfile")
LIBRARY_CALLS = ("fallocate", "renameat2", "sync_file_range")


def refuse_link(*_arguments, **_options):
    """Fail as a file system without hard links does."""
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


def lookup(library, name):
    """Return a function of a C library, except those of Linux."""
    if name in LIBRARY_CALLS:
        raise AttributeError(name)
    return original_lookup(library, name)


original_lookup = ctypes.CDLL.__getattr__
ctypes.CDLL.__getattr__ = lookup
os.link = refuse_link
for name in CALLS:
    if hasattr(os, name):
        delattr(os, name)
for name in MODULES:
    sys.modules[name] = None  # `import` then raises ImportError
