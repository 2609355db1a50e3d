"""The ids of the rules about a file's structure, and of those about its content."""

from __future__ import annotations

from importlib import resources

import ggufkit._toml as _toml

_TABLES = _toml.loads((resources.files("ggufkit.rules") / "rules.toml").read_text("utf-8"))
STRUCTURE = frozenset(_TABLES["structure"])
CONTENT = frozenset(_TABLES["content"])
