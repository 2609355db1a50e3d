"""Computes the `general.*` keys of a checkpoint from its card, its files and its name.

Sources, in the order of llama.cpp's converter: the model card, config.json, the name of the folder,
the number of parameters. The user's values override them all.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import ggufkit._toml as _toml
from ggufkit.conversion.card.front_matter import BYTE_ORDER_MARK, front_matter
from ggufkit.conversion.checkpoint.folder import EXTRAS, Checkpoint
from ggufkit.errors import CheckpointError, ValueTypeError
from ggufkit.format.coerce import typed
from ggufkit.format.file_name import ModelId, parse_model_id, size_label, title
from ggufkit.format.values import TypedValue
from ggufkit.models.model import Tensor
from ggufkit.system.threads import Notify

FIELDS: Final = _toml.read(__file__, "fields.toml")
_WORKS: Final[Mapping[str, list[str]]] = FIELDS["works"]
_LISTS: Final[Mapping[str, list[str]]] = FIELDS["lists"]
_SAMPLING: Final[Mapping[str, list[str]]] = FIELDS["sampling"]
_HUB: Final = "https://huggingface.co/"
_HUB_MODEL: Final = re.compile(r"https?://huggingface.co/([^/]+/[^/]+)$")
_IS_URL: Final = ("http://", "https://", "ssh://")
_SNAPSHOT: Final = re.compile(r"models--(.+?)--(.+)")
_MATRICES: Final = 3  # from this many dimensions on, a tensor stacks experts


def describe(  # noqa: PLR0913 (what a caller knows)
    checkpoint: Checkpoint,
    *,
    name: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    tensors: Iterable[Tensor] = (),
    parameters: int | None = None,
    exactly: bool = False,
    say: Notify | None = None,
) -> dict[str, TypedValue]:
    """Return the `general.*` keys of a checkpoint, typed and in llama.cpp's order.

    `tensors` are the converted ones; their parameters are counted, unless `parameters` gives the
    number, negative for an adapter's, of which it is a part. `overrides` are keys of the file
    such as "general.author", with `general.base_models` and `general.datasets` as lists of
    mappings; `name` is `general.name`. A card that cannot be read is skipped with a note.
    With `exactly`, as in llama.cpp's converter, a card after a byte order mark is skipped too, and
    `general.license` of `overrides` does not count.
    """
    say_note = say or (lambda _: None)
    counted = list(tensors)
    if parameters is None:
        # llama.cpp does not count what has adapters inside.
        has_adapters = any(tensor.name.endswith(".lora_a") for tensor in counted)
        parameters = 0 if has_adapters else sum(math.prod(tensor.shape) for tensor in counted)
    try:
        readme = checkpoint.text("README.md") or ""
        card = {} if exactly and readme.startswith(BYTE_ORDER_MARK) else front_matter(readme)
    except CheckpointError as error:
        say_note(f"{error.message}: skipped the model card")
        card = {}
    fields = _card_fields(card, parameters, say_note)
    for model_id in _names(checkpoint):
        for field, text in _id_fields(parse_model_id(model_id, parameters)).items():
            if fields.get(field) is None:
                fields[field] = text
    fields.update(_sampling(checkpoint, say_note))
    overridden = _overridden(overrides or {})
    fields.update({k: v for k, v in overridden.items() if not exactly or k != "license"})
    if name is not None:
        fields["name"] = name
    if fields.get("size_label") is None and parameters > 0:
        fields["size_label"] = _counted_size(counted, parameters)
    return _typed(fields)


def _card_fields(card: Mapping[str, Any], parameters: int, say: Notify) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for field, keys in FIELDS["card"].items():
        for key in keys:
            if fields.get(field) is None and key in card:
                fields[field] = _card_text(card, key, say)
    for field, (_, *keys) in _WORKS.items():
        if works := [card[key] for key in keys if key in card]:
            fields[field] = [_work(work, parameters) for work in _listed(works[0])]
    for field, names in _LISTS.items():
        items = [item for key in names for item in _listed(card.get(key))]
        fields[field] = [item for item in items if isinstance(item, str)]
    return fields


def _card_text(card: Mapping[str, Any], key: str, say: Notify) -> str | None:
    value = card[key]
    if key == "license" and isinstance(value, list):  # one text in the file
        return ",".join(item for item in value if isinstance(item, str))
    if value is None or isinstance(value, str):
        return value
    say(f"README.md: {key} is not text: left out")
    return None


def _listed(value: object) -> list[Any]:
    if isinstance(value, str):
        return [value]
    return value if isinstance(value, list) else []


def _work(work: object, parameters: int) -> dict[str, Any]:
    if isinstance(work, Mapping):
        return dict(work)
    if not isinstance(work, str):
        return {}
    model_id, page = ModelId(), work
    if not work.startswith(_IS_URL):
        model_id = parse_model_id(work, parameters)
        page = f"{_HUB}{model_id.organization}/{model_id.name}" if model_id.organization else ""
    elif on_hub := _HUB_MODEL.match(work):
        model_id = parse_model_id(on_hub[1], parameters)
    fields = _id_fields(model_id)
    return {key: fields[key] for key in ("name", "organization", "version")} | {"repo_url": page}


def _names(checkpoint: Checkpoint) -> Iterator[str]:
    stored = checkpoint.config.get("_name_or_path")
    if isinstance(stored, str) and stored.count("/") <= 1:  # else it is a path on some machine
        yield stored
    if checkpoint.path(EXTRAS) is None:  # the name of an exported folder need not be the model's
        folder = checkpoint.folder if checkpoint.folder.name else checkpoint.folder.resolve()
        match = _SNAPSHOT.fullmatch(folder.parent.parent.name)
        is_snapshot = folder.parent.name == "snapshots"  # in the Hugging Face cache
        yield f"{match[1]}/{match[2]}" if match and is_snapshot else folder.name


def _id_fields(model_id: ModelId) -> dict[str, str | None]:
    titles = {"name": model_id.name, "organization": model_id.organization}
    return {
        **{field: None if text is None else title(text) for field, text in titles.items()},
        "basename": model_id.basename,
        "finetune": model_id.finetune,
        "version": model_id.version,
        "size_label": model_id.size_label,
    }


def _counted_size(tensors: Iterable[Tensor], parameters: int) -> str:
    """Return a size label such as 8x7B: one expert and all that is shared, times experts."""
    shared = expert = 0
    counts = []
    for tensor in tensors:
        size = math.prod(tensor.shape)
        if "_exps." not in tensor.name or len(tensor.shape) < _MATRICES:
            shared += size
            continue
        count = tensor.shape[-2 if ".bias" in tensor.name else -3]
        expert += size // max(count, 1)
        counts.append(count)
    experts = sum(counts) // len(counts) if counts else 0
    return size_label(parameters, shared=shared, expert=expert, experts=experts)


def _sampling(checkpoint: Checkpoint, say: Notify) -> dict[str, Any]:
    try:
        config = checkpoint.json("generation_config.json") or {}
    except CheckpointError as error:
        say(f"{error.message}: left out")
        return {}
    entries = []
    for key, (kind, *names) in _SAMPLING.items():
        fields = [field for field in names if field in config]
        if fields and config[fields[0]] is not None:
            entries.append((key, kind, config[fields[0]]))
    values, problems = _each_typed(entries)
    for problem in problems:
        say(f"generation_config.json: {problem}: left out")
    return {f"sampling.{key}": value for key, value in values.items()}


def _overridden(overrides: Mapping[str, Any]) -> dict[str, Any]:
    kinds = {f"general.{field}": field for field in (*FIELDS["texts"], *_LISTS)}
    kinds.update({f"general.sampling.{key}": f"sampling.{key}" for key in _SAMPLING})
    kinds.update({f"general.{listed}": field for field, (listed, *_) in _WORKS.items()})
    problems = []
    for key in overrides:
        if key not in kinds:
            near = difflib.get_close_matches(key, kinds, 1)
            hint = f", did you mean {near[0]!r}?" if near else ""
            problems.append(f"unknown key {key!r}{hint}")
    if problems:
        raise CheckpointError("the metadata file cannot be used", problems)
    return {kinds[key]: value for key, value in overrides.items()}


def _typed(fields: Mapping[str, Any]) -> dict[str, TypedValue]:
    """Return the fields as key-values in order, without those that are empty or None."""
    kinds = [(f"sampling.{key}", kind) for key, (kind, *_) in _SAMPLING.items()]
    kinds += [(field, "string") for field in FIELDS["texts"]]
    entries = [
        (f"general.{field}", kind, fields[field])
        for field, kind in kinds
        if fields.get(field) is not None and fields[field] != ""
    ]
    for field in _WORKS:
        entries += _about_works(field, fields.get(field))
    lists = [field for field in _LISTS if fields.get(field)]
    entries += [(f"general.{field}", "array[string]", fields[field]) for field in lists]
    values, problems = _each_typed(entries)
    if problems:
        raise CheckpointError("the description of the model cannot be stored", problems)
    return {"general.type": "model", **values}


def _each_typed(entries: Iterable[tuple[str, str, Any]]) -> tuple[dict[str, TypedValue], list[str]]:
    values: dict[str, TypedValue] = {}
    problems: list[str] = []
    for key, kind, value in entries:
        try:
            values[key] = typed(kind, value)
        except ValueTypeError as error:  # noqa: PERF203 (each error is reported)
            problems.append(f"{key}: {error.message}")
    return values, problems


def _about_works(field: str, works: Any) -> Iterator[tuple[str, str, Any]]:  # noqa: ANN401 (as JSON is)
    if works is None:
        return
    if not isinstance(works, list) or not all(isinstance(work, Mapping) for work in works):
        raise CheckpointError(f"general.{_WORKS[field][0]} is not a list of mappings")
    yield f"general.{field}.count", "uint32", len(works)
    for number, work in enumerate(works):
        for key in FIELDS["work"]:
            if work.get(key):
                yield f"general.{field}.{number}.{key}", "string", work[key]
