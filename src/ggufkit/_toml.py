"""TOML on every Python that ggufkit runs on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    from tomllib import TOMLDecodeError, loads
else:
    from tomli import TOMLDecodeError, loads

__all__ = ["TOMLDecodeError", "loads", "read"]


def read(module: str, name: str) -> dict[str, Any]:
    """Return the content of the file `name` in the folder of a module, given by its `__file__`."""
    table: dict[str, Any] = loads(Path(module).with_name(name).read_text("utf-8"))
    return table
