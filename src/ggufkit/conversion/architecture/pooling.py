"""Converts sentence-transformers' pooling files to `pooling_type`, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ggufkit.conversion.checkpoint.folder import Checkpoint
from ggufkit.errors import CheckpointError, brief

_MODULES: Final = "modules.json"
_HOME: Final = "1_Pooling"  # the folder of the module; export uses it too
_CLASSIFIERS: Final = ("cls", "mean")  # the pooling that classifiers support


# The pooling types: their numbers in llama.h's llama_pooling_type, and their fields in config.json.
NUMBERS: Final = {"mean": 1, "cls": 2, "lasttoken": 3}
FIELDS: Final = {
    "mean": "pooling_mode_mean_tokens",
    "cls": "pooling_mode_cls_token",
    "lasttoken": "pooling_mode_lasttoken",
}


def pooling_type(checkpoint: Checkpoint) -> int | None:
    """Return the pooling type in sentence-transformers' files, None without such files.

    Raises CheckpointError if the files are incomplete, or name pooling that llama.cpp lacks.
    """
    home = next(modules_of(checkpoint, "Pooling"), None)
    if home is None:
        return None
    place = f"{home}/config.json" if home else "config.json"
    config = checkpoint.json(place)
    if config is None:
        raise CheckpointError(
            f"{_MODULES} names a pooling module in {brief(home)}, and {place} is missing",
            remedy=f"Fetch {place} too, or remove {_MODULES} to convert without pooling",
        )
    enabled = [name for name, field in FIELDS.items() if config.get(field)]
    number = number_of_pooling(enabled[0] if enabled else config.get("pooling_mode"))
    if number is None:
        raise CheckpointError(f"the pooling in {place} is not mean, cls or last token")
    return number


def modules_of(checkpoint: Checkpoint, kind: str) -> Iterator[str]:
    """Yield the folders of the modules of a kind in modules.json, "" for the checkpoint's own."""
    text = checkpoint.text(_MODULES)
    try:
        modules = [] if text is None else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{_MODULES} is not JSON: {error}") from None
    for module in modules if isinstance(modules, list) else ():
        if isinstance(module, Mapping) and str(module.get("type")).endswith(kind):
            yield str(module.get("path") or "")


def number_of_pooling(name: Any) -> int | None:  # noqa: ANN401 (as JSON is)
    """Return the number of a pooling type by its name."""
    return NUMBERS.get(name) if isinstance(name, str) else None


def name_of_pooling(number: Any) -> str | None:  # noqa: ANN401 (as metadata is)
    """Return the name of a pooling type by its number."""
    return next((name for name, own in NUMBERS.items() if own == number), None)


def classifier_pooling(name: Any) -> int:  # noqa: ANN401 (as JSON is)
    """Return the number of a classifier's pooling type."""
    if name not in _CLASSIFIERS:
        raise CheckpointError(f"a classifier pools by {brief(name)}, not by cls or mean")
    return NUMBERS[name]


def pooling_files(number: Any, width: Any) -> dict[str, Any]:  # noqa: ANN401 (as metadata is)
    """Return sentence-transformers' JSON files for a pooling type, none for an unknown number.

    `width` is the length of an embedding.
    """
    if name_of_pooling(number) is None:
        return {}
    home = "sentence_transformers.models"
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": f"{home}.Transformer"},
        {"idx": 1, "name": "1", "path": _HOME, "type": f"{home}.Pooling"},
    ]
    modes = {field: NUMBERS[name] == number for name, field in FIELDS.items()}
    pooling = {"word_embedding_dimension": width, **modes}
    return {_MODULES: modules, f"{_HOME}/config.json": pooling}
