"""Where ggufkit's files are not those of llama.cpp's converter: departures.json, also for docs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

DEPARTURES: Final[list[dict[str, Any]]] = json.loads(
    Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
)
# The ends of the names of tensors whose last bit differs.
TENSORS: Final = tuple(end for row in DEPARTURES for end in row.get("tensors", ()))
# Patterns of such tensors, by the type of a projector.
PROJECTORS: Final[dict[str, list[str]]] = {
    kind: names for row in DEPARTURES for kind, names in row.get("projectors", {}).items()
}
# Keys that only one of both writes, by case.
KEYS: Final[dict[str, list[str]]] = {
    case: keys for row in DEPARTURES for case, keys in row.get("keys", {}).items()
}
# Cases on which the converter fails.
FAILING: Final = {case for row in DEPARTURES for case in row.get("failing", ())}
# Cases whose adapters differ, or that only the converter converts.
ADAPTERS: Final = {case for row in DEPARTURES for case in row.get("adapters", ())}
