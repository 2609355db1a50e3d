"""A forged file (or set of files), what should be said about it, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from forging.builder import Forge

Verdict = Literal["refuse", "warn", "accept"]
Content = bytes | Forge
ALONE = "model.gguf"


@dataclass(frozen=True)
class Case:
    """A case: `open` of the first of `files` should end in `verdict`, because of `rule`.

    "refuse" is an exception and an error of that rule, "warn" a model and a warning, "accept" a
    model and at most notes (`rule` names one, or is empty for none at all).
    """

    name: str
    verdict: Verdict
    rule: str
    why: str
    files: Mapping[str, bytes]


def refuse(name: str, rule: str, why: str, content: Content) -> Case:
    return Case(name, "refuse", rule, why, {ALONE: _bytes(content)})


def warn(name: str, rule: str, why: str, content: Content) -> Case:
    return Case(name, "warn", rule, why, {ALONE: _bytes(content)})


def accept(name: str, why: str, content: Content, *, note: str = "") -> Case:
    return Case(name, "accept", note, why, {ALONE: _bytes(content)})


def shards(verdict: Verdict, name: str, rule: str, why: str, files: Mapping[str, Content]) -> Case:
    return Case(name, verdict, rule, why, {key: _bytes(data) for key, data in files.items()})


def _bytes(content: Content) -> bytes:
    return content if isinstance(content, bytes) else content.build()
