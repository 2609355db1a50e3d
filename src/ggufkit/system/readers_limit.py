"""Limit the readers of an output to users who may read all its inputs."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_GROUP: Final = 0o070
_OTHERS: Final = 0o007


@dataclass(frozen=True)
class ReadersLimit:
    """The limit that the permissions of all inputs set, as (mode, owner, group) of each."""

    inputs: tuple[tuple[int, int, int], ...] = ()

    @classmethod
    def of(cls, statuses: Iterable[os.stat_result]) -> ReadersLimit:
        """Return the limit of inputs with these statuses."""
        return cls(tuple({(status.st_mode, status.st_uid, status.st_gid) for status in statuses}))

    @classmethod
    def all_of(cls, limits: Iterable[ReadersLimit]) -> ReadersLimit:
        """Return the limit that satisfies all of these limits."""
        return cls(tuple({entry for limit in limits for entry in limit.inputs}))

    def mode(self, requested: int, group: int) -> int:
        """Return the bits of a mode that give nobody more than the inputs do.

        `group` is the group of the output.
        """
        for mode, _, owner_group in self.inputs:
            if mode & stat.S_IROTH:
                continue
            requested &= ~_OTHERS
            if owner_group != group or not mode & stat.S_IRGRP:
                requested &= ~_GROUP
        return requested

    def allows(self, owner: int) -> bool:
        """Whether this user may read all inputs."""
        return all(mode & stat.S_IROTH or owner == user for mode, user, _ in self.inputs)

    def pass_on(self, replaced: os.stat_result, descriptor: int) -> None:
        """Give an output the owner, where allowed, and the mode of the file that it replaces."""
        if not hasattr(os, "fchmod"):  # Windows
            return
        if hasattr(os, "fchown") and self.allows(replaced.st_uid):
            with contextlib.suppress(OSError):
                os.fchown(descriptor, replaced.st_uid, replaced.st_gid)
        mode = stat.S_IMODE(replaced.st_mode) & 0o777
        with contextlib.suppress(OSError):  # file systems without modes
            os.fchmod(descriptor, self.mode(mode, os.fstat(descriptor).st_gid))


NO_LIMIT: Final = ReadersLimit()
PRIVATE_LIMIT: Final = ReadersLimit(((0o600, -1, -1),))  # only this user may read


def group_of_new_files(folder: Path) -> int:
    """Return the group that files created in `folder` get; -1 on systems without groups."""
    if not hasattr(os, "getegid"):
        return -1
    status = folder.stat()
    inherits = sys.platform == "darwin" or status.st_mode & stat.S_ISGID
    return status.st_gid if inherits else os.getegid()
