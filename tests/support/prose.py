"""A text to measure models on: the same on every machine, and without repeated passages."""

from __future__ import annotations

from typing import Final

_SUBJECTS: Final = (
    "The old librarian", "A patient engineer", "My neighbour's dog", "The last train",
    "Every second winter, the river", "An unsigned letter", "The youngest of the sisters",
)  # fmt: skip
_VERBS: Final = (
    "had forgotten", "slowly repaired", "was waiting for", "crossed the valley without",
    "described", "could not find", "returned with", "sold", "never spoke about",
    "carefully measured", "dreamt of",
)  # fmt: skip
_OBJECTS: Final = (
    "the bridge near the mill", "seven copies of the same map", "a box of broken watches",
    "the sound of the sea", "what the doctor had written down", "bread, salt and a little wine",
    "the answer to a question that nobody asked", "forty-two euros and some coins",
    "its own reflection", "the shortest proof of the theorem", "a garden full of stones",
    "the keys of the northern gate", "a language with three words for snow",
)  # fmt: skip


def prose(sentences: int) -> str:
    """Return that many sentences."""
    return " ".join(
        f"{_SUBJECTS[(3 * i + i // 7) % len(_SUBJECTS)]} "
        f"{_VERBS[(5 * i + i // 11) % len(_VERBS)]} {_OBJECTS[(4 * i * i + i) % len(_OBJECTS)]}."
        for i in range(sentences)
    )
