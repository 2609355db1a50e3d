"""The memory of the devices of this machine: its graphics cards, or else the machine itself."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from ggufkit.errors import GGUFError
from ggufkit.system.text_file import Most, read_small

AMD_CARDS: Final = Path("/sys/class/drm")  # the driver amdgpu writes a file for each card
GROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")  # of the container that this runs in
ANSWER_SECONDS: Final = 10  # nvidia-smi may first have to wake the cards


def device_memories() -> tuple[int, ...]:
    """Return the bytes of each graphics card, or of the machine's memory if no card is found.

    Asks nvidia-smi, and reads what the driver of AMD's cards says. Raises GGUFError if the system
    says nothing about its memory.
    """
    return _nvidia() or _amd() or (_machine(),)


def _nvidia() -> tuple[int, ...]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    query = (f"--{option}" for option in ("query-gpu=memory.total", "format=csv,noheader,nounits"))
    with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
        answer = subprocess.run(  # noqa: S603 (a program of the system)
            (program, *query), capture_output=True, check=True, timeout=ANSWER_SECONDS
        )
        return tuple(int(line) << 20 for line in answer.stdout.split(b"\n") if line.strip())
    return ()


def _amd() -> tuple[int, ...]:
    sizes = []
    for path in sorted(AMD_CARDS.glob("card*/device/mem_info_vram_total")):
        with contextlib.suppress(OSError, ValueError):
            sizes.append(int(read_small(path, Most.POINTER)))
    return tuple(sizes)


def _machine() -> int:
    try:
        nbytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError) as error:
        raise GGUFError(
            "the system does not say how much memory it has", remedy="Write the size"
        ) from error
    with contextlib.suppress(OSError, ValueError):  # "max" if there is no limit
        nbytes = min(nbytes, int(read_small(GROUP_LIMIT, Most.POINTER)))
    return nbytes
