"""Writes a model card with front matter from the `general.*` keys of a GGUF file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ggufkit.format.coerce import plain
from ggufkit.format.values import Value

# Fields of a card by their keys in a GGUF file.
_TEXTS: Final = {
    **{key: key for key in ("name", "author", "version", "organization", "description")},
    **{key: key for key in ("finetune", "basename", "size_label", "license")},
    "license.name": "license_name",
    "license.link": "license_link",
    **{f"source.{key}": key for key in ("url", "doi", "uuid", "repo_url")},
}
_ESCAPED: Final = {number: f"\\u{number:04x}" for number in (0x7F, 0x85, 0x2028, 0x2029)}
_LISTS: Final = {"tags": "tags", "languages": "language"}
_WORKS: Final = {"base_model": "base_model", "dataset": "datasets"}


def model_card(metadata: Mapping[str, Value]) -> bytes:
    """Return the text of README.md, with every key that a card has a field for."""
    values = {key.removeprefix("general."): plain(v) for key, v in metadata.items()
            if key.startswith("general.")}  # fmt: skip
    fields: dict[str, Any] = {card: values[key] for key, card in _TEXTS.items() if values.get(key)}
    fields |= {card: values[key] for key, card in _LISTS.items() if values.get(key)}
    fields |= {card: works for key, card in _WORKS.items() if (works := list(_works(values, key)))}
    lines = ["---", *(f"{name}: {_yaml(value)}" for name, value in fields.items()), "---", ""]
    title = str(values.get("name") or "Model")
    text = f"# {' '.join(title.split())}\n\nExported from a GGUF file by ggufkit.\n"
    return "\n".join((*lines, text)).encode()


def _works(values: Mapping[str, Any], key: str) -> Iterator[dict[str, str]]:
    """Yield the fields of each base model or data set."""
    count = values.get(f"{key}.count")
    for number in range(count if isinstance(count, int) else 0):
        prefix = f"{key}.{number}."
        found = {k.removeprefix(prefix): v for k, v in values.items() if k.startswith(prefix)}
        if not found:
            return
        yield found


def _yaml(value: Any) -> str:  # noqa: ANN401 (as metadata is)
    """Return a value as JSON, which is also YAML, on one line with all line ends escaped."""
    return json.dumps(value, ensure_ascii=False).translate(_ESCAPED)
